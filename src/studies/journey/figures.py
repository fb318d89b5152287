"""A conversation on one clock: tokens in the context against seconds since the program was started.

Memory of the engine's process while it loads: resident and locked, over the phases of loading.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import (
    GREY,
    OLIVE,
    PURPLE,
    RED,
    SERIES_COLOURS,
    TEAL,
    blank,
    dashed_line,
    heading,
    line,
    room_beside_bars,
    y_from_zero,
)
from inferlab.measurement.base import common_badge
from inferlab.units import MIB
from studies.journey.load_memory import LoadMemory

Clock = Sequence[tuple[float, float]]


def conversation_clock(badge: str | None, computed: Mapping[str, Clock], measured: Sequence[Clock] = ()) -> go.Figure:
    """Points (seconds, tokens) of each computed clock as a line, and of each measured one as a thin line.

    The flat beginning is the start of the program. `measured` are the repetitions of one journey; the axis ends a
    little after the last computed clock, so that one disturbed repetition does not press the others together.
    """
    text = "; ".join(
        f"{name}: {points[-1][1]:,.0f} tokens after {points[-1][0]:.3g} s" for name, points in computed.items()
    )
    ends = [points[-1][0] for points in measured]
    if ends:
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


LINES = {
    "own_bytes": ("own memory", PURPLE, "solid"),
    "file_bytes": ("pages of the file", TEAL, "solid"),
    "locked_bytes": ("locked", RED, "dot"),
}
SHOWN = 0.04  # the share of the whole load from which on a phase gets its name
NAMES = {"map_and_buffers": "map, buffers", "tensor_list": "tensor list", "graph_reserve": "cache, compute"}


def load_memory(load: LoadMemory) -> go.Figure:
    """MiB over the memory before, against ms since loading began; the bands are the phases."""
    kept = load.kept("own_bytes") + load.kept("file_bytes")
    text = (
        f"load_mode {load.settings.load_mode}, weights on the {load.place}: "
        f"peak {(load.grown_bytes or 0) / MIB:.0f} MiB, {kept / MIB:.0f} MiB left."
    )
    figure = blank(load.badge, f"Memory while loading. {text}", x="ms since loading began", y="MiB")
    heading(figure, text)
    for field, (name, colour, dash) in LINES.items():
        start = getattr(load.before, field) if load.before else 0
        points = [(1e3 * held.seconds, (getattr(held, field) - start) / MIB) for held in load.samples]
        dashed_line(figure, points, name, colour, dash, shape="hv")
    _bands(figure, load)
    figure.update_layout(showlegend=True, legend={"y": 1.14}, margin_t=figure.layout.margin.t + 40)
    figure.update_layout(height=figure.layout.height + 40)
    return figure


def _bands(figure: go.Figure, load: LoadMemory) -> None:
    """A line at the end of each phase that is long enough to be seen, and its name."""
    ends, began = load.ends, 0.0
    whole = list(ends.values())[-1]
    for phase, end in ends.items():
        if end - began > SHOWN * whole:
            figure.add_vline(x=1e3 * end, line={"color": GREY, "width": 1, "dash": "dash"})
            figure.add_annotation(
                x=1e3 * (began + end) / 2, y=1, yref="paper", yanchor="top", text=NAMES.get(phase, phase),
                showarrow=False, textangle=-90, opacity=0.8,
            )  # fmt: skip
        began = end


def load_peaks(loads: Sequence[LoadMemory]) -> go.Figure:
    """For each load the most resident memory over the memory before, and what of it is left, in MiB."""
    names = [f"{load.settings.load_mode}, {load.place}" for load in loads]
    peaks = [(load.grown_bytes or 0) / MIB for load in loads]
    kept = [(load.kept("own_bytes") + load.kept("file_bytes")) / MIB for load in loads]
    rows = zip(names, peaks, kept, strict=True)
    text = "; ".join(f"{name}: peak {peak:.0f}, left {left:.0f}" for name, peak, left in rows)
    figure = blank(common_badge(loads), f"Resident memory while loading, MiB. {text}.", x="MiB over the process before")
    for label, values, colour in (("peak", peaks, PURPLE), ("left", kept, OLIVE)):
        texts = [f"{value:.0f}" for value in values]
        figure.add_bar(
            x=values, y=names, name=label, orientation="h", marker_color=colour, text=texts, textposition="outside",
            cliponaxis=False,
        )  # fmt: skip
    figure.update_layout(showlegend=True, barmode="group", bargap=0.25, height=200 + 46 * len(loads))
    figure.update_xaxes(range=room_beside_bars(names, peaks, [f"{value:.0f}" for value in peaks]))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure
