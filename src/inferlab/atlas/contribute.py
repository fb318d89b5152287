"""Records for sharing: a JSON schema for every kind of record, and removal of names and paths.

The schema is derived from the type hints with which records are read, so it has every field and allows no other.
A record has processor, devices, memory, system and builds; it must not have a host name, a user name, an address of
another machine, or an absolute path.
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
from inferlab.records import SCHEMA, SEQUENCE, as_text, class_of, is_text, kind_of, kinds, record_fields, write_whole
from inferlab.records_v1 import upgrade

# A path begins with a slash, a drive or "~" at the beginning of a word; "tokens/s" and "K/V" are no paths.
PATH = r"(?<![\w.:/<\\-])(?:~?/|[A-Za-z]:[\\/]|\\\\|file:/+)[\w.~-][^\s'\"<>|]*"
ELSEWHERE = r"RPC\d*\[(?!127\.0\.0\.1:|localhost:)"
HERE = r"^(127\.0\.0\.1|localhost):\d+$"
ADDRESSES = ("rpc_servers", "endpoint")
PRIVATE = ("prompt", "text")
"""Fields of a run that are left out: the prompt and the answer."""
GENERIC_NAMES = frozenset(["admin", "llama", "localhost", "root", "runner", "ubuntu", "user"])
SHORTEST_NAME = 3
FOLDER_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,40}")
MOST_BYTES = 300_000
NUMBER = r"^-?\d+(\.\d+)?$"


# --- the schema -------------------------------------------------------------------------------


@cache
def schema() -> dict[str, Any]:
    """A JSON schema (draft 2020-12) of every kind of record; the objects in them are under "$defs"."""
    definitions: dict[str, Any] = {}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A record of inferlab",
        "anyOf": [file for kind in kinds() for file in _file_schemas(kind, definitions)],
        "$defs": definitions,
    }


def _file_schemas(kind: str, definitions: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Schemas of a file with one object of a kind, and of a file with a sequence of them."""
    head = {"record": {"const": kind}, "schema": {"const": SCHEMA}}
    reference = _object_schema(class_of(kind), definitions)
    definition = definitions[reference["$ref"].rpartition("/")[2]]
    several = {"type": "array", "items": reference, "minItems": 1}
    return (
        _closed({**head, **definition["properties"]}, [*head, *definition["required"]]),
        _closed({**head, SEQUENCE: several}, [*head, SEQUENCE]),
    )


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    """The schema of an object with these fields and no other."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _object_schema(cls: type, definitions: dict[str, Any]) -> dict[str, str]:
    """A reference to the definition of a dataclass or NamedTuple, which is added on first use."""
    name = f"{cls.__module__.removeprefix('inferlab.')}.{cls.__name__}"
    if name not in definitions:
        definitions[name] = {}  # ends the recursion if a type contains itself
        fields = record_fields(cls)
        properties = {field: _field_schema(field, hint, definitions) for field, (hint, _) in fields.items()}
        required = [field for field, (_, default) in fields.items() if default is MISSING]
        definitions[name] = _closed(properties, required)
    return {"$ref": f"#/$defs/{name}"}


def _field_schema(name: str, hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    schema = _type_schema(hint, definitions)
    if name in ADDRESSES:
        schema.get("items", schema)["pattern"] = HERE
    return schema


def _type_schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one type hint."""
    origin, inner = get_origin(hint), get_args(hint)
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return _object_schema(hint, definitions)
    if origin in (Union, UnionType):
        return {"anyOf": [_type_schema(member, definitions) for member in inner]}
    if origin is tuple:
        several = len(inner) == 2 and inner[1] is Ellipsis
        pair = {"prefixItems": [_type_schema(member, definitions) for member in inner], "minItems": len(inner)}
        return {"type": "array", **({"items": _type_schema(inner[0], definitions)} if several else pair)}
    if origin is dict:
        names = _string_schema() if is_text(inner[0]) else {"pattern": NUMBER}
        return {"type": "object", "propertyNames": names, "additionalProperties": _type_schema(inner[1], definitions)}
    plain = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return {"type": plain[hint], **(_string_schema() if hint is str else {})} if hint in plain else _scalar_schema()


