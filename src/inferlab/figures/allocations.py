"""Memory in use: the buffers that llama.cpp allocated."""

from __future__ import annotations

import plotly.graph_objects as go

from inferlab.figures.style import GREY, PURPLE, RED, TEAL, blank, stacked
from inferlab.machine import device_names
from inferlab.measurement.run import Run
from inferlab.units import MIB, bytes_text

KINDS = {
    "weights": ("weights", GREY),
    "kv_cache": ("KV cache", TEAL),
    "compute": ("compute", PURPLE),
    "output": ("output", RED),
}


def buffers(run: Run) -> go.Figure:
    """Every buffer of a run, stacked by kind for each device."""
    names = device_names(b.device for b in run.buffers)
    text = "; ".join(f"{names[b.device]} {KINDS[b.kind][0]} {bytes_text(b.n_bytes)}" for b in run.buffers)
    figure = blank(run.badge, f"Buffers by device: {text}.", x="MiB")
    for kind, (name, colour) in KINDS.items():
        sizes = {names[b.device]: b.n_bytes / MIB for b in run.buffers if b.kind == kind}
        if sizes:
            figure.add_bar(
                y=list(names.values()),
                x=[sizes.get(device, 0) for device in names.values()],
                name=name,
                orientation="h",
                marker_color=colour,
                hovertemplate=f"{name} %{{x:.2f}} MiB<extra>%{{y}}</extra>",
            )
    stacked(figure, len(names))
    return figure
