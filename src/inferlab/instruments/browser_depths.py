"""How the rates of a browser's run change with depth: each depth against the least one, for prefill and for decode."""

from __future__ import annotations

from inferlab.instruments.browser_run import BrowserRun
from inferlab.statistics import ratio_interval
from inferlab.units import count_text, factor_text

PHASES = ("Prefill", "Decode")
Factor = tuple[float, tuple[float, float] | None]
"""How many times the rate of the least depth, and the 95 % interval of this factor where one exists."""


def tests_in(run: BrowserRun, place: int) -> list[tuple[int, int, int]]:
    """The tests of one phase, from the least depth on."""
    return run.plan.tests[place :: len(PHASES)]


def against_least(run: BrowserRun, place: int) -> dict[int, Factor]:
    """The factor of each other depth in one phase."""
    first, *others = (run.samples[test] for test in tests_in(run, place))
    factors = [ratio_interval(nanoseconds, first) for nanoseconds in others]
    return dict(zip(run.plan.depths[1:], factors, strict=True))


def compared_text(factor: Factor) -> str:
    """`0.574 (0.531 to 0.602)`, or the number alone where no interval exists."""
    ratio, interval = factor
    return f"{factor_text(ratio)} ({' to '.join(map(factor_text, interval))})" if interval else factor_text(ratio)


def depths_summary(run: BrowserRun) -> str:
    """What the greatest depth changes against the least one, in a sentence; nothing of a single depth."""
    if len(run.plan.depths) == 1:
        return ""
    factors = [against_least(run, place)[run.plan.depths[-1]] for place in range(len(PHASES))]
    known = [(phase.lower(), ratio, ends) for phase, (ratio, ends) in zip(PHASES, factors, strict=True) if ends]
    if len(known) < len(PHASES):
        return f"With {count_text(run.plan.repeats, 'repetition')}, a difference between depths may be chance."
    changes = [_change(*factor) for factor in known]
    return f"Against depth {run.plan.depths[0]:,}, at depth {run.plan.depths[-1]:,} {'; '.join(changes)}."


def _change(phase: str, ratio: float, interval: tuple[float, float]) -> str:
    low, high = interval
    if low <= 1 <= high:
        return f"{phase} is open ({factor_text(low)} to {factor_text(high)} times)"
    return f"{phase} is {factor_text(ratio)} times as fast"


def how_compared(run: BrowserRun) -> str:
    """How the columns of factors are read; for a run with several depths."""
    column = f"The column against depth {run.plan.depths[0]:,} says how many times as fast a depth is"
    if against_least(run, 0)[run.plan.depths[-1]][1] is None:
        return f"{column}; for a 95\N{NO-BREAK SPACE}% interval there are too few repetitions."
    return (
        f"{column}, with the 95\N{NO-BREAK SPACE}% interval: where it contains 1, it is open which depth is faster. "
        "An interval is that of one run; on a busier or warmer machine the next run can lie outside."
    )
