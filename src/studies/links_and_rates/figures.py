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
ROOM = 0.25  # of a decade beyond the outer rungs


def link_ladder(rungs: Sequence[Rung], badge: str) -> go.Figure:
    """Rungs in GB/s, the fastest on top; cited ones are open diamonds, measured ones, of the badge, filled circles."""
    rungs = sorted(rungs, key=lambda rung: rung.bytes_per_second)
    text = "; ".join(f"{one.name} {one.bytes_per_second / GB:.3g}, {MARKS[one.measured][0]}" for one in rungs)
    figure = blank(badge, f"Rates of links and memories in GB/s, from the slowest: {text}.", x="GB/s")
    for measured, (name, symbol, colour) in MARKS.items():
        found = [one for one in rungs if one.measured is measured]
        figure.add_scatter(
            x=[one.bytes_per_second / GB for one in found],
            y=[one.name for one in found],
            name=name,
            mode="markers",
            marker={"symbol": symbol, "color": colour, "size": 10, "line": {"width": 2}},
            hovertemplate="%{y}: %{x:.3g} GB/s<extra>" + name + "</extra>",
        )
    names = [one.name for one in rungs]
    figure.update_layout(showlegend=True, height=180 + ROW_PIXELS * len(names))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names, dtick=1, gridcolor=EDGE)
    ends = [log10(one.bytes_per_second / GB) for one in (rungs[0], rungs[-1])]
    figure.update_xaxes(type="log", tickvals=LOG_DECADES, range=[ends[0] - ROOM, ends[1] + ROOM])
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
        corners = _roof(ceiling, type, most)
        name = roof_name(ceiling, type)
        line(figure, corners, name, GREY, marks=False)
        figure.data[-1].update(
            line_dash=dash, opacity=0.7, hovertemplate=f"{name}: %{{x:.3g}} FLOP/byte, %{{y:.4g}} GFLOP/s"
        )
    names, x, y = zip(*points, strict=True)
    marker = {"color": [_phase_colour(name) for name in names], "size": 9}
    figure.add_scatter(
        x=x,
        y=[rate / 1e9 for rate in y],
        text=names,
        name="measured",
        mode="markers",
        marker=marker,
        showlegend=False,
        hovertemplate="%{text}: %{x:.3g} FLOP/byte, %{y:.4g} GFLOP/s",
    )
    figure.update_layout(showlegend=True, legend=UNDER_THE_ROOFS)
    figure.update_xaxes(type="log", tickvals=LOG_DECADES, minor={"tickvals": LOG_MARKS, "ticks": "outside"})
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure


def _phase_colour(name: str) -> str:
    return DECODE if name.startswith("decode") else PREFILL


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
    runs = [run for each in series.values() for run in each]
    figure = blank(common_badge(runs), _text(series, ridges), "tokens in the prompt", "tokens per second")
    for (name, each), dash, symbol in zip(series.items(), DASHES, SYMBOLS, strict=False):
        each = sorted(each, key=lambda run: run.n_prompt)
        rates = [(run.n_prompt, run.points("prefill_tokens_per_second")) for run in each]
        points(figure, [(n, rate) for n, found in rates for rate in found], "every pass", PREFILL)
        figure.data[-1].update(showlegend=False, hoverinfo="skip", hovertemplate=None)
        line(figure, [(run.n_prompt, run.prefill_tokens_per_second) for run in each], f"prefill, {name}", PREFILL)
        figure.data[-1].update(line_dash=dash, marker_symbol=symbol)
        decode = next((run.decode_tokens_per_second for run in each if run.decode_tokens_per_second), None)
        if decode:
            figure.add_scatter(
                x=[1],
                y=[decode],
                name=f"decode, {name}",
                mode="markers",
                marker={"color": DECODE, "size": 11, "symbol": symbol},
            )
    for line_at, (name, tokens) in enumerate(sorted(ridges.items(), key=lambda ridge: ridge[1])):
        figure.add_vline(x=tokens, line={"color": EDGE, "width": 2, "dash": "dash"})
        figure.add_annotation(
            text=f"ridge, {name}",
            x=log10(tokens),
            y=1,
            yref="paper",
            yanchor="bottom",
            showarrow=False,
            xanchor="left" if line_at else "right",
        )
    figure.update_layout(showlegend=True, height=460, margin_t=90, legend_y=1.09)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure


def roofline_at(
    ceiling: Ceiling, found: Sequence[Achieved], types: Sequence[str], badge: str, n_prompt: int
) -> go.Figure:
    """The roofline with one prompt length highlighted, and its share of each roof in words."""
    figure = roofline(ceiling, [one.point for one in found], types, badge)
    here = next(one for one in found if one.n_prompt == n_prompt and one.name != "decode")
    reading = here.bytes_per_second / ceiling.bandwidth_bytes_per_second
    working = here.flops_per_second / ceiling.matrix_flops_per_second[types[0]]
    roof = roof_name(ceiling, types[0])
    text = f"{here.name} tokens: {100 * reading:.0f} % of the memory roof, {100 * working:.0f} % of that of {roof}"
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
    figure.add_annotation(
        text=text.replace(": ", ":<br>"),
        x=0,
        xref="paper",
        xanchor="left",
        y=1.02,
        yref="paper",
        yanchor="bottom",
        align="left",
        showarrow=False,
    )
    figure.update_layout(margin_t=56)
    figure.update_layout(meta={"alt": f"{figure.layout.meta['alt']} Picked out: {text}."})
    return figure


def _text(series: Mapping[str, Sequence[Run]], ridges: Mapping[str, float]) -> str:
    text = [
        f"{name}: " + ", ".join(f"{run.n_prompt} tokens at {run.prefill_tokens_per_second:.3g}" for run in each)
        for name, each in series.items()
    ]
    text += [f"the ridge for {name} lies at {tokens:.3g} tokens" for name, tokens in ridges.items()]
    return f"Prefill in tokens per second against the length of the prompt. {'; '.join(text)}."
