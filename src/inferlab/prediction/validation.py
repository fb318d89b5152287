"""Measures the accuracy of speed plans on points that no calibration used.

A point keeps its raw samples. Predictions are computed from the calibration that is stored beside the points, so that
a page and a test compute the same errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.machine import Link
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.prediction.calibration import Calibration
from inferlab.prediction.predict import predict_speed
from inferlab.prediction.speed import SpeedPlan
from inferlab.records import RECORDED, load, save
from inferlab.settings import Settings

PHASES = ("prefill", "decode")
PASSES, AGREEMENT = 2, 0.1
MOST_MEDIAN_ERROR, LEAST_INSIDE = 0.10, 0.90  # the accuracy required of speed plans


@dataclass(frozen=True)
class Point:
    """One workload on a shape, with every sample.

    changes          dimensions in which the shape differs from the published model
    prefill_seconds  of each pass; decode_seconds of each token of all passes
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
        where = (
            f"host, {self.settings.n_threads} threads" if self.on_host_alone else f"{self.settings.n_gpu_layers} layers"
        )
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

    def rate(self, phase: str) -> float:
        """Measured tokens per second, from the median sample."""
        if phase == "prefill":
            return self.n_prompt / median(self.prefill_seconds)
        return 1 / median(self.decode_seconds)


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

    @property
    def pair(self) -> tuple[str, float, float, tuple[float, float]]:
        """(text, predicted, measured, band) for a figure."""
        return self.text, self.predicted, self.measured, self.band


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

    def pairs_by_place(self, phase: str) -> dict[str, list[tuple[str, float, float, tuple[float, float]]]]:
        """One phase's rates for a figure, grouped by `Point.place`."""
        found: dict[str, list[tuple[str, float, float, tuple[float, float]]]] = {}
        for point, checked in zip(self.points, self.checked(phase), strict=True):
            found.setdefault(point.place, []).append(checked.pair)
        return found

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
        points = load(folder / "speed-points.json", Point)
        return cls(Calibration.load(folder / "calibration.json"), points)


def predicted(point: Point, calibration: Calibration) -> SpeedPlan:
    """The speed plan of a point from a calibration; nothing is loaded."""
    model = shape(point.name, point.mix, **point.changes)
    return predict_speed(model, point.settings, calibration, point.n_prompt, point.n_gen, link=point.link)


def measured(point: Point, engine: LlamaEngine) -> Point:
    """The point with samples: a short warm-up, two passes, and a third if the prefill times differ by over 10 %."""
    path = make_shape(point.name, point.mix, progress=False, **point.changes)
    engine.open(path, point.settings)
    prompt = engine.random_prompt(point.n_prompt)
    engine.generate(prompt[:64], 3)
    passes = [engine.generate(prompt, point.n_gen) for _ in range(PASSES)]
    prefills = [one.prefill_seconds for one in passes]
    if max(prefills) > (1 + AGREEMENT) * min(prefills):
        passes.append(engine.generate(prompt, point.n_gen))
    taken: dict[str, Any] = {
        "prefill_seconds": tuple(one.prefill_seconds for one in passes),
        "decode_seconds": tuple(s for one in passes for s in one.decode_seconds),
    }
    return Point(**{**_fields(point), **taken})


def median_error(checked: Iterable[Checked]) -> float:
    """The median of the errors' absolute values."""
    return median(abs(rate.error) for rate in checked)


def share_inside(checked: Sequence[Checked]) -> float:
    """The share of measurements inside the bands of their predictions."""
    return sum(rate.inside for rate in checked) / len(checked)


def accuracy_verdict(checked: Sequence[Checked]) -> str:
    """Whether the required accuracy was reached, or by how much it was missed, in words."""
    error, inside = median_error(checked), share_inside(checked)
    missed = [f"missed it by {100 * (error - MOST_MEDIAN_ERROR):.1f} points"] if error > MOST_MEDIAN_ERROR else []
    missed += [f"had only {100 * inside:.0f} % inside the band"] if inside < LEAST_INSIDE else []
    return " and ".join(missed) or "held it"


def _fields(point: Point) -> dict[str, Any]:
    return {name: getattr(point, name) for name in Point.__dataclass_fields__}
