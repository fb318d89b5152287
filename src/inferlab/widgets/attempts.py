"""The measurements of the split lab, as a table and as a record, and an engine that can be cancelled."""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from inferlab import figures
from inferlab.engine.protocol import Engine
from inferlab.engine.protocol import Pass as EnginePass
from inferlab.errors import MeasurementCancelled
from inferlab.measurement.run import Run
from inferlab.measurement.sweep import Point, Sweep
from inferlab.prediction.speed import SpeedPlan
from inferlab.settings import Settings

MOVED = ("n_gpu_layers", "n_ctx", "type_k", "type_v", "flash_attn", "offload_kqv")
COLUMNS = ("", "layers", "other settings", "prefill, tokens/s", "decode, tokens/s")


@dataclass(frozen=True)
class Attempt:
    """One press of Measure: settings, prediction, and the run or the error message."""

    settings: Settings
    predicted: SpeedPlan | None
    run: Run | None = None
    error: str | None = None

    def residual(self, phase: str) -> float | None:
        """Measured over predicted, less one, of "prefill" or "decode"; None where one of them is missing."""
        rate = self.run and getattr(self.run, f"{phase}_tokens_per_second")
        return rate / getattr(self.predicted, phase).tokens_per_second - 1 if rate and self.predicted else None


class CancellableEngine:
    """An engine that reports the number of every pass before it begins, and refuses further passes once `stopped`."""

    def __init__(self, engine: Engine, on_pass: Callable[[int], None]) -> None:
        self.engine, self.on_pass, self.n_passes, self.stopped = engine, on_pass, 0, False

    def __getattr__(self, name: str):
        return getattr(self.engine, name)

    def generate(self, prompt: Sequence[int], n_gen: int) -> EnginePass:
        if self.stopped:
            raise MeasurementCancelled("The measurement was cancelled; nothing of it is kept.")
        self.n_passes += 1
        self.on_pass(self.n_passes)
        return self.engine.generate(prompt, n_gen)

    def stop(self) -> None:
        """End the pass that is running and refuse any other."""
        self.stopped = True
        self.engine.close()


def as_sweep(attempts: Sequence[Attempt]) -> Sweep:
    """Every attempt as a point of a sweep over the settings with a control; a failed one has its error."""
    points = tuple(Point({name: getattr(a.settings, name) for name in MOVED}, a.run, a.error) for a in attempts)
    return Sweep({name: tuple(dict.fromkeys(point.changes[name] for point in points)) for name in MOVED}, points)


def table(attempts: Sequence[Attempt]) -> str:
    """Every attempt as a row of an HTML table: settings, measured rates and their distance from the prediction."""
    if not attempts:
        return ""
    head = "".join(f"<th scope='col'>{name}</th>" for name in COLUMNS)
    done = [sum(earlier.run is not None for earlier in attempts[: i + 1]) for i in range(len(attempts))]
    body = "".join(_row(number, attempt) for number, attempt in zip(done, attempts, strict=True))
    return f"<table><caption>Every measurement, with its residual</caption><tr>{head}</tr>{body}</table>"


def _row(number: int, attempt: Attempt) -> str:
    text = html.escape(figures.settings_text(attempt.settings, attempt.run))
    first = f"<td>{number if attempt.run else ''}</td><td>{attempt.settings.n_gpu_layers}</td><td>{text}</td>"
    if attempt.run is None:
        return f"<tr>{first}<td colspan='2'>{html.escape((attempt.error or '').splitlines()[0])}</td></tr>"
    return f"<tr>{first}{''.join(f'<td>{_rate(attempt, phase)}</td>' for phase in ('prefill', 'decode'))}</tr>"


def _rate(attempt: Attempt, phase: str) -> str:
    rate, residual = getattr(attempt.run, f"{phase}_tokens_per_second"), attempt.residual(phase)
    difference = "" if residual is None else f" ({residual:+.0%})"
    return "" if rate is None else f"{rate:.1f}{difference}"
