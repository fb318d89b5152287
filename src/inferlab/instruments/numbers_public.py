"""A reader's tests beside public results of the same card and model: sentences, cells, and what to look at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from inferlab.instruments.log_view import cut
from inferlab.instruments.numbers_text import MOST_ROWS, folded, listing, more
from inferlab.instruments.planner_speed import HOW_JUDGED, whose
from inferlab.instruments.views import element, paragraph
from inferlab.results.against_public import ABOVE, BELOW, AgainstPublic
from inferlab.results.public_rates import PublicRate
from inferlab.units import count_text, number_text, rate_text

Compared = AgainstPublic | str
SUSPECTS = {
    "cache": "The cache lies in RAM, as no_kv_offload says.",
    "layers": "Layers or experts lie in RAM: the file does not say that all lie on the card.",
    "host": "The RAM is slower than that of the published results, or other programs use it.",
    "spilled": "The card was full, perhaps by other programs: some drivers then use RAM without an error.",
    "power": "The card has less power than its rating: a limit, a battery, or a laptop whose maker gives it less.",
    "build": "The build of llama.cpp is an old one.",
    "backend": "Another backend than the card's usual one computed it: the file does not name its backend.",
    "flash": "Flash attention is off, or the file does not say that it is on: the deeper a test, the more that costs.",
    "others": "Another program used the card, such as a browser or a second model.",
    "heat": "The card became hot and lowered its clock.",
}
"""What explains a rate below its band; `AgainstPublic.suspects` has the names."""
FASTER = (
    "The card is another one, or was chosen wrongly.",
    "It runs faster than its rating: overclocked memory, or a variant of the same name.",
    "The build of llama.cpp is newer than those of the published results.",
    "The file reads fewer bytes than its type says, or several tokens were made at once by a draft model.",
)
RECENT = 2025.75
"""Year of a build from which on a public result counts as one of the last year."""


def first_sentences(compared: Iterable[Compared]) -> list[Any]:
    """A paragraph about the first decode and one about the first prompt that are compared."""
    tests = [one for one in compared if isinstance(one, AgainstPublic)]
    firsts = (next((one for one in tests if one.result.is_decode is decode), None) for decode in (True, False))
    return [paragraph(told_of(one)) for one in firsts if one]


def told_of(one: AgainstPublic) -> str:
    """A test beside public results and beside what is expected, in one or two sentences."""
    result, expected = one.result, one.expected
    told = f"{result.test} of {cut(result.source)}: {rate_text(result.rate)}, {beside_text(one)}."
    if expected is None:
        return told
    if not expected.is_told:
        return f"{told} Of such a test {expected.text}."
    return f"{told} Expected is {expected.text}: the rate lies {one.place} that."


def beside_text(one: AgainstPublic) -> str:
    """`12 % below the median of 9 public results on this card with this model in Q4_K_M`."""
    here = f"on this card with this model in {one.type}"
    if one.alike:
        several = f"the median of {count_text(len(one.alike), 'public result')}"
        old = "" if max(row.year for row in one.alike) > RECENT else ", by builds of which none is of the last year"
        return f"{_share_text(one)} {several if len(one.alike) > 1 else 'the one public result'} {here}{old}"
    return f"and none of the public results is such a test {here}{_nearest_text(one)}"


def _share_text(one: AgainstPublic) -> str:
    """`12 % below`, or `at` where the share rounds to 0."""
    percent = round(100 * (one.result.rate / one.median - 1)) if one.median else 0
    return f"{abs(percent):,}\u00a0% {'above' if percent > 0 else 'below'}" if percent else "at"


def _nearest_text(one: AgainstPublic) -> str:
    differing, rows = one.nearest
    if not rows:
        return ""
    rates = sorted(row.rate for row in rows)
    texts = dict.fromkeys(number_text(rate) for rate in (rates[0], rates[-1]))
    return f"; nearest: {len(rows)} with {' and '.join(differing)}, {' to '.join(texts)} tokens/s"


def public_cell(compared: Compared) -> str:
    """What the table says of public results."""
    if isinstance(compared, str):
        return f"none: {compared}"
    if compared.median is None:
        return f"none{_nearest_text(compared)}"
    return f"{_share_text(compared)} {number_text(compared.median)} ({count_text(len(compared.alike), 'result')})"


def expected_cell(compared: Compared) -> str:
    """What the table says of the model of the card."""
    if isinstance(compared, str) or not compared.expected:
        return ""
    expected = compared.expected
    return f"{number_text(expected.rate)}, {expected.range_text}: {compared.place}"


def reasons(compared: Iterable[Compared], is_above_bound: bool) -> list[list[Any] | None]:
    """What to look at where rates lie below what is expected, and what it may mean where some lie above it.

    is_above_bound  whether a rate lies above its bound, which has reasons of its own
    """
    tests = [one for one in compared if isinstance(one, AgainstPublic)]
    open_ones = {name for one in tests if one.place == BELOW for name in one.suspects}
    above = any(one.place == ABOVE for one in tests) and not is_above_bound
    return [
        listing(
            "What to look at below the expected rate", [text for name, text in SUSPECTS.items() if name in open_ones]
        ),
        listing("Why a rate may lie above the expected one", FASTER if above else ()),
    ]


def about_public(compared: Sequence[Compared]) -> list[Any] | None:
    """What "expected" means, and the public rows that are compared, each with its address, behind a fold."""
    tests = [one for one in compared if isinstance(one, AgainstPublic)]
    rows = [*dict.fromkeys(row for one in tests for row in one.nearest[1])]
    if not tests:
        return None
    return element(
        "div",
        {},
        paragraph(
            "Expected is what the model of a card makes of bytes, operations and published results, with the band of "
            "its errors: ",
            HOW_JUDGED,
            ".",
        ),
        folded(
            "public",
            f"{count_text(len(rows), 'public result')} beside these tests",
            element("ul", {}, *map(_row, rows[:MOST_ROWS])),
            more(len(rows) - MOST_ROWS, "result"),
        )
        if rows
        else None,
    )


def _row(row: PublicRate) -> list[Any]:
    """A public result in words, with a link to where it stands."""
    said = [
        row.test,
        f"{row.model} {row.type}",
        row.in_ram_text,
        row.backend,
        row.build and f"build {row.build}",
        row.date,
    ]
    return element("li", {}, f"{rate_text(row.rate)}: {', '.join(filter(None, said))}, by ", whose(row))
