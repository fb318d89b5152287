"""Records that may be shared: one schema for every kind of them, and nothing in them that names their owner.

The schema is written from the type hints that a record is read by, so it knows every field and allows no other.
A record tells processor, devices, memory, system and builds; it never tells a host name, a user name, an address
of another machine, or an absolute path.
"""

from __future__ import annotations

import getpass
import json
import platform
import re
from collections.abc import Iterator
from dataclasses import MISSING, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

from inferlab.errors import ContributionRefused, RecordError
from inferlab.records import KINDS, SCHEMA, SEQUENCE, as_text, class_of, kind_of, record_fields, write_whole
from inferlab.records_v1 import upgrade

# What follows a slash, a drive or a home at the beginning of a word; "tokens/s" and "K/V" are none.
PATH = r"(?<![\w.:/<\\-])(?:~?/|[A-Za-z]:[\\/]|\\\\|file:/+)[\w.~-][^\s'\"<>|]*"
ELSEWHERE = r"RPC\d*\[(?!127\.0\.0\.1:|localhost:)"
HERE = r"^(127\.0\.0\.1|localhost):\d+$"
ADDRESSES = ("rpc_servers", "endpoint")
PRIVATE = ("prompt", "text")
"""Fields of a run that are left out: what somebody asked, and what the model answered."""
NOBODY = frozenset(["admin", "llama", "localhost", "root", "runner", "ubuntu", "user"])
SHORTEST_NAME = 3
FOLDER_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,40}")
MOST_BYTES = 300_000
NUMBER = r"^-?\d+(\.\d+)?$"


# --- the schema -------------------------------------------------------------------------------


@cache
def schema() -> dict[str, Any]:
    """A JSON schema (draft 2020-12) with every kind of record, and each object it is made of, under "$defs"."""
    definitions: dict[str, Any] = {}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A record of inferlab",
        "anyOf": [made for kind in KINDS for made in _files_of(kind, definitions)],
        "$defs": definitions,
    }


