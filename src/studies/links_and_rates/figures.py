"""The ladder of link rates, rooflines, and rates of prefill and decode against the number of tokens in a pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, EDGE, GREY, LOG_DECADES, LOG_MARKS, PREFILL, TEAL, blank, line, points
from inferlab.machine import Ceiling
from inferlab.measurement.base import common_badge
from inferlab.measurement.run import Run
from inferlab.prediction.link_rates import Rung
from inferlab.units import GB
from studies.links_and_rates.roofline import Achieved, kernel_of

MARKS = {False: ("cited", "diamond-open", GREY), True: ("measured", "circle", TEAL)}
ROW_PIXELS = 21
MARGIN = 0.25  # of a decade beyond the outer rungs


def link_ladder(rungs: Sequence[Rung], badge: str) -> go.Figure:
    """Rungs in GB/s, the fastest on top; cited ones are open diamonds, measured ones, of the badge, filled circles."""
    rates = {rung: rung.bytes_per_second / GB for rung in sorted(rungs, key=lambda rung: rung.bytes_per_second)}
    text = "; ".join(f"{rung.name} {rate:.3g}, {MARKS[rung.measured][0]}" for rung, rate in rates.items())
    figure = blank(badge, f"Rates of links and memories in GB/s, from the slowest: {text}.", x="GB/s")
    for measured, (name, symbol, colour) in MARKS.items():
        own = {rung.name: rate for rung, rate in rates.items() if rung.measured is measured}
        figure.add_scatter(
            x=list(own.values()),
            y=list(own),
            name=name,
            mode="markers",
            marker={"symbol": symbol, "color": colour, "size": 10, "line": {"width": 2}},
            hovertemplate="%{y}: %{x:.3g} GB/s<extra>" + name + "</extra>",
        )
    names, (least, *_, most) = [rung.name for rung in rates], map(log10, rates.values())
    figure.update_layout(showlegend=True, height=180 + ROW_PIXELS * len(names))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names, dtick=1, gridcolor=EDGE)
    figure.update_xaxes(type="log", tickvals=LOG_DECADES, range=[least - MARGIN, most + MARGIN])
    return figure


SYMBOLS = ("diamond", "square", "triangle-up", "cross")
DASHES = ("solid", "dash", "dot", "dashdot")
UNDER_THE_ROOFS = {"orientation": "v", "x": 1, "xanchor": "right", "y": 0, "yanchor": "bottom"}
"""The legend of the roofs: many operations a byte at a low rate are nobody's point."""


def roofline(
    ceiling: Ceiling, points: Sequence[tuple[str, float, float]], types: Sequence[str], badge: str
) -> go.Figure:
    """A device's roofs, and what was achieved under them.

    points  (name, FLOP per byte read, FLOP per second) of each measurement; `speed.intensity` counts the first
    types   whose matrix roofs to draw
    """
    alt = (
        f"Roofline of {ceiling.device}: memory roof {ceiling.bandwidth_bytes_per_second / 1e9:.3g} GB/s, ridges at "
        + ", ".join(f"{ceiling.ridge(type):.3g} FLOP per byte for {roof_name(ceiling, type)}" for type in types)
        + f"; {len(points)} measured points."
    )
    figure = blank(badge, alt, "FLOP per byte read", "GFLOP per second")
    most = 4 * max([ceiling.ridge(type) for type in types] + [x for _, x, _ in points])
    for type, dash in zip(types, DASHES, strict=False):
        name = roof_name(ceiling, type)
        line(figure, _roof(ceiling, type, most), name, GREY, marks=False)
        hover = f"{name}: %{{x:.3g}} FLOP/byte, %{{y:.4g}} GFLOP/s"
        figure.data[-1].update(line_dash=dash, opacity=0.7, hovertemplate=hover)
    names, x, y = zip(*points, strict=True)
    figure.add_scatter(
        x=x,
        y=[rate / 1e9 for rate in y],
        text=names,
        name="measured",
        mode="markers",
        marker={"color": [DECODE if name.startswith("decode") else PREFILL for name in names], "size": 9},
        showlegend=False,
        hovertemplate="%{text}: %{x:.3g} FLOP/byte, %{y:.4g} GFLOP/s",
    )
    figure.update_layout(showlegend=True, legend=UNDER_THE_ROOFS)
    figure.update_xaxes(type="log", tickvals=LOG_DECADES, minor={"tickvals": LOG_MARKS, "ticks": "outside"})
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure


