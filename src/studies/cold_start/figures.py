"""Memory of the engine's process: resident and locked over the phases of loading, and its pages right after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import (
    GREY,
    OLIVE,
    PURPLE,
    RED,
    TEAL,
    blank,
    dashed_line,
    heading,
    space_beside_bars,
    stacked,
)
from inferlab.measurement.base import common_badge
from inferlab.measurement.memory import Residence
from inferlab.units import MIB
from studies.cold_start.load_memory import LoadMemory

LINES = {
    "own_bytes": ("own memory", PURPLE, "solid"),
    "file_bytes": ("pages of the file", TEAL, "solid"),
    "locked_bytes": ("locked", RED, "dot"),
}
SHOWN = 0.04  # the share of the whole load from which on a phase gets its name
NAMES = {"map_and_buffers": "map, buffers", "tensor_list": "tensor list", "graph_reserve": "cache, compute"}
RESIDENT = {
    "file, ordinary pages": (lambda r: r.file_bytes - r.file_huge_bytes, OLIVE),
    "file, huge pages": (lambda r: r.file_huge_bytes, TEAL),
    "own, ordinary pages": (lambda r: r.own_bytes - r.huge_bytes, GREY),
    "own, huge pages": (lambda r: r.huge_bytes, PURPLE),
}


def load_memory(load: LoadMemory) -> go.Figure:
    """MiB over the memory before, against ms since loading began; the bands are the phases."""
    text = (
        f"load_mode {load.settings.load_mode}, weights on the {load.place}: "
        f"peak {load.grown_bytes / MIB:.0f} MiB, {load.left_bytes / MIB:.0f} MiB left."
    )
    figure = blank(load.badge, f"Memory while loading. {text}", x="ms since loading began", y="MiB")
    heading(figure, text)
    for field, (name, colour, dash) in LINES.items():
        start = getattr(load.before, field)
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
                x=1e3 * (began + end) / 2,
                y=1,
                yref="paper",
                yanchor="top",
                text=NAMES.get(phase, phase),
                showarrow=False,
                textangle=-90,
                opacity=0.8,
            )
        began = end


def load_peaks(loads: Sequence[LoadMemory]) -> go.Figure:
    """For each load the most resident memory over the memory before, and what of it is left, in MiB."""
    names = [f"{load.settings.load_mode}, {load.place}" for load in loads]
    peaks, kept = [load.grown_bytes / MIB for load in loads], [load.left_bytes / MIB for load in loads]
    rows = zip(names, peaks, kept, strict=True)
    text = "; ".join(f"{name}: peak {peak:.0f}, left {left:.0f}" for name, peak, left in rows)
    figure = blank(common_badge(loads), f"Resident memory while loading, MiB. {text}.", x="MiB over the process before")
    for label, values, colour in (("peak", peaks, PURPLE), ("left", kept, OLIVE)):
        texts = [f"{value:.0f}" for value in values]
        figure.add_bar(
            x=values,
            y=names,
            name=label,
            orientation="h",
            marker_color=colour,
            text=texts,
            textposition="outside",
            cliponaxis=False,
        )
    figure.update_layout(showlegend=True, barmode="group", bargap=0.25, height=200 + 46 * len(loads))
    figure.update_xaxes(range=space_beside_bars(names, peaks, [f"{value:.0f}" for value in peaks]))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def resident_memory(cases: Mapping[str, Residence], badge: str) -> go.Figure:
    """Resident bytes of the engine's process: file-backed and private pages, ordinary and huge, a bar for each case."""
    text = "; ".join(
        f"{name}: " + ", ".join(f"{kind} {size(pages) / MIB:.1f} MiB" for kind, (size, _) in RESIDENT.items())
        for name, pages in cases.items()
    )
    figure = blank(badge, f"Resident memory right after loading: {text}.", x="MiB")
    for kind, (size, colour) in RESIDENT.items():
        figure.add_bar(
            y=list(cases),
            x=[size(pages) / MIB for pages in cases.values()],
            name=kind,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{kind}: %{{x:.1f}} MiB<extra>%{{y}}</extra>",
        )
    stacked(figure, len(cases))
    return figure
