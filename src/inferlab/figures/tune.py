"""A search for better settings: the candidates of each round, and the final paired comparison."""

from __future__ import annotations

from textwrap import wrap

import plotly.graph_objects as go

from inferlab.figures.style import EDGE, GREY, TEAL, blank, heading, value_text, y_from_zero
from inferlab.measurement.tune import Candidate, Tuning
from inferlab.units import count_text


def tuning_rounds(found: Tuning) -> go.Figure:
    """Median seconds of every candidate in each round; a thick line for the settings before the search."""
    figure = blank(
        found.badge,
        f"A search in {count_text(len(found.rounds), 'round')} over "
        f"{count_text(len(found.rounds[0]), 'candidate')}: "
        + "; ".join(_round_text(index, one) for index, one in enumerate(found.rounds, 1))
        + ".",
        x="round",
        y=f"seconds for {found.n_prompt} + {found.n_gen} tokens",
    )
    for candidate in found.rounds[0]:
        own = [(index, one) for index, many in enumerate(found.rounds, 1) for one in many if _same(one, candidate)]
        _candidate_line(figure, [(index, one) for index, one in own if one.seconds])
    figure.update_xaxes(dtick=1, range=[0.7, len(found.rounds) + 0.3])
    y_from_zero(figure)
    return figure


def _candidate_line(figure: go.Figure, own: list[tuple[int, Candidate]]) -> None:
    if not own:
        return
    changes = own[0][1].changes
    name = ", ".join(f"{key}={value_text(value)}" for key, value in changes.items()) or "as it was"
    figure.add_scatter(
        x=[index for index, _ in own],
        y=[one.median_seconds for _, one in own],
        name=name,
        mode="lines+markers",
        line={"color": TEAL if changes else GREY, "width": 1.5 if changes else 3},
        marker={"size": 8},
        opacity=0.8 if changes else 1,
        hovertemplate=f"{name}: %{{y:.3f}} s<extra>round %{{x}}</extra>",
    )


def _same(one: Candidate, other: Candidate) -> bool:
    return one.changes == other.changes


def _round_text(index: int, candidates: tuple[Candidate, ...]) -> str:
    seconds = [one.median_seconds for one in candidates if one.seconds]
    span = f"{min(seconds):.3f} to {max(seconds):.3f} s" if seconds else "nothing measured"
    return f"round {index}, {len(candidates)} candidates, {span}"


def tuning_pairs(found: Tuning) -> go.Figure:
    """Speed of the winner relative to the settings before, in each pair, and the verdict; the band is an interval.

    Without pairs the verdict alone is written.
    """
    ratios = [pair.ratio for pair in found.pairs]
    if not ratios:
        return _verdict_alone(found)
    figure = blank(found.badge, found.verdict, x="pair", y="times as fast")
    if found.interval:
        low, high = found.interval
        figure.add_hrect(low, high, fillcolor=TEAL, opacity=0.15, line_width=0)
    figure.add_scatter(
        x=list(range(1, len(ratios) + 1)),
        y=ratios,
        mode="markers",
        marker={"size": 11, "color": TEAL},
        hovertemplate="pair %{x}: %{y:.3f} times as fast<extra></extra>",
    )
    figure.add_hline(1, line={"color": EDGE, "dash": "dot"})
    heading(figure, f"{found.finding}: {found.measured}")
    figure.update_xaxes(dtick=1)
    return figure


def _verdict_alone(found: Tuning) -> go.Figure:
    figure = blank(found.badge, found.verdict)
    text = "<br>".join(wrap(found.verdict, 40, break_on_hyphens=False))
    figure.add_scatter(x=[0], y=[0], text=[text], mode="text", textfont={"size": 14}, hoverinfo="skip")
    figure.update_layout(height=240, xaxis_visible=False, yaxis_visible=False)
    return figure
