"""Two runs against each other: tests of the same model and workload, as ratios; what has no partner is listed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.results.result import NOT_NAMED, PART, Result, printed
from inferlab.statistics import (
    CONFIDENCE,
    FASTER,
    MOST_RATIOS,
    SLOWER,
    UNDECIDED,
    ratio_interval,
    sign_confidence,
    verdict,
)

GROUPS: dict[str, Callable[[Result], tuple[Any, ...]]] = {
    "run": lambda test: (test.source, test.machine, test.backend, test.build, *sorted(test.settings.items())),
    "file": lambda test: (test.source,),
    "machine": lambda test: (test.machine, test.backend),
    "build": lambda test: (test.build,),
    "settings": lambda test: tuple(sorted(test.settings.items())),
}
"""What may be compared: tests that agree in all of it belong together."""
PARTS = {
    "cpu": "processor",
    "gpu": "GPU",
    "backend": "backend",
    "build": "build",
    "file": "model file",
    "model_bytes": "bytes of the weights",
}
"""Fields of a test beside its settings in which two tests may differ, and what they are called."""
MOST_INTERVALS = 100
Weights = Callable[[Result], int | str | None]
"""How many weights the model of a test has, or is taken to have."""


@dataclass(frozen=True)
class ResultPair:
    """Two tests of the same workload; `ratio` is how many times as fast the second is.

    interval  95 %, as `statistics.ratio_interval` has it; without one `ratio` is that of the two rates
    lacking   why there is no interval; "" with one
    """

    first: Result
    second: Result
    ratio: float
    interval: tuple[float, float] | None
    lacking: str = ""

    @property
    def faster(self) -> int | None:
        """1 or 2, whichever the whole interval says; 0 where it contains 1 and leaves it open, None without one."""
        if self.interval is None:
            return None
        return {FASTER: 2, SLOWER: 1, UNDECIDED: 0}[verdict(self.interval)]

    @property
    def differing(self) -> dict[str, tuple[str, str]]:
        """Everything in which the two differ, and with which values; "" where one does not name it."""
        values = [
            {**{name: _text(getattr(result, part)) for part, name in PARTS.items()}, **result.settings}
            for result in (self.first, self.second)
        ]
        names = dict.fromkeys(name for side in values for name in side)
        both = {
            name: (values[0].get(name, ""), values[1].get(name, "")) for name in names if self._is_told(name, values)
        }
        return {name: (first, second) for name, (first, second) in both.items() if first != second}

    def _is_told(self, name: str, values: Sequence[Mapping[str, str]]) -> bool:
        """Whether a difference can be one: beside another form, a table leaves out what is usual, and rounds sizes."""
        if self.first.from_table == self.second.from_table:
            return True
        table = values[0] if self.first.from_table else values[1]
        return name != PARTS["model_bytes"] and bool(table.get(name))


@dataclass(frozen=True)
class ResultPairs:
    """All pairs of two groups of tests, and the tests without a partner, each with the reason."""

    pairs: tuple[ResultPair, ...]
    alone: tuple[tuple[Result, str], ...]

    def only(self, decode: bool) -> ResultPairs:
        """The pairs that timed generated tokens alone, or all others: the two kinds are never put together."""
        return ResultPairs(tuple(pair for pair in self.pairs if pair.first.is_decode is decode), ())

    @property
    def median_ratio(self) -> float:
        """The median of the pairs' ratios by their logarithms, so that it turns with them; there must be a pair."""
        return exp(median(log(pair.ratio) for pair in self.pairs))

    def n_decided(self, faster: int | None) -> int:
        """Pairs of which `ResultPair.faster` says this."""
        return sum(pair.faster == faster for pair in self.pairs)

    @property
    def faster(self) -> int | None:
        """1 or 2 where more than half of the pairs say so; None without any interval, and else 0: it is open."""
        if self.n_decided(None) == len(self.pairs):
            return None
        return next((side for side in (1, 2) if 2 * self.n_decided(side) > len(self.pairs)), 0)

    @property
    def confidence(self) -> float | None:
        """Of the sign test over the pairs that are not open: that the first and the second are not equally often ahead.

        None where even pairs that all agree are too few to reach CONFIDENCE.
        """
        signs = [1.0] * self.n_decided(2) + [-1.0] * self.n_decided(1)
        attainable = sign_confidence([1.0] * len(signs)) or 0
        return sign_confidence(signs) if attainable >= CONFIDENCE else None


def groups(results: Iterable[Result], by: str) -> list[list[Result]]:
    """The tests in groups, in the order of their first tests; `by` is a name of GROUPS."""
    grouped: dict[Any, list[Result]] = {}
    for result in results:
        grouped.setdefault(GROUPS[by](result), []).append(result)
    return [*grouped.values()]


