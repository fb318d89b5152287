"""How sure a median is: a bootstrap interval, where there are enough points for one."""

from __future__ import annotations

from collections.abc import Sequence

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
