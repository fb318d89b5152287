"""List what another llama.cpp than the pinned one measured: `make stale`, or python tools/stale_records.py VERSION.

VERSION is a release of llama-cpp-python, which brings its own llama.cpp; unless named it is the pinned one. Before an
upgrade, name the new one to see what will have to be measured again.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from inferlab.atlas.campaign import WITH_GPU, WITHOUT_GPU, stages_of
from inferlab.prediction.validation import POINTS
from inferlab.records import shipped
from studies.recipes import how_to_repeat

ROOT = Path(__file__).parents[1]
VERSION = "llama_cpp_python"


@dataclass(frozen=True)
class Stale:
    """A record, the versions that measured it, the command that measures it again or why there is none, its uses."""

    name: str
    versions: tuple[str, ...]
    again: str
    used_in: tuple[str, ...]


def pinned(pyproject: str) -> str:
    """The release of llama-cpp-python that this repository installs."""
    return re.search(r'"llama-cpp-python==([^"]+)"', pyproject)[1]


def stale(records: dict[str, Path], version: str, texts: dict[str, str]) -> list[Stale]:
    """The records that another version measured; `texts` are sources by their paths."""
    stale_ones = []
    for name, path in records.items():
        versions = tuple(sorted(set(_versions(json.loads(path.read_text(encoding="utf-8"))))))
        if set(versions) - {version}:
            used_in = tuple(place for place, text in texts.items() if path.stem in text)
            stale_ones.append(Stale(name, versions, again(name), used_in))
    return stale_ones


def _versions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if value.get(VERSION):
            yield value[VERSION]
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _versions(item)


def again(name: str) -> str:
    """The command that measures a record again, to be called in the repository, or why it is not repeatable."""
    stem = name.rpartition("/")[2]
    if stem in _stages():
        return f"make reference REFERENCE_OPTIONS={stem}"
    if f"{stem}.json" == POINTS:
        return "INFERLAB_SPEED_RECORD=FOLDER .venv/bin/pytest tests/benchmarks/test_speed_model.py"
    told = how_to_repeat(name)
    return told if told.startswith("not repeatable") else f".venv/bin/{told}"


@cache
def _stages() -> set[str]:
    """What `make reference` measures, on a machine with a GPU or without."""
    models = {*WITH_GPU.models, *WITHOUT_GPU.models}
    return {"calibration", *(stage.name for model in models for stage in stages_of(model))}


def sources() -> dict[str, str]:
    """Chapters, labs and modules, by their paths in the repository."""
    paths = [
        path for place in ("book/**/*.md", "labs/*.ipynb", "src/**/*.py", "src/**/*.toml") for path in ROOT.glob(place)
    ]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}


def main(words: list[str]) -> None:
    version = words[0] if words else pinned((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    stale_ones, n_records = stale(shipped(), version, sources()), len(shipped())
    for record in stale_ones:
        print(f"{record.name}\n  measured with {', '.join(record.versions)}; again: {record.again}")
        print(f"  used in: {', '.join(record.used_in) or 'nothing that names it'}")
    print(f"{len(stale_ones)} of {n_records} records are of another llama-cpp-python than {version}.")


if __name__ == "__main__":
    main(sys.argv[1:])
