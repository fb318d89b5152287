"""Writes and reads every kind of measurement as JSON, by the type hints of its class.

A file names its kind and schema (`"record": "run", "schema": 2`). It has the fields of one object, or several objects
of one kind under `"sequence"`. Numbers are written with all digits, so that reading returns equal numbers.
A new kind of record is a dataclass and a line in KINDS, or in RECORDS of the study that has its class.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path, PurePath
from types import GenericAlias, NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from inferlab.errors import RecordError
from inferlab.records_v1 import upgrade

SCHEMA = 2
KINDS = {
    "batched decode": "inferlab.measurement.batching:BatchedDecode",
    "calibration": "inferlab.prediction.calibration:Calibration",
    "cold start": "inferlab.measurement.cold_start:ColdStart",
    "depth scaling": "inferlab.measurement.depth:DepthScaling",
    "fidelity": "inferlab.measurement.fidelity:Fidelity",
    "pairs": "inferlab.measurement.paired:Paired",
    "run": "inferlab.measurement.run:Run",
    "same answers": "inferlab.measurement.same_answer:SameAnswers",
    "speed point": "inferlab.prediction.validation:Point",
    "sweep": "inferlab.measurement.sweep:Sweep",
    "tuning": "inferlab.measurement.tune:Tuning",
}
"""Kind of record -> "module:class"; the module is imported when a file of that kind is read."""
STUDIES = "studies"
"""The package of the studies: a folder with `records` has records, one that declares RECORDS has kinds of its own."""
RECORDED = Path(str(files("inferlab") / "data" / "records"))
SEQUENCE = "sequence"
MOST_NESTED, MOST_BRACKETS = 100, 400_000
QUOTED, BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)', re.DOTALL), re.compile(r"[\[{]+|[\]}]+")
Record = TypeVar("Record")


# --- what ships -------------------------------------------------------------------------------


@cache
def kinds() -> dict[str, str]:
    """Every kind of record with its "module:class", those of the studies included."""
    found = dict(KINDS)
    for folder in studies():
        study = f"{STUDIES}.{folder.name}"
        found |= {kind: f"{study}.{place}" for kind, place in getattr(import_module(study), "RECORDS", {}).items()}
    return dict(sorted(found.items()))


def shipped(pattern: str = "*/**/*.json") -> dict[str, Path]:
    """The records that ship with the library and its studies, by their names, e.g. "xeon-2c/split-layers"."""
    return recorded_below(RECORDED, *(folder / "records" for folder in studies()), pattern=pattern)


def recorded_below(*folders: Path, pattern: str = "*/**/*.json") -> dict[str, Path]:
    """The records in folders of machines, by machine and name."""
    found = {path.relative_to(at).with_suffix("").as_posix(): path for at in folders for path in at.glob(pattern)}
    return dict(sorted(found.items()))


def studies() -> list[Path]:
    """The studies' folders; none where the package is not installed, as in a page."""
    package = find_spec(STUDIES)
    places = package.submodule_search_locations if package else ()
    return sorted(path.parent for place in places or () for path in Path(place).glob("*/__init__.py"))


# --- files ------------------------------------------------------------------------------------


def save(thing: Any, path: str | Path) -> Path:
    """Write a measurement, or several of one kind, as JSON; an existing file is replaced, and kept if writing fails.

    Raises RecordError for a value that is not a record, or a file that cannot be written.
    """
    return write_whole(path, as_text(to_record(thing)))


