"""Two settings compared in interleaved pairs, and the control that every such comparison needs: a setting with itself.

The two runs of a pair follow each other, in alternating order, so that a slow minute of the machine meets both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab.engine.protocol import Engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.run import Run, measure
from inferlab.settings import Settings
from inferlab.statistics import ENOUGH, median_interval

N_PAIRS = 15


@dataclass(frozen=True)
class Paired:
    """Runs in pairs: those `before` a change and those `after` it, one pass each."""

    before: tuple[Run, ...]
    after: tuple[Run, ...]

    def ratios(self, phase: str) -> tuple[float, ...]:
        """Rate after over rate before, pair by pair; `phase` is "prefill" or "decode"."""
        rate = f"{phase}_tokens_per_second"
        return tuple(getattr(b, rate) / getattr(a, rate) for a, b in zip(self.before, self.after, strict=True))

    def ratio(self, phase: str) -> float:
        """The median of `ratios`: above 1 the change is faster."""
        return median(self.ratios(phase))

    def interval(self, phase: str) -> tuple[float, float]:
        """The bootstrap 95 % interval of `ratio`."""
        return median_interval(self.ratios(phase))

    def verdict(self, phase: str) -> str:
        """Whether the change is "faster" or "slower"; "no difference found" where the interval contains 1."""
        low, high = self.interval(phase)
        return "faster" if low > 1 else "slower" if high < 1 else "no difference found"


def measure_pairs(
    model: str | Path | None,
    before: Settings,
    after: Settings,
    n_pairs: int = N_PAIRS,
    n_prompt: int = 256,
    n_gen: int = 32,
    engine: Engine | None = None,
) -> Paired:
    """Measure a model (None: the embedded one) with two settings in `n_pairs` pairs, in alternating order.

    Give one setting twice for the A/A control. Raises InvalidSettings for fewer than ten pairs, which have no interval.
    """
    if n_pairs < ENOUGH:
        raise InvalidSettings(f"{n_pairs} pairs have no interval. Ask for {ENOUGH} or more.")
    runs: tuple[list[Run], list[Run]] = ([], [])
    for number in range(n_pairs):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            asked = (before, after)[side]
            runs[side].append(measure(model, asked, n_prompt, n_gen, repeats=1, engine=engine, progress=False))
    return Paired(tuple(runs[0]), tuple(runs[1]))
