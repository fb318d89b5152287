"""Converts records from before schema 2, which had one format for each kind, to JSON of schema 2."""

from __future__ import annotations

from typing import Any

KINDS = {
    "inferlab sweep 1": "sweep",
    "inferlab cold starts 1": "cold start",
    "inferlab serving 1": "batched decode",
    "inferlab attention 1": "attention timings",
    2: "calibration",
}
KIND_OF_FIELD = {"passes": "run", "points": "speed point"}
"""A field of the file -> its kind, for the two kinds with the same format number 1."""
SEQUENCES = {"cold start": "starts", "speed point": "points"}
RENAMED = {"batched decode": {"crowds": "points"}}
"""Kind -> old name of a field -> its present name."""


def upgrade(data: Any) -> Any:
    """The JSON of an old record in schema 2, with the same numbers; other data is returned unchanged."""
    kind = _kind(data)
    if kind is None:
        return data
    fields = {RENAMED.get(kind, {}).get(name, name): value for name, value in _without_format(data).items()}
    if kind in SEQUENCES:
        fields = {"sequence": fields.get(SEQUENCES[kind])}
    return {"record": kind, "schema": 2, **fields}


def _kind(data: Any) -> str | None:
    old_format = data.get("format") if isinstance(data, dict) else None
    if old_format == 1:
        return next((kind for mark, kind in KIND_OF_FIELD.items() if mark in data), None)
    return KINDS.get(old_format) if isinstance(old_format, str | int) else None


def _without_format(data: Any) -> Any:
    """The data without its format fields; runs inside a sweep have one too."""
    if isinstance(data, dict):
        return {name: _without_format(value) for name, value in data.items() if name != "format"}
    return [_without_format(value) for value in data] if isinstance(data, list) else data
