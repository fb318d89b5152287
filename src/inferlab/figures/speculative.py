"""Speculative decoding: where its time goes, and speed-up against the acceptance rate."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, EDGE, PURPLE, SERIES_COLOURS, TEAL, blank, line, points, stacked, y_from_zero
from inferlab.measurement.base import common_badge
from inferlab.measurement.speculative import Speculation, VerifyCost

DRAFT = PURPLE


def speculation_seconds(found: Mapping[str, Speculation]) -> go.Figure:
    """Milliseconds of one answer: plain decode beside drafting and verification; medians of the passes."""
    names = [f"{name}, {'drafted' if drafted else 'plain'}" for name in found for drafted in (False, True)]
    text = "; ".join(
        f"{name}: {_share_text(one.acceptance)} accepted, {one.tokens_per_round:.2f} tokens a pass, "
        f"{one.speedup:.2f} times as fast"
        for name, one in found.items()
    )
    figure = blank(next(iter(found.values())).badge, f"Speculative decoding. {text}.", x="milliseconds")
    plain = [value for one in found.values() for value in (1e3 * median(one.plain_seconds), 0)]
    checks = [value for one in found.values() for value in (0, _part_ms(one, "check_seconds"))]
    drafts = [value for one in found.values() for value in (0, _part_ms(one, "draft_seconds"))]
    for name, values, colour in (
        ("one token a pass", plain, DECODE), ("checks", checks, TEAL), ("proposals", drafts, DRAFT)
    ):  # fmt: skip
        figure.add_bar(
            y=names, x=values, name=name, orientation="h", marker_color=colour,
            hovertemplate=f"{name}: %{{x:.1f}} ms<extra>%{{y}}</extra>",
        )  # fmt: skip
    stacked(figure, len(names))
    return figure


def _part_ms(one: Speculation, of: str) -> float:
    return 1e3 * median(sum(getattr(r, of) for r in rounds) for rounds in one.rounds)


def _share_text(value: float | None) -> str:
    return "nothing to be" if value is None else f"{100 * value:.0f} %"


def speedup_against_acceptance(
    found: Mapping[float, Speculation], costs: Mapping[str, VerifyCost], n_draft: int
) -> go.Figure:
    """Speed-up against the acceptance rate: measured passes as points, expectations from verification costs as lines.

    found    a measurement by its acceptance rate, 0 to 1
    costs    verification costs by name
    n_draft  proposed tokens a pass
    """
    rates = [at / 20 for at in range(21)]
    text = "; ".join(f"{100 * rate:.0f} % hits: {one.speedup:.2f}" for rate, one in found.items())
    badge = next(iter(found.values())).badge
    alt = f"Speed-up with {n_draft} proposals a pass. Measured, {text}."
    figure = blank(badge, alt, x="chance that a proposal is right, %", y="times as fast")
    for (name, one), colour in zip(costs.items(), SERIES_COLOURS, strict=False):
        expected = [(100 * rate, one.speedup(rate, n_draft)) for rate in rates]
        line(figure, expected, f"expected: {name}", colour, marks=False)
    points(figure, [(100 * rate, s) for rate, one in found.items() for s in one.speedups], "measured", TEAL)
    figure.add_hline(1, line={"color": EDGE, "dash": "dot"})
    figure.update_layout(showlegend=True)
    y_from_zero(figure)
    return figure


def verification_costs(costs: Mapping[str, VerifyCost]) -> go.Figure:
    """Cost of a pass over n tokens against n, with 95 % intervals, and the line of n single passes.

    costs  verification costs by name; on or above the line a draft of n - 1 tokens can gain nothing
    """
    sizes = sorted({n for one in costs.values() for n in one.seconds})
    said = "; ".join(
        f"{name}: {', '.join(f'{n} tokens {one.cost(n):.2f}' for n in sorted(one.seconds) if n > 1)}"
        for name, one in costs.items()
    )
    badge = common_badge(list(costs.values()))
    figure = blank(badge, f"Cost of a pass in passes over one token. {said}.", x="tokens in the pass", y="cost")
    for (name, one), colour in zip(costs.items(), SERIES_COLOURS, strict=False):
        line(figure, [(n, one.cost(n)) for n in sorted(one.seconds)], name, colour)
        figure.data[-1].error_y = _interval_bars(one)
    line(figure, [(n, n) for n in sizes], "n single passes", EDGE, marks=False)
    figure.update_layout(showlegend=True)
    y_from_zero(figure)
    return figure


def _interval_bars(one: VerifyCost) -> dict:
    """Bars from the cost to the ends of its interval; none where there is no interval."""
    ends = [(one.cost(n), *(one.interval(n) or (one.cost(n),) * 2)) for n in sorted(one.seconds)]
    return {"array": [high - cost for cost, _, high in ends], "arrayminus": [cost - low for cost, low, _ in ends]}
