"""Records on disk: every kind of measurement as JSON, written and read by the type hints of its class.

A file says what it is (`"record": "run", "schema": 2`) and holds the fields of one object, or under `"sequence"`
several objects of one kind. Numbers are written with every digit, so that they are read back equal.
A new kind of record is a dataclass and a line in KINDS.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.resources import files
from numbers import Integral, Real
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from inferlab.errors import RecordError
from inferlab.records_v1 import upgrade

SCHEMA = 2
KINDS = {
    "attention timings": "inferlab.measurement.torch_attention:Timings",
    "batched decode": "inferlab.measurement.batching:BatchedDecode",
    "calibration": "inferlab.prediction.calibration:Calibration",
    "cold start": "inferlab.measurement.cold_start:ColdStart",
    "depth scaling": "inferlab.measurement.depth:DepthScaling",
    "fidelity": "inferlab.measurement.fidelity:Fidelity",
    "prefix reuse": "inferlab.measurement.prefix_cache:PrefixReuse",
    "run": "inferlab.measurement.run:Run",
    "schedule": "inferlab.measurement.continuous_batching:Schedule",
    "speculation": "inferlab.measurement.speculative:Speculation",
    "speed point": "inferlab.prediction.validation:Point",
    "sweep": "inferlab.experiments.sweep:Sweep",
    "tuning": "inferlab.experiments.tune:Tuning",
    "verification cost": "inferlab.measurement.speculative:VerifyCost",
}
"""Kind of record -> "module:class"; the module is imported when a file of that kind is read."""
RECORDED = Path(str(files("inferlab") / "data" / "records"))
SEQUENCE = "sequence"
Made = TypeVar("Made")


# --- files ------------------------------------------------------------------------------------


def save(thing: Any, path: str | Path) -> Path:
    """Write a measurement, or several of one kind, as JSON: whole or not at all; an existing file is replaced.

    Raises RecordError for something that is no kind of record, or a file that cannot be written.
    """
    return write_whole(path, as_text(to_record(thing)))


def load(name: str | Path, expected: type[Made] | None = None) -> Made | tuple[Made, ...]:
    """What a file holds, or a recorded one by its name under data/records, "xeon-2c/split-layers".

    expected  the class that it must be of (None: any); a file with a sequence gives a tuple
    Raises RecordError for a missing file, a wrong kind, and a field that is unknown, missing or of a wrong type.
    """
    path = Path(name) if Path(name).exists() else RECORDED / f"{name}.json"
    try:
        thing = from_record(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RecordError(f"There is no record {str(name)!r}: neither a file nor a name under data/records.") from None
    except (OSError, ValueError, RecursionError, RecordError) as error:
        raise RecordError(f"{path} is not a record of this version: {error}") from error
    found = _kind_of(thing)
    if expected and KINDS[found] != _address(expected):
        wanted = next(kind for kind, address in KINDS.items() if address == _address(expected))
        raise RecordError(f"{path} is a record of the kind {found!r}, not {wanted!r}. Give a file of that kind.")
    return thing


def write_whole(path: str | Path, text: str) -> Path:
    """Replace a file by `text`, or leave it as it is. Raises RecordError."""
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
    """A record's JSON with a line for each field, and for each object of a list."""
    lines = (f"{json.dumps(name)}: {_lines(value)}" for name, value in record.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n" + ",\n".join(map(json.dumps, value)) + "\n]"
    return json.dumps(value)


# --- kinds ------------------------------------------------------------------------------------


def class_of(kind: str) -> type:
    """The class that records of a kind are read into; its module is imported now."""
    module, _, name = KINDS[kind].partition(":")
    return getattr(import_module(module), name)


def to_record(thing: Any) -> dict[str, Any]:
    """A measurement, or several of one kind, as the JSON of its file. Raises RecordError."""
    head = {"record": _kind_of(thing), "schema": SCHEMA}
    told = to_json(thing)
    return {**head, SEQUENCE: told} if isinstance(told, list) else {**head, **told}


def from_record(data: Any) -> Any:
    """What the JSON of a file says, old formats included. Raises RecordError with the place in it."""
    cls = class_of(kind_of(upgraded := upgrade(data)))
    told = {name: value for name, value in upgraded.items() if name not in ("record", "schema")}
    if SEQUENCE not in told:
        return from_json(cls, told)
    found = from_json(tuple[cls, ...], told[SEQUENCE], SEQUENCE)
    if len(told) > 1 or not found:
        raise RecordError("a sequence stands alone in its file and has at least one object.")
    return found


