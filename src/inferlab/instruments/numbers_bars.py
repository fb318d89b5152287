"""Decode rates as bars: a reader's tests by model, those of the atlas below them, and the bound of the card.

Places are in percent of the width, so that texts and lines keep their sizes on every screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from inferlab.instruments.axis import axis_ticks
from inferlab.instruments.numbers_text import machine_text, model_text, more, varying, where
from inferlab.instruments.views import element, paragraph
from inferlab.results.atlas import Known, same_model
from inferlab.results.bound import Bound
from inferlab.results.result import Result
from inferlab.units import number_text, rate_text

MOST_BARS, MOST_KNOWN, MOST_MODELS = 12, 4, 6
KEY = {"own": "yours", "known": "the atlas", "bound": "bound: rated bandwidth over the bytes of a token"}
Bounded = tuple[Result, Bound | str]


def bars_view(bounds: Iterable[Bounded], known: Sequence[Known]) -> list[Any] | None:
    """The decode tests with their bounds, by model; beside the tests of the atlas where it has any of that model."""
    models: dict[Any, list[Bounded]] = {}
    for result, bound in bounds:
        models.setdefault((result.model, result.n_params), []).append((result, bound))
    if not models:
        return None
    shown = [(tests, _beside(tests, known)) for tests in [*models.values()][:MOST_MODELS]]
    has_known, has_bound = any(beside for _, beside in shown), any(map(_rates_of_bounds, models.values()))
    drawn = {"own": has_known or has_bound, "known": has_known, "bound": has_bound}
    return element(
        "section",
        {"class": "instrument-rates"},
        element("h2", {}, "Decode beside the atlas" if has_known else "Decode"),
        _key([kind for kind, is_drawn in drawn.items() if is_drawn]),
        *(part for tests, beside in shown for part in _of_model(tests, beside)),
        more(len(models) - MOST_MODELS, "model"),
    )


def _beside(tests: Sequence[Bounded], known: Sequence[Known]) -> list[Result]:
    """The tests of the atlas of the same model, the fastest first."""
    own = [result for result, _ in tests]
    beside = [test.result for test in same_model(known, own[0]) if test.result not in own]
    return sorted(beside, key=lambda result: result.rate, reverse=True)


def _rates_of_bounds(tests: Iterable[Bounded]) -> list[float]:
    return [bound.rate for _, bound in tests if isinstance(bound, Bound)]


def _of_model(tests: Sequence[Bounded], beside: Sequence[Result]) -> list[Any]:
    shown = _spread(beside, MOST_KNOWN)
    drawn = tests[:MOST_BARS]
    every = [*(result for result, _ in drawn), *shown]
    machines, settings = {result.machine for result in every}, varying(result for result, _ in tests)
    several = len(machines) > 1
    ticks = axis_ticks(max([result.rate for result in every] + _rates_of_bounds(drawn)))
    return [
        paragraph(element("strong", {}, model_text(every[0])), None if several else f" on {machine_text(*machines)}"),
        *(_bar(where(result, settings, several), result.rate, bound, ticks, "own") for result, bound in drawn),
        *(_bar(where(result, (), several), result.rate, "", ticks, "known") for result in shown),
        _axis(ticks),
        more(len(tests) - MOST_BARS, "test"),
        _about_atlas(beside, shown),
    ]


def _spread(several: Sequence[Result], most: int) -> list[Result]:
    """At most so many of them, from the first to the last at equal distances."""
    if len(several) <= most:
        return [*several]
    return [several[round(n * (len(several) - 1) / (most - 1))] for n in range(most)]


def _about_atlas(beside: Sequence[Result], shown: Sequence[Result]) -> list[Any]:
    if not beside:
        return paragraph("The atlas has no decode rate of this model in this type to stand beside.")
    if len(beside) == len(shown):
        return paragraph("The atlas has no more decode rates of this model in this type.")
    return paragraph(f"Of {len(beside)} decode rates in the atlas of this model in this type, {len(shown)} are shown.")


# --- what is drawn ---------------------------------------------------------------------------------------


def _percent(rate: float, ticks: Sequence[float]) -> str:
    return f"{100 * rate / ticks[-1]:.2f}%"


def _bar(name: str, rate: float, bound: Bound | str, ticks: Sequence[float], kind: str) -> list[Any]:
    limit = bound.rate if isinstance(bound, Bound) else None
    text = f"{name}: {rate_text(rate)}" + (f", bound {number_text(limit)}" if limit else "")
    top, height = ("40%", "60%") if limit else ("0", "100%")
    bar = element("rect", {"class": kind, "x": "0", "y": top, "width": _percent(rate, ticks), "height": height})
    drawing = {"class": "bounded" if limit else None, "aria-hidden": "true"}
    drawn = [*_grid(ticks), bar, *(_mark(limit, ticks) if limit else [])]
    return element("div", {"class": "instrument-bar"}, element("span", {}, text), element("svg", drawing, *drawn))


def _grid(ticks: Sequence[float]) -> list[Any]:
    places = (_percent(tick, ticks) for tick in ticks[1:-1])
    return [element("line", {"class": "grid", "x1": x, "x2": x, "y1": "0", "y2": "100%"}) for x in places]


def _mark(rate: float, ticks: Sequence[float]) -> list[Any]:
    """The line of a bound, with a rim that parts it from any bar, and its name on the side with more space."""
    x, before = _percent(rate, ticks), rate > ticks[-1] / 2
    ends = {"x1": x, "x2": x, "y1": "0", "y2": "100%"}
    beside = f"{100 * rate / ticks[-1] + (-1.5 if before else 1.5):.2f}%"
    name = element("text", {"class": "before" if before else "after", "x": beside, "y": "29%"}, "bound")
    return [element("line", {"class": kind, **ends}) for kind in ("rim", "bound")] + [name]


def _axis(ticks: Sequence[float]) -> list[Any]:
    """Numbers below the bars, and their unit."""
    sides = ["first", *["middle"] * (len(ticks) - 2), "last"]
    texts = (
        element("text", {"class": side, "x": _percent(tick, ticks), "y": "40%"}, f"{tick:,.6g}")
        for side, tick in zip(sides, ticks, strict=True)
    )
    unit = element("text", {"class": "middle", "x": "50%", "y": "92%"}, "tokens/s")
    return element("svg", {"class": "instrument-axis", "aria-hidden": "true"}, *texts, unit)


def _key(kinds: Sequence[str]) -> list[Any] | None:
    """What the colours of the bars mean; None where there is but one kind."""
    box = {"x": 0, "y": 0, "width": 10, "height": 10}
    entries = [
        element(
            "li",
            {},
            element("svg", {"viewBox": "0 0 10 10", "aria-hidden": "true"}, element("rect", {**box, "class": kind})),
            KEY[kind],
        )
        for kind in kinds
    ]
    return element("ul", {"class": "instrument-key"}, *entries) if entries else None