def _files_of(kind: str, definitions: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A file with one object of a kind, and a file with a sequence of them."""
    head = {"record": {"const": kind}, "schema": {"const": SCHEMA}}
    one = _object(class_of(kind), definitions)
    made = definitions[one["$ref"].rpartition("/")[2]]
    several = {"type": "array", "items": one, "minItems": 1}
    return (
        _closed({**head, **made["properties"]}, [*head, *made["required"]]),
        _closed({**head, SEQUENCE: several}, [*head, SEQUENCE]),
    )


def _closed(properties: dict[str, Any], needed: list[str]) -> dict[str, Any]:
    """An object with these fields and no other."""
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def _object(cls: type, definitions: dict[str, Any]) -> dict[str, str]:
    """A reference to the definition of a dataclass or NamedTuple, which is made on first use."""
    name = f"{cls.__module__.removeprefix('inferlab.')}.{cls.__name__}"
    if name not in definitions:
        definitions[name] = {}  # a cycle would end here
        known = record_fields(cls)
        given = {one: _field(one, hint, definitions) for one, (hint, _) in known.items()}
        definitions[name] = _closed(given, [one for one, (_, default) in known.items() if default is MISSING])
    return {"$ref": f"#/$defs/{name}"}


def _field(name: str, hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    made = _of(hint, definitions)
    if name in ADDRESSES:
        made.get("items", made)["pattern"] = HERE
    return made


def _of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type hint."""
    origin, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return _object(hint, definitions)
    if origin in (Union, UnionType):
        return {"anyOf": [_of(one, definitions) for one in inner]}
    if origin is tuple:
        several = len(inner) == 2 and inner[1] is Ellipsis
        pair = {"prefixItems": [_of(one, definitions) for one in inner], "minItems": len(inner)}
        return {"type": "array", **({"items": _of(inner[0], definitions)} if several else pair)}
    if origin is dict:
        names = _text() if inner[0] is str else {"pattern": NUMBER}
        return {"type": "object", "propertyNames": names, "additionalProperties": _of(inner[1], definitions)}
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return {"type": plain[hint], **(_text() if hint is str else {})} if hint in plain else _scalar()


def _text() -> dict[str, Any]:
    """What every string must be free of."""
    return {"not": {"type": "string", "pattern": f"{PATH}|{ELSEWHERE}"}}


def _scalar() -> dict[str, Any]:
    """A setting's value, or several of them: what an open field may hold."""
    one = {"type": ["string", "number", "boolean", "null"], **_text()}
    return {"anyOf": [one, {"type": "array", "items": one}]}


# --- checking ---------------------------------------------------------------------------------


def complaints(data: Any) -> list[str]:
    """What is wrong with a record, each with the place in it; none if it may be shared. Old formats are upgraded."""
    data = upgrade(data)
    try:
        kind = kind_of(data)
    except RecordError as error:
        return [f"it is no record: {error}"]
    told = [_complaint(error) for error in _validator(kind, SEQUENCE in data).iter_errors(data)]
    names = {word for _, text in _strings(data) for name in owners() if (word := _names(name, text))}
    return told + [f"it contains {name!r}, the name of this machine or of its user" for name in sorted(names)]


@cache
def _validator(kind: str, several: bool) -> Any:
    from jsonschema import Draft202012Validator

    definitions: dict[str, Any] = {}
    return Draft202012Validator({**_files_of(kind, definitions)[several], "$defs": definitions})


def _complaint(error: Any) -> str:
    """One error in our words; an error of several possibilities is told by the one that came furthest."""
    while error.context:
        error = max(error.context, key=lambda one: len(one.absolute_path))
    place = "/".join(map(str, error.absolute_path)) or "the top"
    if error.validator == "not":
        return f"{place} holds a path or another machine's address: {error.instance!r}"
    return f"{place}: {error.message[:200]}"


@cache
def owners() -> tuple[str, ...]:
    """Names that must not be told: of this machine, its user, and the user's home, where they name somebody."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = ""
    host = platform.node()
    names = {host, host.partition(".")[0], user, Path.home().name}
    return tuple(sorted(name for name in names if len(name) >= SHORTEST_NAME and name.lower() not in NOBODY))


def _names(name: str, text: str) -> str | None:
    return name if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE) else None


def _strings(data: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """(place, text) of every string in some JSON, names of fields included."""
    if isinstance(data, str):
        yield place, data
    elif isinstance(data, dict):
        for key, value in data.items():
            yield place, key
            yield from _strings(value, f"{place}/{key}")
    elif isinstance(data, list | tuple):
        for index, value in enumerate(data):
            yield from _strings(value, f"{place}/{index}")


# --- making -----------------------------------------------------------------------------------


def stripped(data: Any) -> Any:
    """The same JSON without its owner: a path is cut to its last part, names are taken out, prompts left out."""
    if isinstance(data, str):
        return _anonymous(data)
    if isinstance(data, dict):
        return {key: None if key in PRIVATE else stripped(value) for key, value in data.items()}
    return [stripped(value) for value in data] if isinstance(data, list | tuple) else data


def _anonymous(text: str) -> str:
    text = re.sub(PATH, lambda found: re.split(r"[\\/]", found[0].rstrip("\\/"))[-1], text)
    for name in owners():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "[name]", text, flags=re.IGNORECASE)
    return text


def contribute(source: str | Path, target: str | Path) -> tuple[dict[str, Path], dict[str, list[str]]]:
    """Copy a folder's records, stripped and checked, into another: (name -> file written, name -> why it was not).

    Raises ContributionRefused where not one of them may be shared, or the folder's name is no machine's.
    """
    source, target = Path(source), Path(target)
    require_name(target.name)
    written, refused = {}, {}
    for path in sorted(source.glob("*.json")):
        text, wrong = _shareable(path)
        if wrong:
            refused[path.stem] = wrong
        else:
            written[path.stem] = write_whole(target / path.name, text)
    if not written:
        found = "; ".join(f"{name}: {wrong[0]}" for name, wrong in refused.items()) or "no .json file"
        raise ContributionRefused(
            f"{source} holds nothing that can be contributed: {found}. `inferlab reference` makes records."
        )
    return written, refused


def _shareable(path: Path) -> tuple[str, list[str]]:
    """(the text to share, what is wrong with it)."""
    try:
        data = stripped(upgrade(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        return "", [f"it cannot be read: {error}"]
    wrong = complaints(data)
    text = "" if wrong else as_text(data)
    large = [f"it has {len(text):,} bytes, more than {MOST_BYTES:,}"] if len(text) > MOST_BYTES else []
    return text, wrong + large


def require_name(name: str) -> str:
    """The name of a machine's folder, if it is one and names nobody. Raises ContributionRefused."""
    if not FOLDER_NAME.fullmatch(name) or any(_names(owner, name) for owner in owners()):
        raise ContributionRefused(
            f"{name!r} is no name for a machine's folder. Take what it is, not what it is called, "
            "in small letters, digits, dots and dashes: rtx-4090, xeon-2c."
        )
    return name
