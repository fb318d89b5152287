"""Parts shared by all figures: colours, the empty figure, the badge, points and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, log10
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

PREFILL = "#3b82c4"
DECODE = "#d97706"
"""Blue is prefill and orange is decode, in every figure; nothing else has these colours."""
TEAL, PURPLE, OLIVE, RED, PINK, GREY = "#0f9d8a", "#a855c7", "#8a7415", "#b3403f", "#d0679d", "#6b7280"
SERIES_COLOURS = (TEAL, PURPLE, OLIVE, RED, PINK, GREY)
"""For the lines and bars of one figure, whatever they are."""
EDGE = "rgba(128,128,128,0.35)"
LOG_MARKS = tuple(digit * 10.0**power for power in range(-9, 16) for digit in (1, 2, 5))
"""Ticks of a logarithmic axis as whole numbers: by itself it writes 2 and 5 without their power of ten."""
LOG_DECADES = LOG_MARKS[::3]
"""The powers of ten among them, for an axis over many."""
BADGE = "badge"
"""The name of the annotation that holds the badge."""
BADGE_COLUMNS = 62
BADGE_SHIFT, BADGE_LINE_PIXELS = -64, 15
NARROW_AXIS, DIGIT_PIXELS, TICK_GAP = 240, 7, 11
"""Pixels of the horizontal axis on a phone, of a digit, and between two labels."""
NARROW_WIDTH, NARROW_MARGINS, LETTER_PIXELS = 340, 32, 5.8
"""Pixels of a figure on a phone, of what stands beside its axis but for the names, and of a letter."""
HEADING_COLUMNS, HEADING_LINE_PIXELS = 48, 16
ABOVE_TOP_TICK = 1.04
"""The end of an axis over its last tick: a point on the tick is whole."""


def blank(badge: str | None, alt: str, x: str = "", y: str = "") -> go.Figure:
    """An empty figure with titled axes, a text alternative, and the badge of its data below."""
    layout = {
        "meta": {"alt": alt},
        "template": "none",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 60, "r": 16, "t": 32, "b": 116},
        "height": 400,
        "showlegend": False,
        "legend": {"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0, "traceorder": "normal"},
        "bargap": 0.35,
        "xaxis": {"title": {"text": x}, "automargin": True},
        "yaxis": {"title": {"text": y}, "automargin": True, "ticklabelstandoff": 6},
    }
    figure = go.Figure(layout=layout)
    if badge is not None:
        write_badge(figure, badge)
    return figure


def badge_lines(badge: str) -> list[str]:
    """The badge broken into lines that fit a narrow page."""
    return wrap(badge, BADGE_COLUMNS, break_on_hyphens=False)


def write_badge(figure: go.Figure, badge: str) -> None:
    """Print below the axes who measured this, when, with what; a long badge makes the figure higher.

    It ends where the axes end: the names at their left, however long, take no space from it.
    """
    lines, margin = badge_lines(badge), figure.layout.margin.b
    if margin and badge_margin(len(lines)) > margin:
        more = badge_margin(len(lines)) - margin
        figure.update_layout(height=figure.layout.height + more, margin_b=margin + more)
    figure.add_annotation(
        name=BADGE,
        text="<br>".join(lines),
        showarrow=False,
        align="left",
        font={"size": 11},
        xref="paper",
        x=1,
        xanchor="right",
        yref="paper",
        y=0,
        yanchor="top",
        yshift=BADGE_SHIFT,
        opacity=0.75,
    )


def badge_margin(n_lines: int) -> int:
    """Pixels below the axes for a badge of so many lines."""
    return BADGE_LINE_PIXELS * n_lines - BADGE_SHIFT + 7


def heading(figure: go.Figure, text: str) -> None:
    """Text above the axes in lines that fit a phone; each line after the first makes the figure higher."""
    lines = wrap(text, HEADING_COLUMNS, break_on_hyphens=False)
    more = HEADING_LINE_PIXELS * (len(lines) - 1)
    figure.update_layout(height=figure.layout.height + more, margin_t=figure.layout.margin.t + more)
    figure.add_annotation(
        text="<br>".join(lines),
        showarrow=False,
        align="left",
        xref="paper",
        x=0,
        xanchor="left",
        yref="paper",
        y=1,
        yanchor="bottom",
    )


def from_zero(highest: float, lowest: float = 0, n_steps: int = 5) -> dict[str, Any]:
    """An axis from 0, or from a tick below `lowest`, with a tick at or above the highest value; about `n_steps` steps.

    By itself plotly ends an axis just above the values, often without a tick above them.
    """
    step = _round_step(max(highest, -lowest) / n_steps)
    least, most = step * floor(min(lowest, 0) / step), step * max(ceil(highest / step), 1)
    return {"range": [ABOVE_TOP_TICK * least, ABOVE_TOP_TICK * most], "tick0": 0, "dtick": step, "rangemode": "tozero"}


def _round_step(least: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that is no smaller; a half for an axis without values."""
    if least <= 0:
        return 0.5
    power = 10.0 ** floor(log10(least))
    return next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))