def compare(first: Sequence[Result], second: Sequence[Result]) -> ResultPairs:
    """Pairs of tests with the same model, type and tokens. Raises InvalidSettings if a group is empty.

    Where a group has several tests of one workload, those with equal settings are paired, one with one; of the others
    those whose settings agree as far as both groups name them, unless that fits several. The rest stays alone.
    """
    if not first or not second:
        raise InvalidSettings("There is nothing to compare: one of the two has no test.")
    weights = _weights((*first, *second))
    sides = [_by_workload(group, weights) for group in (first, second)]
    matched, alone = [], []
    for workload in dict.fromkeys([*sides[0], *sides[1]]):
        partners, rest = _told_apart(*_matched(*(side.get(workload, []) for side in sides)))
        matched += partners
        alone += rest
    pairs = tuple(_pair(*partners, n < MOST_INTERVALS) for n, partners in enumerate(matched))
    return ResultPairs(pairs, tuple(alone))


def _weights(results: Sequence[Result]) -> Weights:
    """The number of a test's weights, rounded where a test comes from a table.

    A test that does not name it has that of the others of its model, if they have one.
    """
    rounded = any(result.from_table for result in results)
    named: dict[str, set[int | str]] = {}
    for result in results:
        if result.n_params:
            named.setdefault(result.model, set()).add(printed(result.n_params) if rounded else result.n_params)

    def weights(result: Result) -> int | str | None:
        if result.n_params:
            return printed(result.n_params) if rounded else result.n_params
        of_model = named.get(result.model, set())
        return next(iter(of_model)) if len(of_model) == 1 else None

    return weights


def _by_workload(results: Iterable[Result], weights: Weights) -> dict[Any, list[Result]]:
    """The tests by what two must share."""
    grouped: dict[Any, list[Result]] = {}
    for result in results:
        grouped.setdefault((*result.bare_workload, weights(result)), []).append(result)
    return grouped


def _matched(first: list[Result], second: list[Result]) -> tuple[list[tuple[Result, Result]], list[tuple[Result, str]]]:
    """Pairs among tests of one workload, and the others with the reason."""
    if not first or not second:
        return [], [(result, "the other has no test of this model and workload") for result in first + second]
    if len(first) == len(second) == 1:
        return [(first[0], second[0])], []
    pairs, first, second = _with_equal(first, second, _names(first) | _names(second))
    more, first, second = _with_equal(first, second, _names(first) & _names(second))
    reason = "several tests of this workload, and none with the same settings is left"
    return pairs + more, [(left, reason) for left in first + second]


def _names(results: Iterable[Result]) -> set[str]:
    return {name for result in results for name in result.settings}


def _with_equal(
    first: list[Result], second: list[Result], names: set[str]
) -> tuple[list[tuple[Result, Result]], list[Result], list[Result]]:
    """Pairs of tests that agree in the settings of these names, and what is left of the two.

    Tests of one side that agree in them, but not in all, have no partner.
    """
    sides: list[dict[Any, list[Result]]] = [{}, {}]
    for side, results in zip(sides, (first, second), strict=True):
        for result in results:
            shared = frozenset(item for item in result.settings.items() if item[0] in names)
            side.setdefault(shared, []).append(result)
    pairs: list[tuple[Result, Result]] = []
    for settings, partners in sides[0].items():
        both = partners, sides[1].get(settings, [])
        if all(len({*map(GROUPS["settings"], group)}) == 1 for group in both):
            pairs += zip(*both, strict=False)
    paired = {id(result) for pair in pairs for result in pair}
    left = [[result for result in results if id(result) not in paired] for results in (first, second)]
    return pairs, left[0], left[1]


def _told_apart(
    pairs: list[tuple[Result, Result]], rest: list[tuple[Result, str]]
) -> tuple[list[tuple[Result, Result]], list[tuple[Result, str]]]:
    """The pairs without those of parts of one text that name no model: such a page often has several."""
    unsure = [pair for pair in pairs if pair[0].model == NOT_NAMED and _are_parts(*pair)]
    reason = "no model is named, and the parts of one text may be of several"
    return [pair for pair in pairs if pair not in unsure], rest + [(test, reason) for pair in unsure for test in pair]


def _are_parts(first: Result, second: Result) -> bool:
    """Whether two tests stand in different parts of one text."""
    texts = [test.source.rpartition(PART)[0] for test in (first, second)]
    return texts[0] == texts[1] != "" and first.source != second.source


def _text(value: str | int | None) -> str:
    return f"{value:,}" if isinstance(value, int) else value or ""


def _pair(first: Result, second: Result, with_interval: bool) -> ResultPair:
    lacking = _lacking(first, second, with_interval)
    if not lacking:
        ratio, interval = ratio_interval(first.samples, second.samples)
        if interval:
            return ResultPair(first, second, ratio, interval)
        lacking = "too few repetitions for a 95\u00a0% interval"
    return ResultPair(first, second, second.rate / first.rate, None, lacking)


def _lacking(first: Result, second: Result, with_interval: bool) -> str:
    """Why no interval is computed, or ""."""
    if not first.samples or not second.samples:
        return "a file does not list the repetitions"
    if max(len(first.samples), len(second.samples)) > MOST_RATIOS:
        return f"more than {MOST_RATIOS} repetitions"
    return "" if with_interval else f"only the first {MOST_INTERVALS} pairs have one"
