"""A search for better settings: its rounds, and its final paired comparison. Time of a token over the host's layers."""

from __future__ import annotations

from statistics import median
from textwrap import wrap

import plotly.graph_objects as go

from inferlab.figures.style import (
    DECODE,
    EDGE,
    GREY,
    TEAL,
    blank,
    dashed_line,
    heading,
    line,
    points,
    value_text,
    y_from_zero,
)
from inferlab.measurement.base import common_badge
from inferlab.measurement.sweep import Sweep
from inferlab.measurement.tune import Candidate, Tuning
from inferlab.statistics import least_squares
from inferlab.units import count_text


def host_layers(sweep: Sweep, n_layer: int) -> go.Figure:
    """Time of a token over the layers left on the host, with the straight line through the medians, and its rate.

    The line is fitted to 1 to n_layer layers; with none or all of them no pass is divided, so there it is dotted. The
    rate, on the right axis, is 1000 divided by the line.
    """
    runs = {max(0, n_layer + 1 - p.changes["n_gpu_layers"]): p.run for p in sweep.points if p.run}
    runs = dict(sorted(runs.items()))
    times = {left: [1000 / rate for rate in run.points("decode_tokens_per_second")] for left, run in runs.items()}
    middle = {left: median(ms) for left, ms in times.items()}
    divided = {left: ms for left, ms in middle.items() if 1 <= left <= n_layer}
    fit = least_squares(list(divided), list(divided.values()))
    figure = blank(
        common_badge(list(runs.values())),
        "Time of a token: "
        + ", ".join(f"{count_text(left, 'layer')} on the host {ms:.1f} ms" for left, ms in middle.items())
        + f"; line: {fit.intercept:.1f} ms and {fit.slope:.2f} ms for each layer.",
        x="layers on the host, output layer counted",
        y="ms a token",
    )
    points(figure, [(left, each) for left, ms in times.items() for each in ms], "ms a token", DECODE)
    fitted = [(left, fit.at(left)) for left in range(1, n_layer + 1)]
    line(figure, fitted, "straight line", DECODE, marks=False)
    for inner, outer in ((1, 0), (n_layer, n_layer + 1)):
        dashed_line(figure, [(left, fit.at(left)) for left in (inner, outer)], "not divided", DECODE, "dot")
        figure.data[-1].showlegend = False
    figure.add_scatter(
        x=[left for left, _ in fitted],
        y=[1000 / ms for _, ms in fitted],
        name="its rate",
        yaxis="y2",
        mode="lines",
        line={"color": GREY, "dash": "dot"},
        hovertemplate="%{x}: %{y:.1f} tokens/s<extra></extra>",
    )
    second = {
        "title": "tokens/s",
        "overlaying": "y",
        "side": "right",
        "rangemode": "tozero",
        "showgrid": False,
        "tickmode": "auto",
        "nticks": 5,
    }
    figure.update_layout(showlegend=True, yaxis2=second, margin_r=60)
    y_from_zero(figure)
    return figure


def tuning_rounds(tuning: Tuning) -> go.Figure:
    """Median seconds of every candidate in each round; a thick line for the settings before the search."""
    figure = blank(
        tuning.badge,
        f"A search in {count_text(len(tuning.rounds), 'round')} over "
        f"{count_text(len(tuning.rounds[0]), 'candidate')}: "
        + "; ".join(_round_text(index, candidates) for index, candidates in enumerate(tuning.rounds, 1))
        + ".",
        x="round",
        y=f"seconds for {tuning.n_prompt} + {tuning.n_gen} tokens",
    )
    for candidate in tuning.rounds[0]:
        own = [
            (index, again)
            for index, candidates in enumerate(tuning.rounds, 1)
            for again in candidates
            if again.changes == candidate.changes and again.seconds
        ]
        _candidate_line(figure, own)
    figure.update_xaxes(dtick=1, range=[0.7, len(tuning.rounds) + 0.3])
    y_from_zero(figure)
    return figure


def _candidate_line(figure: go.Figure, own: list[tuple[int, Candidate]]) -> None:
    if not own:
        return
    changes = own[0][1].changes
    name = ", ".join(f"{key}={value_text(value)}" for key, value in changes.items()) or "as it was"
    figure.add_scatter(
        x=[index for index, _ in own],
        y=[candidate.median_seconds for _, candidate in own],
        name=name,
        mode="lines+markers",
        line={"color": TEAL if changes else GREY, "width": 1.5 if changes else 3},
        marker={"size": 8},
        opacity=0.8 if changes else 1,
        hovertemplate=f"{name}: %{{y:.3f}} s<extra>round %{{x}}</extra>",
    )


def _round_text(index: int, candidates: tuple[Candidate, ...]) -> str:
    seconds = [candidate.median_seconds for candidate in candidates if candidate.seconds]
    span = f"{min(seconds):.3f} to {max(seconds):.3f} s" if seconds else "nothing measured"
    return f"round {index}, {len(candidates)} candidates, {span}"


def tuning_pairs(tuning: Tuning) -> go.Figure:
    """Speed of the winner relative to the settings before, in each pair, and the verdict; the band is an interval.

    Without pairs the verdict alone is written.
    """
    ratios = tuning.compared.ratios
    if not ratios:
        return _verdict_alone(tuning)
    figure = blank(tuning.badge, tuning.verdict, x="pair", y="times as fast")
    if tuning.compared.interval:
        low, high = tuning.compared.interval
        figure.add_hrect(low, high, fillcolor=TEAL, opacity=0.15, line_width=0)
    figure.add_scatter(
        x=list(range(1, len(ratios) + 1)),
        y=ratios,
        mode="markers",
        marker={"size": 11, "color": TEAL},
        hovertemplate="pair %{x}: %{y:.3f} times as fast<extra></extra>",
    )
    figure.add_hline(1, line={"color": EDGE, "dash": "dot"})
    heading(figure, f"{tuning.finding}: {tuning.measured}")
    figure.update_xaxes(dtick=1)
    return figure


def _verdict_alone(tuning: Tuning) -> go.Figure:
    figure = blank(tuning.badge, tuning.verdict)
    text = "<br>".join(wrap(tuning.verdict, 40, break_on_hyphens=False))
    figure.add_scatter(x=[0], y=[0], text=[text], mode="text", textfont={"size": 14}, hoverinfo="skip")
    figure.update_layout(height=240, xaxis_visible=False, yaxis_visible=False)
    return figure