def y_from_zero(figure: go.Figure, n_steps: int = 5) -> None:
    """`from_zero` for all values that the figure draws against its vertical axis."""
    values = [y for trace in figure.data if trace.yaxis in (None, "y") for y in trace.y if y is not None]
    figure.update_layout(yaxis=from_zero(max(values, default=0), min(values, default=0), n_steps))


def space_beside_bars(names: Sequence[str], values: Sequence[float], texts: Sequence[str]) -> list[float]:
    """The range of a horizontal axis on which the text beside each bar ends within the figure, on a phone too."""
    axis = NARROW_WIDTH - NARROW_MARGINS - LETTER_PIXELS * max(map(len, names), default=0)
    shares = [1 - (LETTER_PIXELS * len(text) + 6) / axis for text in texts]
    return [0, max((value / share for value, share in zip(values, shares, strict=True)), default=0) or 1]


def tick_values(values: Sequence[int], log: bool = False) -> list[int]:
    """The measured sizes whose labels fit on the axis of a narrow page: the least, then the roundest in binary."""
    kept: list[int] = []
    least, most, at = min(values, default=1), max(values, default=1), log10 if log else float
    pixels = NARROW_AXIS / ((at(most) - at(least) if log else most) or 1)
    for value in sorted(set(values), key=lambda n: (n != least, -(n & -n), n)):
        wide = DIGIT_PIXELS * len(str(value)) + TICK_GAP
        if all(pixels * abs(at(value) - at(other)) >= wide for other in kept):
            kept.append(value)
    return sorted(kept)


def points(figure: go.Figure, values: Sequence[tuple[float | str, float]], name: str, colour: str) -> None:
    """Every value as a faint point."""
    x, y = zip(*values, strict=True) if values else ((), ())
    marker = {"color": colour, "opacity": 0.3, "size": 6}
    figure.add_scatter(x=x, y=y, name=name, mode="markers", marker=marker, hovertemplate="%{x}: %{y:.3f}")


def line(
    figure: go.Figure, values: Sequence[tuple[float | str, float]], name: str, colour: str, marks: bool = True
) -> None:
    """Values joined by a line, with marks on them where they are few."""
    x, y = zip(*values, strict=True) if values else ((), ())
    mode = "lines+markers" if marks else "lines"
    figure.add_scatter(x=x, y=y, name=name, mode=mode, line={"color": colour, "width": 2}, marker={"size": 8})


def curves(figure: go.Figure, shown: Mapping[str, Sequence[tuple[float, float]]], hover: str) -> None:
    """A line in a colour of its own for each name; `hover` says in plotly's template what a point tells."""
    for (name, values), colour in zip(shown.items(), SERIES_COLOURS, strict=False):
        line(figure, values, name, colour, marks=False)
        figure.data[-1].hovertemplate = f"{hover}<extra>{name}</extra>"


def mark(figure: go.Figure, x: float, text: str, log: bool = False) -> None:
    """A dotted vertical line at `x` with a text above the plot; `log` where the axis is logarithmic."""
    figure.add_vline(x=x, line={"color": GREY, "width": 1, "dash": "dot"})
    at = log10(x) if log else x  # plotly takes an annotation's place on such an axis as an exponent
    figure.add_annotation(x=at, yref="paper", y=1, yanchor="bottom", text=text, showarrow=False)


def samples_and_medians(
    figure: go.Figure,
    samples: Sequence[tuple[float | str, float]],
    medians: Sequence[tuple[float | str, float]],
    name: str,
    colour: str,
) -> None:
    """Every sample as a faint point and the medians as a line, with one entry in the legend."""
    points(figure, samples, name, colour)
    figure.data[-1].showlegend = False
    line(figure, medians, name, colour)


def dashed_line(
    figure: go.Figure, values: Sequence[tuple[float, float]], name: str, colour: str, dash: str, shape: str = "linear"
) -> None:
    """Values joined by a line without marks; `dash` and `shape` are plotly's, such as "dot" and "hv"."""
    figure.add_scatter(
        x=[x for x, _ in values],
        y=[y for _, y in values],
        name=name,
        mode="lines",
        line={"color": colour, "width": 2, "dash": dash, "shape": shape},
        hovertemplate=f"%{{x}}: %{{y:.3f}}<extra>{name}</extra>",
    )


def stacked(figure: go.Figure, n_bars: int) -> None:
    """Make horizontal bars a stack with a legend, first bar on top, as high as there are bars."""
    figure.update_layout(barmode="stack", showlegend=True, height=220 + 44 * max(2, n_bars))
    figure.update_yaxes(autorange="reversed", type="category")


def value_text(value: Any) -> str:
    """The value of a setting as a reader writes it: a switch is on or off."""
    return ("on" if value else "off") if isinstance(value, bool) else f"{value}"
