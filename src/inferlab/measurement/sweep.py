"""Measure a grid of settings and workloads point by point: `sweep` returns a `Sweep` and can be resumed.

Points with the same model and settings are measured one after another, so that each model is loaded once if possible.
A point that fails is kept, with the reason.
The first point, the anchor, is measured again every few points. If its rate changed by more than 10 %, the machine was
disturbed, and the points since the last good anchor are dropped, with that reason.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import Any

from inferlab.engine.loopback import links_to
from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.errors import InferlabError, InvalidSettings, RecordError
from inferlab.machine import Machine
from inferlab.measurement.run import Run, measure
from inferlab.model.find import cache_folder, find_model
from inferlab.model.ggml_types import padded
from inferlab.progress import bar
from inferlab.records import load, save
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import count_text, rate_text

ANCHOR_EVERY = 6
MOST_DRIFT = 0.10
WORKLOAD = ("n_prompt", "n_gen")
SETTINGS = tuple(field.name for field in fields(Settings))
RATES = ("decode_tokens_per_second", "prefill_tokens_per_second")


@dataclass(frozen=True)
class Point:
    """One point of the grid: its changed values, and its run or its error; both are None if it is not yet measured.

    drift is the relative change of the next anchor from the first one; None before that is measured.
    """

    changes: dict[str, Any]
    run: Run | None = None
    error: str | None = None
    drift: float | None = None

    @property
    def open(self) -> bool:
        """Whether it is not yet measured."""
        return self.run is None and self.error is None


@dataclass(frozen=True)
class Sweep(Shown):
    """A grid, its points in the grid's order, and the runs of the anchor in the order of measuring."""

    over: dict[str, tuple[Any, ...]]
    points: tuple[Point, ...]
    anchors: tuple[Run, ...] = ()

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """What was swept, how much of it is measured, and the rates of every point."""
        over = ", ".join(f"{name} ({count_text(len(values), 'value')})" for name, values in self.over.items())
        done = f"{len(self.runs)} of {count_text(len(self.points), 'point')} measured, {len(self.failed)} failed"
        return f"Sweep over {over or 'nothing'}: {done}", list(map(_shown_point, self.points))

    @property
    def complete(self) -> bool:
        """Whether every point is measured or failed."""
        return not any(point.open for point in self.points)

    @property
    def runs(self) -> tuple[Run, ...]:
        """The runs of all measured points, in the grid's order."""
        return tuple(point.run for point in self.points if point.run)

    @property
    def failed(self) -> tuple[Point, ...]:
        """The points with an error instead of a run."""
        return tuple(point for point in self.points if point.error)

    @property
    def drift(self) -> float | None:
        """The largest relative change of an anchor from the first one; None below two anchors."""
        drifts = [abs(drift_of(self.anchors[0], run)) for run in self.anchors[1:]]
        return max(drifts) if drifts else None

    def at(self, **changes: Any) -> Run:
        """The run of the one point with these values, e.g. `sweep.at(n_gpu_layers=8)`. Raises InvalidSettings."""
        points = [p for p in self.points if all(p.changes.get(name) == value for name, value in changes.items())]
        if len(points) == 1 and points[0].run:
            return points[0].run
        why = f"its measurement failed: {points[0].error}" if len(points) == 1 else f"{len(points)} points have that"
        raise InvalidSettings(f"No single run at {changes}: {why}. The sweep goes over {self.over}.")

    def gain(self, phase: str, of: Mapping[str, Any], over: Mapping[str, Any]) -> float:
        """Relative difference of the rates of two points: rate(of) / rate(over) - 1. `phase` is "decode" or "prefill".

        E.g. gain("decode", {"n_ubatch": 64}, over={"n_ubatch": 8}).
        Raises InvalidSettings if a point has no run.
        """
        rate = f"{phase}_tokens_per_second"
        return getattr(self.at(**of), rate) / getattr(self.at(**over), rate) - 1


def _shown_point(point: Point) -> tuple[str, str]:
    """The changes of a point, and its rates or why it has none."""
    run, name = point.run, ", ".join(f"{name}={value}" for name, value in point.changes.items()) or "as it was"
    if not run:
        return name, point.error or "not measured"
    prefill, decode = rate_text(run.prefill_tokens_per_second), rate_text(run.decode_tokens_per_second)
    return name, f"prefill {prefill}, decode {decode}"


def row(point: Point) -> dict[str, Any]:
    """One point as a flat row; unknown values are None."""
    run = point.run
    measured = {
        "ttft_seconds": run and run.ttft_seconds,
        **{rate: run and getattr(run, rate) for rate in RATES},
        **{f"{kind}_bytes": run and run.bytes_on(kind) for kind in ("weights", "kv_cache", "compute")},
    }
    return {**point.changes, **measured, "drift": point.drift, "error": point.error}


