"""Time of a token against the number of KV cache cells that attention reads for it.

llama.cpp plans a pass for the cells in use, rounded up to a multiple of 256 (llama-kv-cache.cpp, get_n_kv). Without
flash attention it reads all of them, so that decode time grows in 256-cell steps: tokens within one step cost the
same, and the next step costs what 256 more cells cost. With flash attention a CPU skips those not in use
(ops.cpp:8969), and the time also grows within a step; tokens at the end of each step then are the ones to compare.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from inferlab.engine.protocol import Pass
from inferlab.measurement.depth import DepthScaling
from inferlab.measurement.run import Run
from inferlab.model.ggml_types import padded
from inferlab.statistics import least_squares


@dataclass(frozen=True)
class CellLine:
    """Seconds of a token as a straight line in the number of cells: seconds + seconds_per_cell * n_cells."""

    seconds: float
    seconds_per_cell: float

    def at(self, n_cells: float) -> float:
        """Seconds of a token for which attention reads `n_cells`."""
        return self.seconds + self.seconds_per_cell * n_cells


def steps(passes: Sequence[Pass], n_prompt: int) -> dict[int, tuple[float, ...]]:
    """Engine time of every decoded token of all passes, by the cells that attention read for it."""
    by_cells: dict[int, list[float]] = {}
    for pass_ in passes:
        for index, seconds in enumerate(pass_.decode_seconds, n_prompt + 1):
            by_cells.setdefault(padded(index), []).append(seconds)
    return {cells: tuple(by_cells[cells]) for cells in sorted(by_cells)}


def levels(*measured: Run | DepthScaling) -> dict[int, float]:
    """Seconds of an undisturbed token in each 256-cell step: the tenth percentile over all passes of all that is given.

    Disturbances, such as another program or an interrupt, only make tokens longer.
    """
    all_seconds: dict[int, list[float]] = {}
    for measurement in measured:
        by_cells = (
            measurement.seconds
            if isinstance(measurement, DepthScaling)
            else steps(measurement.passes, measurement.n_prompt)
        )
        for cells, seconds in by_cells.items():
            all_seconds.setdefault(cells, []).extend(seconds)
    return {cells: sorted(all_seconds[cells])[len(all_seconds[cells]) // 10] for cells in sorted(all_seconds)}


def line(level: Mapping[int, float]) -> CellLine:
    """The least-squares line through the levels of two or more 256-cell steps."""
    fit = least_squares(list(level), list(level.values()))
    return CellLine(fit.intercept, fit.slope)
