"""Memory in use: the buffers that llama.cpp allocated, and the resident pages of its process."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.style import GREY, OLIVE, PURPLE, RED, TEAL, blank, stacked
from inferlab.machine import device_names
from inferlab.measurement.memory import Residence
from inferlab.measurement.run import Run
from inferlab.units import MIB, bytes_text

KINDS = {
    "weights": ("weights", GREY),
    "kv_cache": ("KV cache", TEAL),
    "compute": ("compute", PURPLE),
    "output": ("output", RED),
}
RESIDENT = {
    "file, ordinary pages": (lambda r: r.file_bytes - r.file_huge_bytes, OLIVE),
    "file, huge pages": (lambda r: r.file_huge_bytes, TEAL),
    "own, ordinary pages": (lambda r: r.own_bytes - r.huge_bytes, GREY),
    "own, huge pages": (lambda r: r.huge_bytes, PURPLE),
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


def resident_memory(found: Mapping[str, Residence], badge: str) -> go.Figure:
    """Resident bytes of the engine's process: file-backed and private pages, ordinary and huge, a bar for each case."""
    text = "; ".join(
        f"{name}: " + ", ".join(f"{kind} {size(one) / MIB:.1f} MiB" for kind, (size, _) in RESIDENT.items())
        for name, one in found.items()
    )
    figure = blank(badge, f"Resident memory right after loading: {text}.", x="MiB")
    for kind, (size, colour) in RESIDENT.items():
        figure.add_bar(
            y=list(found),
            x=[size(one) / MIB for one in found.values()],
            name=kind,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{kind}: %{{x:.1f}} MiB<extra>%{{y}}</extra>",
        )
    stacked(figure, len(found))
    return figure