def roof_name(ceiling: Ceiling, type: str) -> str:
    """The type of the weights and, on a CPU, the kernel that multiplied them."""
    return ", ".join(filter(None, (type, kernel_of(ceiling, type))))


def _roof(ceiling: Ceiling, type: str, most: float) -> list[tuple[float, float]]:
    """Three corners: the memory roof from half a FLOP per byte to the ridge, the matrix roof from there."""
    least, ridge, flat = 0.5, ceiling.ridge(type), ceiling.matrix_flops_per_second[type] / 1e9
    return [(least, least * ceiling.bandwidth_bytes_per_second / 1e9), (ridge, flat), (max(most, 2 * ridge), flat)]


def rates_against_length(series: Mapping[str, Sequence[Run]], ridges: Mapping[str, float]) -> go.Figure:
    """Prefill rate against prompt length on two logarithmic axes, a line for each series, every pass a point.

    ridges  tokens from which arithmetic takes longer than reading: a vertical line each
    Decode is one token at a time: its rate, of the shortest prompt of each series, stands at one.
    """
    every = [run for runs in series.values() for run in runs]
    text = [
        f"{name}: " + ", ".join(f"{run.n_prompt} tokens at {run.prefill_tokens_per_second:.3g}" for run in runs)
        for name, runs in series.items()
    ]
    text += [f"the ridge for {name} lies at {tokens:.3g} tokens" for name, tokens in ridges.items()]
    alt = f"Prefill in tokens per second against the length of the prompt. {'; '.join(text)}."
    figure = blank(common_badge(every), alt, "tokens in the prompt", "tokens per second")
    for (name, runs), dash, symbol in zip(series.items(), DASHES, SYMBOLS, strict=False):
        runs = sorted(runs, key=lambda run: run.n_prompt)
        passes = [(run.n_prompt, rate) for run in runs for rate in run.points("prefill_tokens_per_second")]
        points(figure, passes, "every pass", PREFILL)
        figure.data[-1].update(showlegend=False, hoverinfo="skip", hovertemplate=None)
        line(figure, [(run.n_prompt, run.prefill_tokens_per_second) for run in runs], f"prefill, {name}", PREFILL)
        figure.data[-1].update(line_dash=dash, marker_symbol=symbol)
        for decode in [run.decode_tokens_per_second for run in runs if run.decode_tokens_per_second][:1]:
            marker = {"color": DECODE, "size": 11, "symbol": symbol}
            figure.add_scatter(x=[1], y=[decode], name=f"decode, {name}", mode="markers", marker=marker)
    above = {"y": 1, "yref": "paper", "yanchor": "bottom", "showarrow": False}
    for number, (name, tokens) in enumerate(sorted(ridges.items(), key=lambda ridge: ridge[1])):
        figure.add_vline(x=tokens, line={"color": EDGE, "width": 2, "dash": "dash"})
        side = "left" if number else "right"
        figure.add_annotation(text=f"ridge, {name}", x=log10(tokens), xanchor=side, **above)
    figure.update_layout(showlegend=True, height=460, margin_t=90, legend_y=1.09)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure


def roofline_at(
    ceiling: Ceiling, phases: Sequence[Achieved], types: Sequence[str], badge: str, n_prompt: int
) -> go.Figure:
    """The roofline with one prompt length highlighted, and its share of each roof in words."""
    figure = roofline(ceiling, [phase.point for phase in phases], types, badge)
    here = next(phase for phase in phases if phase.n_prompt == n_prompt and phase.name != "decode")
    reading, working = (100 * share for share in here.shares(ceiling, types[0]))
    roof = roof_name(ceiling, types[0])
    text = f"{here.name} tokens: {reading:.0f} % of the memory roof, {working:.0f} % of that of {roof}"
    figure.data[-1].update(marker_opacity=0.65)
    figure.add_scatter(
        x=[here.flop_per_byte],
        y=[here.flops_per_second / 1e9],
        mode="markers",
        name=here.name,
        showlegend=False,
        marker={"color": PREFILL, "size": 15, "symbol": "diamond"},
        hovertemplate=text,
    )
    place = {"x": 0, "xref": "paper", "xanchor": "left", "y": 1.02, "yref": "paper", "yanchor": "bottom"}
    figure.add_annotation(text=text.replace(": ", ":<br>"), align="left", showarrow=False, **place)
    figure.update_layout(margin_t=56, meta={"alt": f"{figure.layout.meta['alt']} Picked out: {text}."})
    return figure
