"""Two of a reader's results against each other: the choice of the two, and how many times as fast the faster one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import count
from typing import Any

from inferlab.instruments import forms
from inferlab.instruments.log_view import cut
from inferlab.instruments.numbers_text import (
    LONG,
    MOST_ROWS,
    folded,
    listing,
    machine_text,
    model_text,
    more,
    named,
    value_text,
    varying,
)
from inferlab.instruments.views import element, paragraph, table
from inferlab.results.compare import PARTS, ResultPair, ResultPairs
from inferlab.results.result import Result
from inferlab.statistics import ratio_interval
from inferlab.units import count_text, factor_text, rate_text

MOST_GROUPS, MOST_OPEN, MOST_BESIDE, SHORT = 20, 4, 4, 40
"""Groups that are listed, pairs that are not folded, other differences and characters of a title in a sentence."""
PLACES = ("first", "second")
OWN = {"machine": ("processor", "GPU", "backend"), "build": ("build",)}
"""What is compared by a name of `compare.GROUPS`; by "settings" it is everything that `PARTS` does not name."""
KINDS = {"Decode": (True, "decodes"), "Prompts": (False, "reads prompts")}
"""Name of a kind of tests -> whether it is decode, and its verb."""


@dataclass(frozen=True)
class Groups:
    """The tests of a reader in groups by a name of `compare.GROUPS`, and the two that are compared, from 1."""

    by: str
    tests: list[list[Result]]
    chosen: tuple[int, int]
    comparison: ResultPairs | None

    @cached_property
    def titles(self) -> list[str]:
        """What tells each group apart: of its file, machine, build and settings those that differ among the groups."""
        parts, kept = self._parts, self._differing
        own = [[text for place, text in enumerate(texts) if place in kept and text] for texts in parts]
        return [cut("; ".join(told), LONG) or cut(texts[0]) for told, texts in zip(own, parts, strict=True)]

    @property
    def shared(self) -> str:
        """The parts in which all groups agree; empty where there are no two."""
        if len(self.tests) < 2:
            return ""
        first, differing = self._parts[0], self._differing
        return "; ".join(text for place, text in enumerate(first) if place not in differing and text)

    @cached_property
    def _parts(self) -> list[list[str]]:
        several = varying(result for group in self.tests for result in group)
        return [_parts(group[0], self.by, several) for group in self.tests]

    @cached_property
    def _differing(self) -> set[int]:
        return {place for place, texts in enumerate(zip(*self._parts, strict=True)) if len(set(texts)) > 1}

    def names(self) -> tuple[str, str]:
        """The two that are compared, for a sentence: `number 2 (fast.json)`."""
        places = zip(*self._parts, strict=True)
        alone = next((texts for texts in places if len({*texts}) == len(texts) and all(texts)), self.titles)
        first, second = (_name(number, alone[number - 1]) for number in self.chosen)
        return first, second


def _parts(result: Result, by: str, several: Sequence[str]) -> list[str]:
    settings = ", ".join(named(result, several))
    build = f"build {value_text(result.build)}"
    return {
        "run": [cut(result.source), machine_text(result.machine), cut(result.backend), build, settings],
        "file": [cut(result.source)],
        "machine": [machine_text(result.machine), cut(result.backend)],
        "build": [build],
        "settings": [settings or "the same settings in all"],
    }[by]


def _name(number: int, title: str) -> str:
    return f"number {number} ({title})" if len(title) <= SHORT else f"number {number}"


# --- how many times as fast ------------------------------------------------------------------------------


def ratios_text(groups: Groups) -> str:
    """`Number 2 (fast.json) decodes 1.82 times as fast as number 1 (slow.json).`, or the same of prompts."""
    if not groups.comparison:
        return ""
    names = groups.names()
    for name, (decode, verb) in KINDS.items():
        comparison = groups.comparison.only(decode)
        if comparison.pairs:
            told = verdict(comparison, *names, verb)
            told = _sentence(f"{told}." if comparison.faster else f"{name}: {told}.")
            return f"{told} {beside_text(groups.by, comparison)}".rstrip()
    return _sentence(f"{names[0]} and {names[1]} have no test in common.")


def verdict(comparison: ResultPairs, first: str, second: str, verb: str = "is") -> str:
    """Pairs of one kind in a sentence: `b is 3.5 times as fast as a`, or that this is open, or has no interval.

    The faster one comes first, so that its factor is at least 1. Where none is, the second is held against the first.
    """
    several = " in the median" if len(comparison.pairs) > 1 else ""
    if comparison.faster:
        faster, slower = (second, first) if comparison.faster == 2 else (first, second)
        ratio = comparison.median_ratio if comparison.faster == 2 else 1 / comparison.median_ratio
        return f"{faster} {verb} {factor_text(ratio)} times as fast as {slower}{several}"
    if comparison.faster is None:
        factor = factor_text(comparison.median_ratio)
        return f"{second} at {factor} times the rate of {first}{several}, without an interval"
    return f"open; {second} at {_range_text(*_range(comparison))} times the rate of {first}"


def beside_text(by: str, comparison: ResultPairs) -> str:
    """`They differ in processor and build, too.`: what else may be the cause; nothing of whole runs and files."""
    if by in ("run", "file"):
        return ""
    names = dict.fromkeys(name for pair in comparison.pairs for name in pair.differing)
    is_own = OWN[by].__contains__ if by in OWN else lambda name: name not in PARTS.values()
    others = [name for name in names if not is_own(name)]
    rest = [count_text(len(others) - MOST_BESIDE, "more setting")] * (len(others) > MOST_BESIDE)
    told = [*others[:MOST_BESIDE], *rest]
    return f"They differ in {' and '.join(filter(None, (', '.join(told[:-1]), told[-1])))}, too." if told else ""


def _range(comparison: ResultPairs) -> tuple[float, float]:
    """Between what the second over the first lies: the ends of all intervals, and factors without one."""
    ends = [end for pair in comparison.pairs for end in pair.interval or (pair.ratio,)]
    return min(ends), max(ends)


def _range_text(low: float, high: float) -> str:
    return " to ".join(dict.fromkeys(map(factor_text, (low, high))))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# --- the view --------------------------------------------------------------------------------------------


def pairs_view(groups: Groups, names_of_groups: Mapping[str, str]) -> list[Any]:
    """Which groups there are with the choice of two, and the two as ratios; `names_of_groups` are the choices."""
    return element(
        "section",
        {"class": "instrument-comparison"},
        element("h2", {}, "Two against each other"),
        _choice(groups, names_of_groups),
        more(len(groups.tests) - MOST_GROUPS, "group"),
        paragraph(f"The same in all: {groups.shared}.") if groups.shared else None,
        *(_compared(groups, groups.comparison) if groups.comparison else [_nothing(groups)]),
    )


def _choice(groups: Groups, names_of_groups: Mapping[str, str]) -> list[Any]:
    """The groups, each with a button for the first and for the second place."""
    by = forms.select("by", [*names_of_groups.items()], groups.by, "compare-by")
    rows = [
        [f"{number}: {title} ({count_text(len(group), 'test')})", _places(number, title, groups.chosen)]
        for number, (title, group) in enumerate(zip(groups.titles, groups.tests, strict=True), 1)
    ][:MOST_GROUPS]
    return element(
        "fieldset",
        {"disabled": True, "class": "instrument-choice"},
        forms.field("Compare", by),
        table(["What", "Compare it"], rows),
    )


def _places(number: int, title: str, chosen: tuple[int, int]) -> list[Any]:
    """Whether a group is the first or the second of the two."""
    return element(
        "span",
        {"class": "instrument-places"},
        *(
            forms.radio(place, str(number), f"as {place}", chosen[n] == number, f"Compare {title} as {place}")
            for n, place in enumerate(PLACES)
        ),
    )


def _nothing(groups: Groups) -> list[Any]:
    if len(groups.tests) == 1:
        return paragraph("There is one so far. Add another file, or compare something else.")
    return paragraph(f"Number {groups.chosen[0]} is chosen as first and as second. Choose two different ones.")


def _compared(groups: Groups, comparison: ResultPairs) -> list[Any]:
    numbers = [f"Number {number}" for number in groups.chosen]
    heads = ["Test", *numbers, "Result", "95\u00a0% interval", "What differs"]
    rows = [_pair(pair, *numbers) for pair in comparison.pairs[:MOST_ROWS]]
    alone = [f"{test.source}, {model_text(test)}, {test.test}: {reason}." for test, reason in comparison.alone]
    return [
        *_verdict(groups.by, comparison, *groups.names()),
        *_pairs_table(heads, rows),
        more(len(comparison.pairs) - MOST_ROWS, "pair"),
        _about_ratios() if rows else None,
        listing("Tests without a partner", alone),
    ]


def _pairs_table(heads: list[str], rows: list[list[str]]) -> list[Any]:
    """The pairs, folded where they are many; nothing without one."""
    shown = [table(heads, rows)] if rows else []
    return shown if len(rows) <= MOST_OPEN else [folded("pairs", f"Each of {len(rows)} pairs", *shown)]


def _verdict(by: str, comparison: ResultPairs, first: str, second: str) -> list[Any]:
    if not comparison.pairs:
        return [paragraph("No test of one has a partner in the other: the same model, type and numbers of tokens.")]
    kinds = {name: comparison.only(decode) for name, (decode, _) in KINDS.items()}
    beside = beside_text(by, comparison)
    shown = [_pooled(name, kind, first, second) for name, kind in kinds.items() if kind.pairs]
    return [*shown, paragraph(beside)] if beside else shown


def _pooled(name: str, comparison: ResultPairs, first: str, second: str) -> list[Any]:
    """One kind of tests: the result; of several, how many decide for whom and whether so many may be by chance."""
    strong = element("strong", {}, f"{name}: {verdict(comparison, first, second)}.")
    counted = [f" {_counted(comparison, first, second)}"] if len(comparison.pairs) > 1 else []
    return paragraph(strong, *counted)


def _counted(comparison: ResultPairs, first: str, second: str) -> str:
    """`Of 7 matched tests: number 2 is faster in 6; open in 1.`, and the sign test where it can decide."""
    words = {2: f"{second} is faster", 1: f"{first} is faster", 0: "open", None: "without an interval"}
    told = "; ".join(f"{text} in {n}" for kind, text in words.items() if (n := comparison.n_decided(kind)))
    sure = comparison.confidence
    sign = f" By the sign test, that is no accident with {100 * sure:.0f}\u00a0% confidence." if sure else ""
    return f"Of {count_text(len(comparison.pairs), 'matched test')}: {told}.{sign}"


def _pair(pair: ResultPair, first: str, second: str) -> list[str]:
    """A row of the table; factor and interval are those of the faster one, or of the second where none is."""
    turned = pair.faster == 1
    faster, slower = (first, second) if turned else (second, first)
    ratio = factor_text(1 / pair.ratio if turned else pair.ratio)
    results = {None: f"{faster} at {ratio} times the rate", 0: "open"}
    low, high = sorted(1 / end if turned else end for end in pair.interval or (1, 1))
    return [
        f"{model_text(pair.first)}, {pair.first.test}",
        rate_text(pair.first.rate),
        rate_text(pair.second.rate),
        results.get(pair.faster, f"{faster}, {ratio} times as fast"),
        pair.lacking or f"{faster} at {_range_text(low, high)} times {slower.lower()}",
        _differing_text(pair) or "none",
    ]


def _differing_text(pair: ResultPair) -> str:
    """Every difference by its name, with both values as long as there is space for them."""
    told, names = "", [*pair.differing]
    while names and len(told) < LONG:
        first, second = pair.differing[names[0]]
        told += f"{'; ' if told else ''}{names.pop(0)}: {value_text(first)} and {value_text(second)}"
    return told + (f"; also {', '.join(names)}" if names else "")


def _about_ratios() -> list[Any]:
    return folded(
        "ratios",
        "How the factors and intervals are computed",
        paragraph(
            "The factor of a test is the median of all ratios of a repetition of one to a repetition of the "
            "other. With equally many repetitions of each, a 95\u00a0% interval takes at least "
            f"{_least_each()}."
        ),
        paragraph(
            "An interval that contains 1 leaves open which of the two is faster. Without an interval the factor "
            "is the ratio of the two rates, and says nothing about chance."
        ),
        paragraph(
            "Repetitions of one file follow each other on one machine, so they are no independent pairs: an "
            "interval holds for those minutes, and not for another day."
        ),
    )


@cache
def _least_each() -> int:
    """Repetitions of each of two tests from which there is an interval."""
    return next(n for n in count(1) if ratio_interval([1.0] * n, [1.0] * n)[1])
