"""Statistics of measured points: a line, the interval of a median, two sides in pairs, the sign test, which of two
values fits, and the ratio of two groups of values with its interval.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import comb, floor, sqrt
from statistics import correlation, linear_regression, median

ENOUGH = 6
CONFIDENCE = 0.95
FASTER, SLOWER, UNDECIDED = "faster", "slower", "no difference found"
MOST_EXACT, MOST_RATIOS = 20, 50
NORMAL_QUANTILE = 1.959964


@dataclass(frozen=True)
class StraightLine:
    """y = intercept + slope * x; r_squared is 1 for points on the line, None below three points or for equal y."""

    intercept: float
    slope: float
    r_squared: float | None

    def at(self, x: float) -> float:
        """The line's y."""
        return self.intercept + self.slope * x


def least_squares(x: Sequence[float], y: Sequence[float]) -> StraightLine:
    """The line with the smallest sum of squared differences in y; r_squared is 1 - sum (y - line)^2 / sum (y - mean)^2.

    Raises ValueError for fewer than two points, and for points that all have the same x.
    """
    slope, intercept = linear_regression(x, y)
    return StraightLine(intercept, slope, correlation(x, y) ** 2 if len(x) > 2 and len(set(y)) > 1 else None)


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Between which two of the values their true median lies with at least 95 %; None for fewer than six values.

        from the (k + 1)th smallest to the (k + 1)th largest, for the largest k with 2 P(at most k heads) <= 5 %

    with as many fair coins as there are values (Conover 1999, section 3.2). It assumes independent values, each as
    likely above the median as below, and nothing about their distribution. The least and the greatest of six values
    hold the median with 96.9 %, those of five with 93.8 %; so six are the fewest that have an interval.
    """
    n = len(values)
    if n < ENOUGH:
        return None
    ordered, left_out, beyond = sorted(values), 0, 1
    while 2 * (beyond + comb(n, left_out + 1)) / 2**n <= 1 - CONFIDENCE:
        left_out += 1
        beyond += comb(n, left_out)
    return ordered[left_out], ordered[n - 1 - left_out]


def verdict(interval: tuple[float, float] | None) -> str:
    """What the 95 % interval of a ratio of rates says: FASTER, SLOWER, or UNDECIDED where it contains 1 or is None.

    This is the one rule for measurements in pairs. With the interval of `median_interval` it is the two-sided sign test
    at 95 %: FASTER needs six of six pairs above 1, nine of ten, twelve of fifteen, or fifteen of twenty.
    The test is exact for independent pairs, whatever their noise. What meets both sides of a pair cancels, and a pair
    with one disturbed side counts as one, however far off it is. A ratio of 1 counts for neither.
    """
    low, high = interval or (1, 1)
    return FASTER if low > 1 else SLOWER if high < 1 else UNDECIDED


@dataclass(frozen=True)
class Comparison:
    """Pairs of rates, as the ratio of each pair: above 1 where the second side is faster."""

    ratios: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return median(self.ratios)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `ratio`; None for fewer than six pairs."""
        return median_interval(self.ratios)

    @property
    def ends(self) -> tuple[float, float]:
        """Those of the interval; where there is none, both are the ratio."""
        return self.interval or (self.ratio, self.ratio)

    @property
    def verdict(self) -> str:
        """What the interval says, by `verdict`."""
        return verdict(self.interval)

    @property
    def range_text(self) -> str:
        """`1.02 (0.99 to 1.05)`: ratio and interval; the ratio alone where there is none."""
        if self.interval is None:
            return f"{self.ratio:.3g}"
        return "{:.3g} ({:.3g} to {:.3g})".format(self.ratio, *self.interval)

    @property
    def text(self) -> str:
        """`1.02 (0.99 to 1.05), no difference found`: ratio, interval and verdict."""
        return f"{self.range_text}, {self.verdict}"


def compared(first: Iterable[float], second: Iterable[float]) -> Comparison:
    """The rates of the second side over those of the first, pair by pair; of seconds, give the second side first."""
    return Comparison(tuple(b / a for a, b in zip(first, second, strict=True)))