def kind_of(data: Any) -> str:
    """The kind that the JSON of a file names. Raises RecordError where it names none, or another schema."""
    kind, schema = (data.get("record"), data.get("schema")) if isinstance(data, dict) else (None, None)
    if not isinstance(kind, str) or kind not in KINDS:
        raise RecordError(f'it names no kind of record; its "record" must be one of {", ".join(KINDS)}.')
    if schema != SCHEMA:
        raise RecordError(f'its "schema" is {schema!r}, not {SCHEMA}; read it with the inferlab that wrote it.')
    return kind


def _kind_of(thing: Any) -> str:
    """The kind of an object, or the one kind of a sequence. Raises RecordError."""
    every = {_address(type(one)) for one in (thing if _is_sequence(thing) else [thing])}
    kinds = [kind for kind, address in KINDS.items() if every == {address}]
    if not kinds:
        names = ", ".join(sorted(address.rpartition(":")[2] for address in every)) or "nothing"
        raise RecordError(f"{names} cannot be kept as a record. Give one of: {', '.join(KINDS)}, or several of one.")
    return kinds[0]


def _address(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _is_sequence(thing: Any) -> bool:
    return isinstance(thing, list | tuple) and not hasattr(thing, "_fields")


# --- objects to JSON --------------------------------------------------------------------------


def to_json(value: Any) -> Any:
    """A value in JSON's types: objects as their fields, tuples as lists; None is left out where it is the default.

    Numbers of other libraries become Python's, paths text. Raises RecordError for anything else.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if is_dataclass(value) or hasattr(value, "_fields"):
        told = ((name, getattr(value, name), default) for name, (_, default) in record_fields(type(value)).items())
        return {name: to_json(one) for name, one, default in told if not (one is None and default is None)}
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(to_json(key)): to_json(one) for key, one in value.items()}
    if isinstance(value, Sequence):
        return [to_json(one) for one in value]
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
        return {one.name: (hints[one.name], _default(one)) for one in fields(cls)}
    return {name: (hints[name], cls._field_defaults.get(name, MISSING)) for name in cls._fields}


def _default(field: Any) -> Any:
    return field.default_factory if field.default is MISSING else field.default


# --- JSON to objects --------------------------------------------------------------------------


def from_json(hint: Any, data: Any, place: str = "") -> Any:
    """The value of a type that `to_json` wrote: dataclass, NamedTuple, tuple, dict, union, scalar or Any.

    Lists become tuples. Raises RecordError for an unknown or missing field and a wrong type, with the place.
    """
    origin = get_origin(hint)
    if hint in (Any, object):
        return _plain(data)
    if origin in (Union, UnionType):
        return _either(get_args(hint), data, place)
    if origin is tuple:
        return tuple(_items(get_args(hint), _of(list, data, place), place))
    if origin is dict:
        return dict(_pairs(*get_args(hint), _of(dict, data, place), place))
    if is_dataclass(hint) or hasattr(hint, "_fields"):
        return _object(hint, _of(dict, data, place), place)
    return _of(hint, data, place)


def _plain(data: Any) -> Any:
    if isinstance(data, dict):
        return {name: _plain(value) for name, value in data.items()}
    return tuple(_plain(value) for value in data) if isinstance(data, list) else data


def _of(kind: type, data: Any, place: str) -> Any:
    """The data, if it is of the type; a whole number will do for a float, a truth value is no number."""
    fits = isinstance(data, (int, float) if kind is float else kind)
    if not fits or (isinstance(data, bool) and kind is not bool):
        raise RecordError(f"{place or 'the top'}: expected {kind.__name__}, found {data!r:.80}.")
    return data


def _either(kinds: tuple[Any, ...], data: Any, place: str) -> Any:
    others = [kind for kind in kinds if kind is not NoneType]
    if data is None and len(others) < len(kinds):
        return None
    for kind in others[:-1]:
        with suppress(RecordError):
            return from_json(kind, data, place)
    return from_json(others[-1], data, place)


def _items(kinds: tuple[Any, ...], data: list[Any], place: str) -> Iterator[Any]:
    kinds = kinds[:1] * len(data) if kinds[1:] == (...,) else kinds
    if len(kinds) != len(data):
        raise RecordError(f"{place}: expected {len(kinds)} values, found {len(data)}.")
    return (from_json(kind, one, f"{place}/{i}") for i, (kind, one) in enumerate(zip(kinds, data, strict=True)))


def _pairs(key: Any, value: Any, data: dict[str, Any], place: str) -> Iterator[tuple[Any, Any]]:
    for name, one in data.items():
        inside = f"{place}/{name}"
        yield (name if key is str else from_json(key, _number(name, inside), inside)), from_json(value, one, inside)


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
        told = f"unknown field {unknown[0]!r}" if unknown else f"missing field {missing[0]!r}"
        raise RecordError(f"{place or 'the top'}: {told} of {cls.__name__}.")
    values = {name: from_json(known[name][0], value, f"{start}{name}") for name, value in data.items()}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise RecordError(f"{place or 'the top'}: {error}") from error
