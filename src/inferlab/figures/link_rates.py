"""The ladder of link rates: cited and measured rungs on one logarithmic axis."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10

import plotly.graph_objects as go

from inferlab.figures.style import EDGE, GREY, LOG_DECADES, TEAL, blank
from inferlab.prediction.link_rates import Rung
from inferlab.units import GB

MARKS = {False: ("cited", "diamond-open", GREY), True: ("measured", "circle", TEAL)}
ROW_PIXELS = 21
ROOM = 0.25  # of a decade beyond the outer rungs


def link_ladder(rungs: Sequence[Rung], badge: str) -> go.Figure:
    """Rungs in GB/s, the fastest on top; cited ones are open diamonds, measured ones filled circles.

    badge  of the measured rungs; the cited ones have their sources in the page's table
    """
    rungs = sorted(rungs, key=lambda rung: rung.bytes_per_second)
    text = "; ".join(f"{one.name} {one.bytes_per_second / GB:.3g}, {MARKS[one.measured][0]}" for one in rungs)
    figure = blank(badge, f"Rates of links and memories in GB/s, from the slowest: {text}.", x="GB/s")
    for measured, (name, symbol, colour) in MARKS.items():
        found = [one for one in rungs if one.measured is measured]
        figure.add_scatter(
            x=[one.bytes_per_second / GB for one in found], y=[one.name for one in found], name=name, mode="markers",
            marker={"symbol": symbol, "color": colour, "size": 10, "line": {"width": 2}},
            hovertemplate="%{y}: %{x:.3g} GB/s<extra>" + name + "</extra>",
        )  # fmt: skip
    names = [one.name for one in rungs]
    figure.update_layout(showlegend=True, height=180 + ROW_PIXELS * len(names))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names, dtick=1, gridcolor=EDGE)
    ends = [log10(one.bytes_per_second / GB) for one in (rungs[0], rungs[-1])]
    figure.update_xaxes(type="log", tickvals=LOG_DECADES, range=[ends[0] - ROOM, ends[1] + ROOM])
    return figure
