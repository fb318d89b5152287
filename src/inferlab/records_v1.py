"""Converts older records to today's JSON: those from before schema 2, which had one format for each kind, and
calibrations with one rate for each type, from before rates depended on the buffer and on the size of a head.
"""

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
HEAD_DIM = 64  # of the models that older calibrations measured attention with
SEQUENCES = {"cold start": "starts", "speed point": "points"}
RENAMED = {"batched decode": {"crowds": "points"}}
"""Kind -> old name of a field -> its present name."""


def upgrade(data: Any) -> Any:
    """The JSON of an old record in schema 2, with the same numbers; other data is returned unchanged."""
    kind = _kind(data)
    if kind is None:
        is_calibration = isinstance(data, dict) and data.get("record") == "calibration"
        return _with_matrices(data) if is_calibration else data
    fields = {RENAMED.get(kind, {}).get(name, name): value for name, value in _without_format(data).items()}
    if kind in SEQUENCES:
        fields = {"sequence": fields.get(SEQUENCES[kind])}
    upgraded = {"record": kind, "schema": 2, **fields}
    return _with_matrices(upgraded) if kind == "calibration" else upgraded


def _with_matrices(calibration: dict[str, Any]) -> dict[str, Any]:
    """A calibration whose devices have `matrices`, where they had `types` and heads without a size."""
    devices = calibration.get("devices")
    if not isinstance(devices, dict):
        return calibration
    return {**calibration, "devices": {name: _device_with_matrices(rates) for name, rates in devices.items()}}


def _device_with_matrices(rates: Any) -> Any:
    if not isinstance(rates, dict) or "types" not in rates:
        return rates
    kept = {name: value for name, value in rates.items() if name not in ("types", "attention")}
    matrices = {type: _matrix_rates(one) for type, one in rates["types"].items()}
    attention = dict(_attention_of_head(key, one) for key, one in rates.get("attention", {}).items())
    return {**kept, "matrices": matrices, "attention": attention}


def _matrix_rates(rates: dict[str, float]) -> dict[str, float]:
    """One rate for each value that entered or left a matrix becomes a rate for inputs and one for outputs."""
    values = rates.get("seconds_per_value_token", 0.0)
    kept = {name: rates[name] for name in ("seconds_per_byte", "seconds_per_weight_token")}
    return {**kept, "seconds_per_input": values, "seconds_per_output": values}


def _attention_of_head(key: str, rates: dict[str, float]) -> tuple[str, dict[str, float]]:
    """Seconds of one value become those of a head's keys and values: 2 * 64, unless the key ends in another size."""
    head_dim = int(key.rsplit("/", 1)[1]) if key.count("/") == 2 else HEAD_DIM
    each = {
        "seconds_per_head_cell": 2 * head_dim * rates["seconds_per_value"],
        "seconds_per_byte": 0.0,
        "seconds_per_batch_cell": 2 * head_dim * rates["seconds_per_batch_value"],
    }
    return f"{key.removesuffix(f'/{head_dim}')}/{head_dim}", each


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
