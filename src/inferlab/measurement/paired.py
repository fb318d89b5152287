"""Two settings or two surroundings compared in interleaved pairs, and the control that every such comparison needs.

The control is a side compared with itself. The two runs of a pair follow each other, in alternating order, so that a
slow minute of the machine meets both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from inferlab.engine.protocol import Engine
from inferlab.errors import InvalidSettings
from inferlab.machine import CpuState
from inferlab.measurement.run import Run, measure, measure_in_turns
from inferlab.measurement.surroundings import Surrounding
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.statistics import ENOUGH, median_interval, verdict
from inferlab.units import count_text

N_PAIRS = 15


@dataclass(frozen=True)
class Paired(Shown):
    """Runs in pairs: those `before` a change and those `after` it. The passes of a side, run after run, are its pairs.

    surroundings  of the two sides
    name          what was compared
    cpu           what the system showed of the processors; None if that was not read
    """

    before: tuple[Run, ...]
    after: tuple[Run, ...]
    surroundings: tuple[Surrounding, Surrounding] = (Surrounding(), Surrounding())
    name: str = ""
    cpu: CpuState | None = None

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """Ratio, interval and verdict of both phases."""
        n_pairs = len(self.rates("prefill"))
        title = f"{self.name or 'After against before'}, rate after / before in {count_text(n_pairs, 'pair')}"
        return title, [(phase, self.text(phase)) for phase in ("prefill", "decode")]

    def rates(self, phase: str, side: str = "before") -> tuple[float, ...]:
        """Tokens per second of every pass of one side, "before" or "after"; `phase` is "prefill" or "decode"."""
        return tuple(rate for run in getattr(self, side) for rate in run.points(f"{phase}_tokens_per_second"))

    def rate(self, phase: str, side: str = "before") -> float:
        """The median of `rates`."""
        return median(self.rates(phase, side))

    def ratios(self, phase: str) -> tuple[float, ...]:
        """Rate after over rate before, pair by pair."""
        pairs = zip(self.rates(phase, "before"), self.rates(phase, "after"), strict=True)
        return tuple(after / before for before, after in pairs)

    def ratio(self, phase: str) -> float:
        """The median of `ratios`: above 1 the change is faster."""
        return median(self.ratios(phase))

    def interval(self, phase: str) -> tuple[float, float] | None:
        """The 95 % interval of `ratio`; None for fewer than six pairs."""
        return median_interval(self.ratios(phase))

    def verdict(self, phase: str) -> str:
        """Whether the change is "faster" or "slower", or "no difference found", by `statistics.verdict`."""
        return verdict(self.interval(phase))

    def text(self, phase: str) -> str:
        """`1.02 (0.99 to 1.05), no difference found`: ratio, interval and verdict."""
        return ratio_text(self.ratio(phase), self.interval(phase))

    def compact(self) -> Paired:
        """The same passes in one run for each side, which makes a small record."""
        return replace(self, before=(_joined(self.before),), after=(_joined(self.after),))


def ratio_text(ratio: float, interval: tuple[float, float]) -> str:
    """`1.02 (0.99 to 1.05), no difference found`."""
    low, high = interval
    return f"{ratio:.3g} ({low:.3g} to {high:.3g}), {verdict(interval)}"


def _joined(runs: Sequence[Run]) -> Run:
    passes = tuple(replace(one, began=None) for run in runs for one in run.passes)
    return replace(runs[0], passes=passes, warmups=(), load={}, text=None, settled=None)


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

    Give one setting twice for the A/A control. Raises InvalidSettings for fewer than six pairs, which have no interval.
    """

    def once(side: int) -> Run:
        return measure(model, (before, after)[side], n_prompt, n_gen, repeats=1, engine=engine, progress=False)

    require_enough(n_pairs)
    return Paired(*in_pairs(once, n_pairs))


def measure_surroundings(
    model: str | Path | None,
    settings: tuple[Settings, Settings],
    surroundings: tuple[Surrounding, Surrounding],
    engines: tuple[Engine, Engine],
    n_pairs: int = N_PAIRS,
    n_prompt: int = 128,
    n_gen: int = 32,
) -> Paired:
    """Measure two engines that stay open, each in its surrounding, in `n_pairs` pairs, in alternating order.

    The neighbor of a surrounding runs only beside that side. A pass of the prompt warms up before each counted one.
    Raises InvalidSettings for fewer than six pairs, and what `measure_in_turns` raises.
    """

    def once(side: int) -> Run:
        with surroundings[side].neighbor():
            chosen = [settings[side]]
            return measure_in_turns(model, chosen, n_prompt, n_gen, 1, engines[side], progress=False)[0]

    require_enough(n_pairs)
    return Paired(*in_pairs(once, n_pairs), surroundings)


def require_enough(n_pairs: int) -> None:
    """Raise InvalidSettings for fewer than six pairs, which have no interval."""
    if n_pairs < ENOUGH:
        raise InvalidSettings(f"{n_pairs} pairs have no interval. Ask for {ENOUGH} or more.")


def in_pairs(once: Callable[[int], Run], n_pairs: int) -> tuple[tuple[Run, ...], tuple[Run, ...]]:
    """The runs of side 0 and of side 1, of which each begins every other pair."""
    runs: tuple[list[Run], list[Run]] = ([], [])
    for number in range(n_pairs):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            runs[side].append(once(side))
    return tuple(runs[0]), tuple(runs[1])