def _string_schema() -> dict[str, Any]:
    """The schema of a string without a path and without another machine's address."""
    return {"not": {"type": "string", "pattern": f"{PATH}|{ELSEWHERE}"}}


def _scalar_schema() -> dict[str, Any]:
    """The schema of a setting's value, or of several values."""
    single = {"type": ["string", "number", "boolean", "null"], **_string_schema()}
    return {"anyOf": [single, {"type": "array", "items": single}]}


# --- checking ---------------------------------------------------------------------------------


def problems(data: Any) -> list[str]:
    """What is wrong with a record, each with its place; empty if it may be shared. Old formats are upgraded first."""
    data = upgrade(data)
    try:
        kind = kind_of(data)
    except RecordError as error:
        return [f"it is no record: {error}"]
    wrong = [_problem_text(error) for error in _validator(kind, SEQUENCE in data).iter_errors(data)]
    names = {word for _, text in _strings(data) for name in identifying_names() if (word := _name_in(name, text))}
    return wrong + [f"it contains {name!r}, the name of this machine or of its user" for name in sorted(names)]


@cache
def _validator(kind: str, several: bool) -> Any:
    from jsonschema import Draft202012Validator

    definitions: dict[str, Any] = {}
    return Draft202012Validator({**_file_schemas(kind, definitions)[several], "$defs": definitions})


def _problem_text(error: Any) -> str:
    """One schema error in words; of the alternatives of an "anyOf", the error with the longest path counts."""
    while error.context:
        error = max(error.context, key=lambda alternative: len(alternative.absolute_path))
    place = "/".join(map(str, error.absolute_path)) or "the top"
    if error.validator == "not":
        return f"{place} holds a path or another machine's address: {error.instance!r}"
    return f"{place}: {error.message[:200]}"


@cache
def identifying_names() -> tuple[str, ...]:
    """Names that must not be in a record: of this machine, its user, and the user's home; generic names are allowed."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):
        user = ""
    host = platform.node()
    names = {host, host.partition(".")[0], user, Path.home().name}
    return tuple(sorted(name for name in names if len(name) >= SHORTEST_NAME and name.lower() not in GENERIC_NAMES))


def _name_in(name: str, text: str) -> str | None:
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


# --- sharing ----------------------------------------------------------------------------------


def anonymized(data: Any) -> Any:
    """The same JSON with paths cut to their last part, names replaced, and prompts and answers removed."""
    if isinstance(data, str):
        return _anonymous(data)
    if isinstance(data, dict):
        return {key: None if key in PRIVATE else anonymized(value) for key, value in data.items()}
    return [anonymized(value) for value in data] if isinstance(data, list | tuple) else data


def _anonymous(text: str) -> str:
    text = re.sub(PATH, lambda found: re.split(r"[\\/]", found[0].rstrip("\\/"))[-1], text)
    for name in identifying_names():
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "[name]", text, flags=re.IGNORECASE)
    return text


def contribute(source: str | Path, target: str | Path) -> tuple[dict[str, Path], dict[str, list[str]]]:
    """Copy a folder's records, anonymized and checked, into another: (name -> written file, name -> why not).

    Raises ContributionRefused if no record may be shared, or if the folder's name is not a machine's.
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
        data = anonymized(upgrade(json.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError, RecursionError) as error:
        return "", [f"it cannot be read: {error}"]
    wrong = problems(data)
    text = "" if wrong else as_text(data)
    large = [f"it has {len(text):,} bytes, more than {MOST_BYTES:,}"] if len(text) > MOST_BYTES else []
    return text, wrong + large


def require_name(name: str) -> str:
    """`name`, if it is a valid name for a machine's folder and names no user or host. Raises ContributionRefused."""
    if not FOLDER_NAME.fullmatch(name) or any(_name_in(owner, name) for owner in identifying_names()):
        raise ContributionRefused(
            f"{name!r} is no name for a machine's folder. Take what it is, not what it is called, "
            "in small letters, digits, dots and dashes: rtx-4090, xeon-2c."
        )
    return name
