"""Time of a token against the cells of the KV cache that it looks at.

llama.cpp looks at the cells in use, rounded up to a multiple of 256 (llama-kv-cache.cpp, get_n_kv), so decode climbs
a stair: tokens on one tread cost the same, and the height of a step is what 256 more cells cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferlab.engine.protocol import Pass
from inferlab.measurement.run import Run
from inferlab.model.ggml_types import padded
from inferlab.statistics import least_squares


@dataclass(frozen=True)
class Line:
    """A straight line through levels of treads: seconds without cells, seconds for each cell, and how well it fits.

    r_squared is 1 for levels that lie on the line, and None for fewer than three of them.
    """

    seconds: float
    seconds_per_cell: float
    r_squared: float | None

    def at(self, n_cells: float) -> float:
        """Seconds of a token that looks at `n_cells`."""
        return self.seconds + self.seconds_per_cell * n_cells


def steps(passes: Sequence[Pass], n_prompt: int) -> dict[int, tuple[float, ...]]:
    """Engine time of every decoded token of all passes, by the cells that it looked at."""
    found: dict[int, list[float]] = {}
    for one in passes:
        for index, seconds in enumerate(one.decode_seconds, n_prompt + 1):
            found.setdefault(padded(index), []).append(seconds)
    return {cells: tuple(found[cells]) for cells in sorted(found)}


def levels(*runs: Run) -> dict[int, float]:
    """Seconds of an undisturbed token on each tread, over all passes of all runs: their tenth percentile.

    What disturbs a token, another program or an interrupt, only ever makes it longer.
    """
    every: dict[int, list[float]] = {}
    for run in runs:
        for cells, seconds in steps(run.passes, run.n_prompt).items():
            every.setdefault(cells, []).extend(seconds)
    return {cells: sorted(every[cells])[len(every[cells]) // 10] for cells in sorted(every)}


def line(level: Mapping[int, float]) -> Line:
    """The least-squares line through the levels of two treads or more."""
    fit = least_squares(list(level), list(level.values()))
    return Line(fit.intercept, fit.slope, fit.r_squared)
