"""The axis of a figure of rates."""

from __future__ import annotations

from math import floor, log10

MOST_TICKS = 5
BEYOND = 1.03
"""An axis ends above the largest value by at least this factor, so that a mark there is whole."""
STEPS = (1, 2, 5, 10)
"""Of a power of ten: the distances that ticks may have."""


def axis_ticks(highest: float) -> list[float]:
    """0 and multiples of 1, 2 or 5 times a power of ten, at most MOST_TICKS to `highest` and one above it."""
    power = 10.0 ** floor(log10(highest / MOST_TICKS))
    step = next(n * power for n in STEPS if n * power * MOST_TICKS >= highest * BEYOND or n == STEPS[-1])
    return [step * n for n in range(floor(highest * BEYOND / step) + 2)]