def sweep(
    model: str | Path | None = None,
    settings: Settings | None = None,
    over: Mapping[str, Sequence[Any]] | None = None,
    n_prompt: int = 128,
    n_gen: int = 32,
    repeats: int = 3,
    budget_seconds: float | None = None,
    engine: Engine | None = None,
    progress: bool | None = None,
    each: Callable[[Sweep], bool | None] | None = None,
    telemetry: bool | float = False,
) -> Sweep:
    """Measure every combination of `over`: fields of Settings, `model`, `n_prompt` and `n_gen`.

    budget_seconds  start no point that would probably end later; 0 measures nothing and returns the saved points
    each            callback with the sweep so far after every point; if it returns True, the sweep ends
    telemetry       as for `measure`: samples during every run

    A sweep that Ctrl-C, the budget or `each` ended is saved: the same call again continues it.
    Raises InvalidSettings for a name that cannot be swept; an error of a point is kept in the point.
    """
    engine = engine or default_engine()
    base = str(model or "") or None, settings or Settings(), _grid(over or {})
    request = _Request(*base, n_prompt, n_gen, repeats, telemetry)
    unfinished = request.path
    so_far = _resumed(unfinished, request.over, engine)
    try:
        for updated in _measure_open_points(request, so_far, engine, budget_seconds, progress):
            so_far = updated
            save(so_far, unfinished)
            if each and each(so_far):
                break
    finally:
        if so_far.complete:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
    return so_far


@dataclass(frozen=True)
class _Request:
    """The arguments of `sweep`: the base of every point, and the grid."""

    model: str | None
    settings: Settings
    over: dict[str, tuple[Any, ...]]
    n_prompt: int
    n_gen: int
    repeats: int
    telemetry: bool | float = False

    @property
    def path(self) -> Path:
        """The file in which this sweep is kept until it is complete; equal requests have the same file."""
        links = [(link.gigabytes_per_second, link.latency_seconds) for link in links_to(self.settings.rpc_servers)]
        settings = self.settings.to_dict() | {"rpc_servers": links}
        text = json.dumps([self.__dict__ | {"settings": settings}, str(find_model(self.model))], default=str)
        return cache_folder() / "sweeps" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"

    def workload(self, changes: Mapping[str, Any]) -> tuple[int, int]:
        return changes.get("n_prompt", self.n_prompt), changes.get("n_gen", self.n_gen)

    def settings_of(self, changes: Mapping[str, Any]) -> Settings:
        """The settings of one point; an n_ctx that is not set is sized for the largest workload of the sweep."""
        settings = self.settings.but(**{k: v for k, v in changes.items() if k in SETTINGS})
        return settings if settings.n_ctx else settings.but(n_ctx=self._cells())

    def _cells(self) -> int:
        needed = sum(max(self.over.get(name, (getattr(self, name),))) for name in WORKLOAD)
        return padded(needed)

    def measure(self, changes: Mapping[str, Any], engine: Engine) -> Run:
        model = changes.get("model", self.model)
        return measure(
            model,
            self.settings_of(changes),
            *self.workload(changes),
            self.repeats,
            engine=engine,
            progress=False,
            telemetry=self.telemetry,
        )


def _grid(over: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, ...]]:
    """The grid with tuples of values, checked before the first measurement."""
    known = ("model", *WORKLOAD, *SETTINGS)
    for name, values in over.items():
        if name not in known:
            raise InvalidSettings(f"There is nothing {name!r} to sweep over. There is: {', '.join(known)}.")
        if isinstance(values, str) or not isinstance(values, Iterable) or not tuple(values):
            raise InvalidSettings(f"over={{{name!r}: {values!r}}} must be a list of values, of at least one.")
    return {name: tuple(values) for name, values in over.items()}


def grid_points(over: Mapping[str, Sequence[Any]]) -> tuple[Point, ...]:
    """A point for each combination, the last name's values changing fastest."""
    return tuple(Point(dict(zip(over, values, strict=True))) for values in product(*over.values()))


def load_order(points: Sequence[Point]) -> list[int]:
    """Indices of `points`: those with equal model and settings together, workloads from small to large."""
    groups: dict[str, list[int]] = {}
    for index, point in enumerate(points):
        settings = {name: value for name, value in point.changes.items() if name not in WORKLOAD}
        groups.setdefault(repr(settings), []).append(index)
    return [i for group in groups.values() for i in sorted(group, key=lambda i: _workload_size(points[i]))]


def _workload_size(point: Point) -> tuple[int, ...]:
    return tuple(point.changes.get(name, 0) for name in WORKLOAD)