def sign_confidence(differences: Sequence[float]) -> float | None:
    """Confidence that positive and negative `differences` are not equally likely: 1 minus the p-value of the sign test.

    Exact and two-sided (Conover 1999, section 3.4): p is twice the probability, for n fair coins, of at least as many
    heads as the more frequent sign has, and at most 1. Differences of 0 are left out; None if all are 0.
    The test assumes nothing about the distribution: five of five give 0.938, six of six 0.969, nine of ten 0.979, and
    so does one of ten; five of ten give 0.
    """
    signs = [difference > 0 for difference in differences if difference]
    if not signs:
        return None
    more = max(sum(signs), len(signs) - sum(signs))
    by_chance = sum(comb(len(signs), k) for k in range(more, len(signs) + 1)) / 2 ** len(signs)
    return 1 - min(1.0, 2 * by_chance)


def ratio_interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, tuple[float, float] | None]:
    """How many times as large the values of `second` are as those of `first`, and its 95 % interval; all above 0.

    The median of all ratios of a value of one group to a value of the other, and between which of these ratios the
    true factor lies (Hodges and Lehmann 1963, on logarithms): the interval belongs to the rank-sum test (Conover 1999,
    section 5.1). It assumes independent values whose distributions differ by a factor alone, of whatever shape.
    The count is exact for up to 20 values in each group, above by the normal approximation. The interval is None where
    no 95 % interval exists, such as for three values each, and for more than 50 values in a group.
    """
    if max(len(first), len(second)) > MOST_RATIOS:
        return median(second) / median(first), None
    ratios = sorted(b / a for a in first for b in second)
    cut = _rank_sum_cut(len(first), len(second))
    return median(ratios), (ratios[cut], ratios[-1 - cut]) if cut >= 0 else None


@cache
def _rank_sum_cut(n: int, m: int) -> int:
    """How many of the n * m ratios lie outside each end of the interval; -1 where even all of them are too few."""
    if max(n, m) > MOST_EXACT:
        return floor(n * m / 2 - NORMAL_QUANTILE * sqrt(n * m * (n + m + 1) / 12))
    tail, ways = comb(n + m, n) * (1 - CONFIDENCE) / 2, _rank_sums(n, m)
    cut, below = -1, 0
    while below + ways[cut + 1] <= tail:
        cut += 1
        below += ways[cut]
    return cut


def _rank_sums(n: int, m: int) -> list[int]:
    """In how many orders of n and m values u of the n * m pairs have the second value below, for each u."""
    ways = [[1] + [0] * (n * m) if size == 0 else [0] * (n * m + 1) for size in range(n + 1)]
    for place in range(n + m):
        for size in range(min(place + 1, n), 0, -1):
            rank = place - size + 1
            for u in range(n * m, rank - 1, -1):
                ways[size][u] += ways[size - 1][u - rank]
    return ways[n]


def which_of_two(points: Sequence[float], expected: Mapping[str, float]) -> str | None:
    """The name of that of two expected values which is nearer to the median of `points`.

    None if the points cannot tell the two apart: they scatter, or their median lies off the nearer value, by at least
    as much as the two values differ. All in one unit.
    """
    middle = median(points)
    (name, nearer), (_, other) = sorted(expected.items(), key=lambda item: abs(item[1] - middle))
    off = max(max(points) - min(points), abs(middle - nearer))
    return name if off < abs(other - nearer) else None


def nonnegative_fit(terms: Sequence[Sequence[float]], values: Sequence[float]) -> list[float]:
    """The coefficients x >= 0 for which terms . x is nearest to the values, by relative error.

        min over x >= 0 of sum (terms_i . x / values_i - 1)^2

    `terms` has a row for each value; a value must not be 0. Lawson and Hanson's algorithm (scipy.optimize.nnls).
    """
    import numpy as np
    from scipy.optimize import nnls

    rows = np.asarray(terms, float) / np.asarray(values, float)[:, None]
    sizes = np.abs(rows).max(axis=0)
    sizes[sizes == 0] = 1.0
    coefficients, _ = nnls(rows / sizes, np.ones(len(rows)))
    return [float(x) for x in coefficients / sizes]
