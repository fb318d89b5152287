"""How sure a median is: a bootstrap interval, where there are enough points for one."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

ENOUGH = 10
CONFIDENCE = 0.95
RESAMPLES = 9999
SEED = 4096


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The bootstrap 95 % interval of the median, in the unit of `values`; None below ten of them.

    Below ten values the interval of a median is hardly narrower than their range, so the range is shown instead.
    Percentile method (Efron 1979) with a fixed seed: the same values always give the same interval.
    """
    if len(values) < ENOUGH:
        return None
    import numpy as np
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.asarray(values, float),),
        np.median,
        confidence_level=CONFIDENCE,
        n_resamples=RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    return float(found.low), float(found.high)


def sign_confidence(differences: Sequence[float]) -> float | None:
    """1 minus the chance that at least so many of `differences` were positive if either sign were as likely.

    The exact sign test, one-sided (Conover 1999, section 3.4); differences of 0 are left out. None without any other.
    It asks nothing of the distribution: five of five give 0.969, nine of ten 0.989, five of ten 0.377.
    """
    signs = [difference > 0 for difference in differences if difference]
    if not signs:
        return None
    by_chance = sum(comb(len(signs), k) for k in range(sum(signs), len(signs) + 1))
    return 1 - by_chance / 2 ** len(signs)