def _measure_open_points(
    request: _Request, so_far: Sweep, engine: Engine, budget_seconds: float | None, progress: bool | None
) -> Iterator[Sweep]:
    """The sweep after each further point and its anchor."""
    remaining = [i for i in load_order(so_far.points) if so_far.points[i].open]
    since_anchor: list[int] = []
    clock = _Budget(budget_seconds)
    with bar(len(remaining), f"sweeping {len(remaining)} points", progress) as reached:
        for done, index in enumerate(remaining, 1):
            if not clock.allows_another():
                return
            so_far = _with_point(so_far, index, _measured_point(request, so_far.points[index], engine))
            reached(done)
            run = so_far.points[index].run
            if run and not so_far.anchors:
                so_far = replace(so_far, anchors=(run,))
            else:
                since_anchor.append(index)
            if len(since_anchor) >= ANCHOR_EVERY or (since_anchor and done == len(remaining)):
                so_far = _with_anchor(request, so_far, since_anchor, engine)
                since_anchor = []
            yield so_far


class _Budget:
    """The time left, compared with the longest point so far."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds, self.began, self.last, self.longest = seconds, time.monotonic(), time.monotonic(), 0.0

    def allows_another(self) -> bool:
        """Whether a point as long as the longest so far would end within the budget."""
        now = time.monotonic()
        self.longest, self.last = max(self.longest, now - self.last), now
        return self.seconds is None or now - self.began + self.longest < self.seconds


def _measured_point(request: _Request, point: Point, engine: Engine) -> Point:
    try:
        return replace(point, run=request.measure(point.changes, engine))
    except InferlabError as error:
        return replace(point, error=f"{type(error).__name__}: {error}")


def _with_point(so_far: Sweep, index: int, point: Point) -> Sweep:
    return replace(so_far, points=(*so_far.points[:index], point, *so_far.points[index + 1 :]))


def _with_anchor(request: _Request, so_far: Sweep, since: Sequence[int], engine: Engine) -> Sweep:
    """Measure the anchor again; drop the points since the last one if the rate changed by more than MOST_DRIFT."""
    anchor = next((p for p in so_far.points if so_far.anchors and p.run == so_far.anchors[0]), None)
    if anchor is None:
        return so_far
    again = _measured_point(request, Point(anchor.changes), engine)
    if again.run is None:
        return so_far
    drift = drift_of(so_far.anchors[0], again.run)
    for index in since:
        so_far = _with_point(so_far, index, _with_drift(so_far.points[index], drift))
    return replace(so_far, anchors=(*so_far.anchors, again.run))


def _with_drift(point: Point, drift: float) -> Point:
    """The point with the drift that was measured after it; without its run if that exceeds MOST_DRIFT."""
    if abs(drift) <= MOST_DRIFT or point.run is None:
        return replace(point, drift=drift)
    reason = f"dropped: the anchor, measured again after it, had moved by {drift:+.0%}, more than {MOST_DRIFT:.0%}"
    return replace(point, run=None, error=reason, drift=drift)


def drift_of(first: Run, again: Run) -> float:
    """Relative change of the rate of the same request: later / first - 1; of decode if known, else of prefill."""
    for rate in RATES:
        before, after = getattr(first, rate), getattr(again, rate)
        if before and after:
            return after / before - 1
    return 0.0


# --- resuming, and sweeps of finished runs -----------------------------------------------------


def _resumed(path: Path, over: dict[str, tuple[Any, ...]], engine: Engine) -> Sweep:
    """The saved part of an unfinished sweep, with its failed points open again; else a new sweep.

    What another machine or another llama.cpp measured is not continued.
    """
    fresh = Sweep(over, grid_points(over))
    try:
        saved = load(path, Sweep)
    except RecordError:
        return fresh
    measured = (*saved.runs, *saved.anchors)
    if len(saved.points) != len(fresh.points) or not _same_machine((run.machine for run in measured), engine):
        return fresh
    kept = (Point(new.changes, old.run, None, old.drift) for new, old in zip(fresh.points, saved.points, strict=True))
    return Sweep(over, tuple(kept), saved.anchors)


def _same_machine(machines: Iterable[Machine], engine: Engine) -> bool:
    """Whether this processor, with these devices and this llama.cpp, is the machine of them all."""
    identities = {_identity(machine) for machine in machines}
    return identities <= {_identity(engine.machine())} if identities else True


def _identity(machine: Machine) -> tuple[Any, ...]:
    own = (device for device in machine.devices if device.backend != "RPC")  # a loopback device has another port
    devices = tuple((device.name, device.description, device.backend) for device in own)
    return machine.cpu, machine.n_cores, machine.llama_cpp_python, machine.llama_cpp_commit, devices


def from_runs(runs: Sequence[Run]) -> Sweep:
    """Finished runs as a sweep over the values in which they differ."""
    values = [{"model": run.model.name, **run.settings.to_dict(), **_workload(run)} for run in runs]
    names = [name for name in values[0] if len({repr(row[name]) for row in values}) > 1] if values else []
    points = tuple(Point({name: row[name] for name in names}, run) for row, run in zip(values, runs, strict=True))
    over = {name: tuple(dict.fromkeys(point.changes[name] for point in points)) for name in names}
    return Sweep(over, points)


def _workload(run: Run) -> dict[str, int]:
    return {"n_prompt": run.n_prompt, "n_gen": run.n_gen}
