"""The conversion of the records to schema 2 changed how they are written, not one number in them."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from inferlab.records import shipped

KEPT = Path(__file__).parent / "data" / "record-checksums.json"
VERSIONS = ("format", "schema")


def numbers(data: Any, key: str = "") -> Iterator[tuple[str, int | float]]:
    """(name of the nearest field, value) of every number, in the document's order; truth values are none."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from numbers(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from numbers(value, key)
    elif isinstance(data, int | float) and not isinstance(data, bool) and key not in VERSIONS:
        yield key, data


def checksums(path: Path) -> dict[str, str]:
    """Field -> how many numbers it has in the whole file, and the beginning of the SHA-256 of their digits."""
    found: dict[str, list[str]] = {}
    for key, value in numbers(json.loads(path.read_text(encoding="utf-8"))):
        found.setdefault(key, []).append(repr(value))
    digests = {key: hashlib.sha256(" ".join(told).encode()).hexdigest()[:16] for key, told in found.items()}
    return {key: f"{len(told)} {digests[key]}" for key, told in found.items()}


def test_every_number_of_a_record_is_the_one_that_was_measured():
    """Seconds, bytes, tokens and all other numbers equal, field by field and in order, those before the conversion."""
    paths = shipped()
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    assert {name: checksums(paths[name.removesuffix(".json")]) for name in kept} == kept


def test_a_changed_number_is_found(tmp_path):
    """One digit less in one sample, a sample left out or two exchanged: the checksum of its field is another."""
    data = {"passes": [{"token_seconds": [0.125, 0.25]}, {"token_seconds": [0.5]}], "schema": 2, "settled": True}
    texts = [json.dumps(data), json.dumps(data).replace("0.125", "0.12"), json.dumps(data).replace("0.125, ", "")]
    texts.append(json.dumps(data).replace("0.125, 0.25", "0.25, 0.125"))
    paths = [tmp_path / f"{number}.json" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    assert len({checksums(path)["token_seconds"] for path in paths}) == len(paths)
    assert list(checksums(paths[0])) == ["token_seconds"]