@overload
def load(name: str | Path, expected: type[Record]) -> Record: ...
@overload
def load(name: str | Path) -> Any: ...
def load(name: str | Path, expected: type[Any] | None = None) -> Any:
    """Read a record from a file, or by the name of one that ships, e.g. "xeon-2c/split-layers".

    expected  the required class (None: any); a file with a sequence returns a tuple
    Raises RecordError for a missing file, a wrong kind, and a field that is unknown, missing or of a wrong type.
    """
    path = Path(name)
    try:
        path = path if path.exists() else shipped().get(str(name), path)
        thing = from_record(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RecordError(f"There is no record {str(name)!r}: neither a file nor a name of one that ships.") from None
    except (OSError, ValueError, RecursionError, RecordError) as error:
        raise RecordError(f"{path} is not a record of this version: {error}") from error
    found = _kind_of(thing)
    if expected and kinds()[found] != _address(expected):
        wanted = next((kind for kind, address in kinds().items() if address == _address(expected)), expected.__name__)
        raise RecordError(f"{path} is a record of the kind {found!r}, not {wanted!r}. Give a file of that kind.")
    return thing


def load_all(name: str | Path, expected: type[Record]) -> tuple[Record, ...]:
    """`load` for a file with a sequence."""
    records: Any = load(name, expected)
    return records


def write_whole(path: str | Path, text: str) -> Path:
    """Replace the content of a file by `text`; on failure the file is unchanged. Raises RecordError."""
    path = Path(path)
    unfinished = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(text, encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise RecordError(f"The record could not be written to {path}: {error}. Nothing was overwritten.") from error
    return path


def as_text(record: dict[str, Any]) -> str:
    """A record as JSON text, with a line for each field and for each object of a list."""
    lines = (f"{json.dumps(name)}: {_lines(value)}" for name, value in record.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


def flat_json(text: str) -> Any:
    """The value of a JSON text from anywhere. Raises ValueError, also for very many levels, lists or objects.

    In a browser's Python a text of very many levels ends the interpreter, instead of raising RecursionError.
    """
    depth = 0
    for n_runs, run in enumerate(BRACKETS.finditer(QUOTED.sub("", text))):
        depth += len(run[0]) if run[0][0] in "[{" else -len(run[0])
        if depth > MOST_NESTED or n_runs > MOST_BRACKETS:
            raise ValueError(f"it has more than {MOST_NESTED} levels, or {MOST_BRACKETS:,} lists and objects")
    return json.loads(text)


# --- kinds ------------------------------------------------------------------------------------


def class_of(kind: str) -> type:
    """The class that records of a kind are read into; its module is imported now."""
    module, _, name = kinds()[kind].partition(":")
    return getattr(import_module(module), name)


def to_record(thing: Any) -> dict[str, Any]:
    """A measurement, or several of one kind, as the JSON of its file. Raises RecordError."""
    head = {"record": _kind_of(thing), "schema": SCHEMA}
    data = to_json(thing)
    return {**head, SEQUENCE: data} if isinstance(data, list) else {**head, **data}


def from_record(data: Any) -> Any:
    """The measurement in the JSON of a file, old formats included. Raises RecordError with the place of an error."""
    cls = class_of(kind_of(upgraded := upgrade(data)))
    content = {name: value for name, value in upgraded.items() if name not in ("record", "schema")}
    if SEQUENCE not in content:
        return from_json(cls, content)
    sequence = from_json(GenericAlias(tuple, (cls, ...)), content[SEQUENCE], SEQUENCE)
    if len(content) > 1 or not sequence:
        raise RecordError("a sequence stands alone in its file and has at least one object.")
    return sequence


def kind_of(data: Any) -> str:
    """The kind in the JSON of a file. Raises RecordError without a known kind, or with another schema."""
    kind, schema = (data.get("record"), data.get("schema")) if isinstance(data, dict) else (None, None)
    if not isinstance(kind, str) or kind not in kinds():
        raise RecordError(f'it names no kind of record; its "record" must be one of {", ".join(kinds())}.')
    if schema != SCHEMA:
        raise RecordError(f'its "schema" is {schema!r}, not {SCHEMA}; read it with the inferlab that wrote it.')
    return kind


def _kind_of(thing: Any) -> str:
    """The kind of an object, or the one kind of a sequence. Raises RecordError."""
    addresses = {_address(type(item)) for item in (thing if _is_sequence(thing) else [thing])}
    found = [kind for kind, address in kinds().items() if addresses == {address}]
    if not found:
        names = ", ".join(sorted(address.rpartition(":")[2] for address in addresses)) or "nothing"
        raise RecordError(f"{names} cannot be kept as a record. Give one of: {', '.join(kinds())}, or several of one.")
    return found[0]


def _address(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_sequence(thing: Any) -> bool:
    return isinstance(thing, list | tuple) and not hasattr(thing, "_fields")


# --- objects to JSON --------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """A value in JSON's types: objects as their fields, tuples as lists; fields that are None by default are left out.

    Numbers of other libraries become Python numbers, paths text. Raises RecordError for anything else.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if is_dataclass(value) or hasattr(value, "_fields"):
        told = record_fields(type(value))  # type: ignore[arg-type]  # mypy takes no class for a Hashable
        entries = ((name, getattr(value, name), default) for name, (_, default) in told.items())
        return {name: to_json(item) for name, item, default in entries if not (item is None and default is None)}
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(to_json(key)): to_json(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [to_json(item) for item in value]
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    raise RecordError(f"{type(value).__name__} cannot be kept in a record: {value!r:.80}")


@cache
def record_fields(cls: type) -> dict[str, tuple[Any, Any]]:
    """Field -> (its type, its default or MISSING) of a dataclass or a NamedTuple."""
    hints = get_type_hints(cls)
    if is_dataclass(cls):
        return {field.name: (hints[field.name], _default(field)) for field in fields(cls)}
    defaults: dict[str, Any] = getattr(cls, "_field_defaults", {})
    return {name: (hint, defaults.get(name, MISSING)) for name, hint in hints.items()}


def _default(field: Any) -> Any:
    return field.default_factory if field.default is MISSING else field.default


# --- JSON to objects --------------------------------------------------------------------------


def from_json(hint: Any, data: Any, place: str = "") -> Any:
    """The value of a type that `to_json` wrote: dataclass, NamedTuple, tuple, dict, union, scalar or Any.

    Lists become tuples. Raises RecordError for an unknown or missing field and a wrong type, with the place.
    """
    origin = get_origin(hint)
    if hint in (Any, object):
        return _untyped(data)
    if origin in (Union, UnionType):
        return _from_union(get_args(hint), data, place)
    if origin is tuple:
        return tuple(_tuple_items(get_args(hint), _typed(list, data, place), place))
    if origin is dict:
        key, item = get_args(hint)
        return dict(_dict_items(key, item, _typed(dict, data, place), place))
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return _object(hint, _typed(dict, data, place), place)
    return _typed(hint, data, place)


def _untyped(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _untyped(value) for name, value in data.items()}
    return tuple(_untyped(value) for value in data) if isinstance(data, list) else data


def _typed(kind: type, data: Any, place: str) -> Any:
    """The data, if it has the type; an int is accepted as a float, a bool is not a number. Raises RecordError."""
    fits = isinstance(data, (int, float) if kind is float else kind)
    if not fits or (isinstance(data, bool) and kind is not bool):
        raise RecordError(f"{place or 'the top'}: expected {kind.__name__}, found {data!r:.80}.")
    return data


def _from_union(kinds: tuple[Any, ...], data: Any, place: str) -> Any:
    others = [kind for kind in kinds if kind is not NoneType]
    if data is None and len(others) < len(kinds):
        return None
    for kind in others[:-1]:
        with suppress(RecordError):
            return from_json(kind, data, place)
    return from_json(others[-1], data, place)


def _tuple_items(kinds: tuple[Any, ...], data: list[Any], place: str) -> Iterator[Any]:
    kinds = kinds[:1] * len(data) if kinds[1:] == (...,) else kinds
    if len(kinds) != len(data):
        raise RecordError(f"{place}: expected {len(kinds)} values, found {len(data)}.")
    return (from_json(kind, item, f"{place}/{i}") for i, (kind, item) in enumerate(zip(kinds, data, strict=True)))


def _dict_items(key: Any, value: Any, data: dict[str, Any], place: str) -> Iterator[tuple[Any, Any]]:
    for name, item in data.items():
        entry_place = f"{place}/{name}"
        yield (
            (key(name) if is_text(key) else from_json(key, _number(name, entry_place), entry_place)),
            from_json(value, item, entry_place),
        )


def is_text(hint: Any) -> bool:
    """Whether a type hint is text, or a key that is text with parts."""
    return isinstance(hint, type) and issubclass(hint, str)


def _number(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise RecordError(f"{place}: expected a number as the name, found {text!r:.80}.") from None


def _object(cls: type, data: dict[str, Any], place: str) -> Any:
    known, start = record_fields(cls), f"{place}/" if place else ""
    unknown = [name for name in data if name not in known]
    missing = [name for name, (_, default) in known.items() if default is MISSING and name not in data]
    if unknown or missing:
        problem = f"unknown field {unknown[0]!r}" if unknown else f"missing field {missing[0]!r}"
        raise RecordError(f"{place or 'the top'}: {problem} of {cls.__name__}.")
    values = {name: from_json(known[name][0], value, f"{start}{name}") for name, value in data.items()}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise RecordError(f"{place or 'the top'}: {error}") from error
