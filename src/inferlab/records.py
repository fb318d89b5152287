"""Runs on disk: one JSON file a run, complete enough to draw every figure again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from inferlab.engine.log import Buffer
from inferlab.engine.protocol import Pass
from inferlab.errors import RecordError
from inferlab.machine import Link, Machine
from inferlab.measurement.batching import BatchedDecode, BatchPoint
from inferlab.measurement.cold_start import ColdStart
from inferlab.measurement.run import Run
from inferlab.measurement.telemetry.samples import Sample, Sampling
from inferlab.model.gguf import ModelCard
from inferlab.settings import Settings

FORMAT = 1
COLD_STARTS = "inferlab cold starts 1"
SERVING = "inferlab serving 1"
Made = TypeVar("Made")


def save_run(run: Run, path: str | Path) -> Path:
    """Write `run` as JSON, whole or not at all; an existing file is replaced. Raises RecordError."""
    return write_whole(path, json.dumps(run_to_dict(run), indent=1) + "\n")


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
        raise RecordError(f"The run could not be written to {path}: {error}. Nothing was overwritten.") from error
    return path


def load_run(name: str | Path) -> Run:
    """The run in a file, or a recorded one by its name under data/records. Raises RecordError."""
    return read_json(name, run_from_dict, "a run")


def read_json(name: str | Path, made_from: Callable[[dict[str, Any]], Made], what: str) -> Made:
    """What `made_from` makes of a JSON file, or of one under data/records by its name. Raises RecordError."""
    path = Path(name)
    if not path.exists():
        path = Path(str(files("inferlab") / "data" / "records" / f"{name}.json"))
    try:
        return made_from(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise RecordError(f"There is no record {str(name)!r}: neither a file nor a name under data/records.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RecordError(f"{path} is not a record of {what}: {type(error).__name__}: {error}.") from error


def run_to_dict(run: Run) -> dict[str, Any]:
    """Everything a run holds, in JSON's kinds; a sample's unknown fields are left out."""
    data = {"format": FORMAT, **asdict(run)}
    data["samples"] = [{k: v for k, v in sample.items() if v is not None} for sample in data["samples"]]
    return data


def run_from_dict(data: dict[str, Any]) -> Run:
    """The `Run` that `run_to_dict` wrote; raises KeyError or TypeError on anything else."""
    data = dict(data)
    if data.pop("format") != FORMAT:
        raise KeyError("format")
    return Run(
        **{
            **data,
            "model": ModelCard(**data["model"]),
            "settings": Settings.from_dict(data["settings"]),
            "machine": Machine.from_dict(data["machine"]),
            "passes": _passes(data["passes"]),
            "warmups": _passes(data["warmups"]),
            "buffers": tuple(Buffer(**buffer) for buffer in data["buffers"]),
            "samples": tuple(Sample.from_dict(sample) for sample in data.get("samples", ())),
            "links": tuple(Link(**link) for link in data.get("links", ())),
            "sampling": Sampling.from_dict(data["sampling"]) if data.get("sampling") else None,
        }
    )


def cold_starts_to_dict(starts: Iterable[ColdStart]) -> dict[str, Any]:
    """Everything that cold starts hold, in JSON's kinds and in the order of measuring."""
    return {"format": COLD_STARTS, "starts": [asdict(start) for start in starts]}


def load_cold_starts(name: str | Path) -> tuple[ColdStart, ...]:
    """The cold starts in a file, or recorded ones by their name under data/records. Raises RecordError."""
    return read_json(name, cold_starts_from_dict, "cold starts")


def cold_starts_from_dict(data: dict[str, Any]) -> tuple[ColdStart, ...]:
    """The starts that `cold_starts_to_dict` wrote; raises KeyError or TypeError on anything else."""
    if data["format"] != COLD_STARTS:
        raise KeyError("format")
    return tuple(_cold_start(start) for start in data["starts"])


def serving_to_dict(done: BatchedDecode) -> dict[str, Any]:
    """Everything that was measured of several sequences in one context, in JSON's kinds."""
    return {"format": SERVING, **asdict(done)}


def load_serving(name: str | Path) -> BatchedDecode:
    """What was measured of several sequences, in a file or recorded by its name. Raises RecordError."""
    return read_json(name, serving_from_dict, "several sequences")


def serving_from_dict(data: dict[str, Any]) -> BatchedDecode:
    """The `BatchedDecode` that `serving_to_dict` wrote; raises KeyError or TypeError on anything else."""
    data = dict(data)
    if data.pop("format") != SERVING:
        raise KeyError("format")
    crowds = tuple(BatchPoint(**{**one, "step_seconds": tuple(one["step_seconds"])}) for one in data.pop("crowds"))
    return BatchedDecode(crowds=crowds, **{**data, **_common(data)})


def _common(data: dict[str, Any]) -> dict[str, Any]:
    """What records of every kind say about model, settings, machine and buffers."""
    return {
        "model": ModelCard(**data["model"]),
        "settings": Settings.from_dict(data["settings"]),
        "machine": Machine.from_dict(data["machine"]),
        "buffers": tuple(Buffer(**buffer) for buffer in data["buffers"]),
        "links": tuple(Link(**link) for link in data.get("links", ())),
    }


def _cold_start(data: dict[str, Any]) -> ColdStart:
    return ColdStart(**{**data, **_common(data)})


def _passes(data: list[dict[str, Any]]) -> tuple[Pass, ...]:
    return tuple(
        Pass(
            prefill_seconds=one["prefill_seconds"],
            token_seconds=tuple(one["token_seconds"]),
            decode_seconds=tuple(one["decode_seconds"]),
            tokens=tuple(one["tokens"]),
            decoded=tuple(one["decoded"]) if one.get("decoded") else None,
            began=one.get("began"),
        )
        for one in data
    )
