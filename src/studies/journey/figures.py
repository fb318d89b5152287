"""A conversation on one clock: tokens in the context against seconds since the program was started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import RED, SERIES_COLOURS, blank, dashed_line, line, y_from_zero

Clock = Sequence[tuple[float, float]]


def conversation_clock(badge: str, computed: Mapping[str, Clock], measured: Sequence[Clock]) -> go.Figure:
    """Points (seconds, tokens) of each computed clock as a line, and of each measured one as a thin line.

    The flat beginning is the start of the program. `measured` are the repetitions of one journey; the axis ends a
    little after the last computed clock, so that one disturbed repetition does not press the others together.
    """
    text = "; ".join(
        f"{name}: {points[-1][1]:,.0f} tokens after {points[-1][0]:.3g} s" for name, points in computed.items()
    )
    ends = [points[-1][0] for points in measured]
    text += f"; measured {len(ends)} times: {min(ends):.3g} to {max(ends):.3g} s"
    figure = blank(badge, f"Tokens in the context against time. {text}.", "seconds since the start", "tokens")
    for index, points in enumerate(measured):
        line(figure, [(0, 0), *points], "measured", SERIES_COLOURS[0], marks=False)
        figure.data[-1].update(line_width=1, opacity=0.6, showlegend=index == 0)
    for (name, points), dash in zip(computed.items(), ("dash", "dot", "dashdot"), strict=False):
        dashed_line(figure, [(0, 0), *points], name, RED, dash)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(range=[0, 1.15 * max(points[-1][0] for points in computed.values())])
    y_from_zero(figure)
    return figure
