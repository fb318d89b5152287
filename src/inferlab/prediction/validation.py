"""Measures the accuracy of speed plans on models and requests that took no part in any calibration.

A point keeps its raw samples. Predictions are computed from the calibration that is stored beside the points, so that
a page and a test compute the same errors. Points are measured in rounds: how far two rounds of one point lie apart is
the machine's repeatability, and no prediction can be asked to be nearer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from inferlab.engine.client import LlamaEngine
from inferlab.machine import Link
from inferlab.model.quant_mixes import base_type
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.prediction.calibration import PHASES, Calibration
from inferlab.prediction.predict import predict_speed
from inferlab.prediction.rates import MatrixKey
from inferlab.prediction.speed import SpeedPlan
from inferlab.records import RECORDED, load_all, save
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import count_text

ROUNDS = 3
POINTS = "speed-points.json"
MOST_MEDIAN_ERROR, LEAST_INSIDE = 0.10, 0.90  # the accuracy required of speed plans, unless rounds lie further apart


@dataclass(frozen=True)
class Point(Shown):
    """One workload on a shape, with every sample.

    changes          dimensions in which the shape differs from the published model
    prefill_seconds  of the pass of each round; decode_seconds the median token of each round
    """

    name: str
    mix: str
    changes: dict[str, int]
    settings: Settings
    n_prompt: int
    n_gen: int
    link: Link | None = None
    prefill_seconds: tuple[float, ...] = ()
    decode_seconds: tuple[float, ...] = ()

    @property
    def text(self) -> str:
        """A name for this point: shape, device, depth, and what differs from the defaults."""
        cache = "" if self.settings.type_k == "f16" else f", cache {self.settings.type_k}"
        placement = "" if self.settings.offload_kqv else f", cache on host, flash attention {self.settings.flash_attn}"
        link = f", {self.link.achieved_gigabytes_per_second:.2g} GB/s" if self.link else ""
        n_threads = self.settings.n_threads
        threads = count_text(n_threads, "thread") if n_threads is not None else "threads as the engine chooses"
        where = f"host, {threads}" if self.on_host_alone else count_text(self.settings.n_gpu_layers, "layer")
        return f"{self.name} {self.mix}, {where}, depth {self.n_prompt}{cache}{placement}{link}"

    @property
    def on_host_alone(self) -> bool:
        """Whether the point uses no device."""
        return not self.settings.rpc_servers and self.settings.devices == ()

    @property
    def place(self) -> str:
        """The group of this point: where its layers are, a slowed link, or the cache on the host."""
        if self.on_host_alone:
            return "host alone"
        if not self.settings.offload_kqv:
            return "cache on host"
        if self.link:
            return "slowed link"
        return {0: "no layer there", -1: "all layers there"}.get(self.settings.n_gpu_layers, "some layers there")

    @property
    def request(self) -> str:
        """The kind of request, for tables: its place, and what differs from the defaults."""
        threads = "one thread" if self.on_host_alone and self.settings.n_threads == 1 else self.place
        extra = [f"cache {self.settings.type_k}"] if self.settings.type_k != "f16" else []
        extra += ["nothing repacked"] if not self.settings.use_extra_bufts else []
        extra += ["no flash attention"] if self.settings.flash_attn == "off" else []
        length = "long prompt" if self.n_prompt > self.settings.n_ubatch else "short prompt"
        return ", ".join([threads, length, *extra])

    def seconds(self, phase: str) -> tuple[float, ...]:
        """Of the prompt, or of a token, in each round."""
        return self.prefill_seconds if phase == "prefill" else self.decode_seconds

    def rate(self, phase: str) -> float:
        """Measured tokens per second, from the median round."""
        return (self.n_prompt if phase == "prefill" else 1) / median(self.seconds(phase))

    def spread(self, phase: str) -> float:
        """The slowest round over the fastest, less one."""
        return max(self.seconds(phase)) / min(self.seconds(phase)) - 1


@dataclass(frozen=True)
class Checked:
    """One rate of one point: predicted, measured, and the band of the prediction."""

    text: str
    phase: str
    predicted: float
    measured: float
    band: tuple[float, float]

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1

    @property
    def inside(self) -> bool:
        return self.band[0] <= self.measured <= self.band[1]


@dataclass(frozen=True)
class Accuracy:
    """Points and the calibration that predicts them."""

    calibration: Calibration
    points: tuple[Point, ...] = field(default_factory=tuple)

    @property
    def badge(self) -> str:
        """The machine, the date and the engine of the points, in one line."""
        return f"recorded: {self.calibration.badge.removeprefix('measured: ')}"

    def checked(self, phase: str | None = None) -> tuple[Checked, ...]:
        """Every rate beside its prediction, of one phase or of both."""
        phases = (phase,) if phase else PHASES
        return tuple(self._check(point, of) for point in self.points for of in phases)

    def _check(self, point: Point, phase: str) -> Checked:
        step = getattr(predicted(point, self.calibration), phase)
        return Checked(point.text, phase, step.tokens_per_second, point.rate(phase), step.rate_range)

    def save(self, path: str | Path) -> Path:
        """Write the points as JSON; the calibration has a file of its own. Raises RecordError."""
        return save(self.points, path)

    @classmethod
    def load(cls, folder: str | Path) -> Accuracy:
        """From a folder with calibration.json and speed-points.json, or a recorded one by name. Raises RecordError."""
        folder = Path(folder) if Path(folder).is_dir() else RECORDED / folder
        points = load_all(folder / POINTS, Point)
        return cls(Calibration.load(folder / "calibration.json"), points)


def recorded() -> dict[str, Accuracy]:
    """The recorded points of every machine that has some, by its name."""
    return {path.parent.name: Accuracy.load(path.parent.name) for path in sorted(RECORDED.glob(f"*/{POINTS}"))}


def predicted(point: Point, calibration: Calibration) -> SpeedPlan:
    """The speed plan of a point from a calibration; nothing is loaded."""
    model = shape(point.name, point.mix, **point.changes)
    return predict_speed(model, point.settings, calibration, point.n_prompt, point.n_gen, link=point.link)


def measured(points: Sequence[Point], engine: LlamaEngine, rounds: int = ROUNDS) -> tuple[Point, ...]:
    """The points with samples: every point once, then all again, so that a disturbance affects one round of each."""
    for _ in range(rounds):
        points = [_with_pass(point, engine) for point in points]
    return tuple(points)


def _with_pass(point: Point, engine: LlamaEngine) -> Point:
    """The point with one more pass, after a short warm-up."""
    path = make_shape(point.name, point.mix, None, header_only=False, progress=False, **point.changes)
    engine.open(path, point.settings)
    prompt = engine.random_prompt(point.n_prompt)
    engine.generate(prompt[:8], 2)
    taken = engine.generate(prompt, point.n_gen)
    return replace(
        point,
        prefill_seconds=(*point.prefill_seconds, *filter(None, [taken.prefill_seconds])),
        decode_seconds=(*point.decode_seconds, median(taken.decode_seconds)),
    )


def required_error(points: Iterable[Point], phase: str) -> float:
    """The median error that is allowed: 10 %, or the machine's repeatability where that is more."""
    return max(MOST_MEDIAN_ERROR, repeatability(points, phase))


