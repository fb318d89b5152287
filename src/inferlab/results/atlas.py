"""The atlas as a reader's results are compared with it: every undisturbed test of its records, with its prediction.

On a page there are no records: the build writes `table()` into the library that the page loads.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from inferlab.errors import InferlabError, RecordError
from inferlab.machine import Machine
from inferlab.model.gguf import ModelCard
from inferlab.model.synthetic_model import shape
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.predict import predict_speed
from inferlab.prediction.speed import SpeedPlan
from inferlab.records import RECORDED, from_json, recorded_below, shipped
from inferlab.results.reading import rows_of_run, runs_of
from inferlab.results.result import Result, printed, result_of
from inferlab.settings import Settings

TABLE = "data/atlas.json"
"""Where the library of a page has the table."""
CALIBRATION, DISTURBED = "calibration.json", "faults"
KINDS = ("run", "sweep")
DECIDING = ("n_threads", "type_k", "type_v")
"""Settings on which a prediction for a processor depends."""


@dataclass(frozen=True)
class Known:
    """One test of a record. `folder` names its machine; `predicted` tokens per second, None without a prediction."""

    folder: str
    result: Result
    predicted: float | None


@cache
def known_results() -> tuple[Known, ...]:
    """Every test of the atlas, without runs that were disturbed on purpose and without loopback devices."""
    kept = files("inferlab").joinpath(TABLE)
    entries = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else table()
    return tuple(Known(entry["folder"], Result.from_dict(entry["result"]), entry["predicted"]) for entry in entries)


def table(folder: Path | None = None) -> list[dict[str, Any]]:
    """The same as plain data, from the records under a folder of machines (None: those that ship)."""
    paths = recorded_below(folder, pattern="*/*.json") if folder else shipped("*/*.json")
    return [entry for path in paths.values() for entry in _entries(path, folder or RECORDED)]


def same_model(known: Iterable[Known], result: Result) -> list[Known]:
    """The tests of the same model in the same type, of the same phase."""
    return [test for test in known if _kind(test.result, result.from_table) == _kind(result, result.from_table)]


def _kind(result: Result, rounded: bool) -> tuple[Any, ...]:
    return result.model, printed(result.n_params) if rounded else result.n_params, result.is_decode


def prediction_for(known: Iterable[Known], result: Result) -> float | None:
    """What was predicted for this very test, as a test of the atlas; None if none agrees in all that is predicted."""
    asked = _predicted_by(result)
    return next((test.predicted for test in known if test.predicted and _predicted_by(test.result) == asked), None)


def _predicted_by(result: Result) -> tuple[Any, ...]:
    settings = (result.settings.get(name) for name in DECIDING)
    return result.cpu, result.gpu, result.on_processor, result.workload, *settings


def _entries(path: Path, folder: Path) -> Iterator[dict[str, Any]]:
    data = json.loads(path.read_text(encoding="utf-8"))
    if data.get("record") not in KINDS:
        return
    name = f"{path.parent.name}/{path.stem}"
    for run in runs_of(data):
        if run["settings"]["rpc_servers"]:
            continue
        plan = _plan(folder / path.parent.name, run)
        for row in _rows(run):
            result = result_of(row, name)
            predicted = plan and (plan.decode if result.is_decode else plan.prefill).tokens_per_second
            yield {"folder": path.parent.name, "result": result.to_dict(), "predicted": predicted}


def _rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    with suppress(RecordError):
        return rows_of_run(run)
    return []


def _plan(folder: Path, run: dict[str, Any]) -> SpeedPlan | None:
    """The rates by the calibration beside the record; None where model or machine have no prediction."""
    made, calibration = from_json(ModelCard, run["model"]).shape, _calibration(folder / CALIBRATION)
    if not made or not calibration:
        return None
    with suppress(InferlabError):
        model = shape(made.name, made.mix, **made.dimensions)
        settings, machine = from_json(Settings, run["settings"]), from_json(Machine, run["machine"])
        return predict_speed(model, settings, calibration, run["n_prompt"], run["n_gen"], machine)
    return None


@cache
def _calibration(path: Path) -> Calibration | None:
    return Calibration.load(path) if path.is_file() else None
