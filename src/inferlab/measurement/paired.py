"""Two settings or two surroundings compared in interleaved pairs, and the control that every such comparison needs.

The control is a side compared with itself. The two runs of a pair follow each other, in alternating order, so that a
slow minute of the machine meets both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from inferlab.engine.protocol import Engine
from inferlab.errors import InvalidSettings
from inferlab.machine import CpuState
from inferlab.measurement.run import Run, measure, measure_in_turns
from inferlab.measurement.surroundings import Surrounding
from inferlab.measurement.turns import in_turns
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.statistics import ENOUGH, Comparison, compared
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
        return title, [(phase, self.compared(phase).text) for phase in ("prefill", "decode")]

    def rates(self, phase: str, side: str = "before") -> tuple[float, ...]:
        """Tokens per second of every pass of one side, "before" or "after"; `phase` is "prefill" or "decode"."""
        return tuple(rate for run in getattr(self, side) for rate in run.points(f"{phase}_tokens_per_second"))

    def rate(self, phase: str, side: str = "before") -> float:
        """The median of `rates`."""
        return median(self.rates(phase, side))

    def compared(self, phase: str) -> Comparison:
        """Rate after over rate before, pair by pair: a ratio above 1 says that the change is faster."""
        return compared(self.rates(phase, "before"), self.rates(phase, "after"))

    def compact(self) -> Paired:
        """The same passes in one run for each side, which makes a small record."""
        return replace(self, before=(_joined(self.before),), after=(_joined(self.after),))


def _joined(runs: Sequence[Run]) -> Run:
    passes = tuple(replace(pass_, began=None) for run in runs for pass_ in run.passes)
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
    first, second = in_turns(once, (0, 1), range(n_pairs))
    return Paired(first, second)


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
    first, second = in_turns(once, (0, 1), range(n_pairs))
    return Paired(first, second, surroundings)


def require_enough(n_pairs: int) -> None:
    """Raise InvalidSettings for fewer than six pairs, which have no interval."""
    if n_pairs < ENOUGH:
        raise InvalidSettings(f"{n_pairs} pairs have no interval. Ask for {ENOUGH} or more.")