def repeatability(points: Iterable[Point], phase: str) -> float:
    """How far the slowest round of a point lies from its fastest, typically: 0.1 is a tenth."""
    return median(point.spread(phase) for point in points)


def without_type(calibration: Calibration, type: str) -> Calibration:
    """The calibration as if this type of weights had not been measured."""
    devices = {
        name: replace(rates, matrices={k: v for k, v in rates.matrices.items() if MatrixKey(k).type != type})
        for name, rates in calibration.devices.items()
    }
    return replace(calibration, devices=devices)


def by_group(accuracy: Accuracy, group: Callable[[Point], str]) -> dict[str, dict[str, list[Checked]]]:
    """Every rate by the name that `group` gives its point, and by phase."""
    groups: dict[str, dict[str, list[Checked]]] = {}
    for phase in PHASES:
        for point, checked in zip(accuracy.points, accuracy.checked(phase), strict=True):
            groups.setdefault(group(point), {}).setdefault(phase, []).append(checked)
    return groups


def with_types_left_out(accuracy: Accuracy) -> dict[str, tuple[Checked, ...]]:
    """Every rate predicted without rates for the type of most weights, by phase; the nearest type stands in."""
    by_phase: dict[str, list[Checked]] = {phase: [] for phase in PHASES}
    for point in accuracy.points:
        less = without_type(accuracy.calibration, base_type(point.mix))
        for checked in Accuracy(less, (point,)).checked():
            by_phase[checked.phase].append(checked)
    return {phase: tuple(checked) for phase, checked in by_phase.items()}


def median_error(checked: Iterable[Checked]) -> float:
    """The median of the errors' absolute values."""
    return median(abs(rate.error) for rate in checked)


def share_inside(checked: Sequence[Checked]) -> float:
    """The share of measurements inside the bands of their predictions."""
    return sum(rate.inside for rate in checked) / len(checked)


def accuracy_verdict(checked: Sequence[Checked], allowed: float = MOST_MEDIAN_ERROR) -> str:
    """Whether the allowed median error and nine of ten inside the band were reached, or how far they were missed."""
    error, inside = median_error(checked), share_inside(checked)
    missed = [f"missed the allowed median error by {100 * (error - allowed):.1f} points"] if error > allowed else []
    missed += [f"had only {100 * inside:.0f} % inside the band"] if inside < LEAST_INSIDE else []
    return " and ".join(missed) or "met both limits"
