"""One training step beside one inference step: bytes by kind."""

from __future__ import annotations

import plotly.graph_objects as go

from inferlab.figures.style import GREY, OLIVE, PINK, PURPLE, RED, TEAL, blank, stacked
from inferlab.units import MIB, bytes_text
from studies.training.study import LedgerRow, TrainingLedger

STEP_NAMES = {
    "engine_decode": "llama.cpp decode",
    "engine_prefill": "llama.cpp prefill",
    "decode": "PyTorch decode",
    "inference": "PyTorch prefill",
    "recorded": "… gradients recorded",
    "training": "PyTorch training",
}
KINDS = {
    "weights": (("weights",), GREY),
    "gradients": (("gradients",), OLIVE),
    "Adam's averages": (("adam",), PINK),
    "saved activations": (("saved",), RED),
    "KV cache": (("kv_cache",), TEAL),
    "compute and output": (("compute", "output"), PURPLE),
}


def ledger_bytes(ledger: TrainingLedger) -> go.Figure:
    """MiB that each step keeps, stacked by kind, and as a mark the peak growth of a process that made only it."""
    text = "; ".join(f"{STEP_NAMES[row.step]}: {_sizes_text(row)}" for row in ledger.rows)
    figure = blank(ledger.badge, f"Bytes of each step: {text}.", x="MiB")
    names = [STEP_NAMES[row.step] for row in ledger.rows]
    for name, (_, colour) in KINDS.items():
        figure.add_bar(
            y=names,
            x=[_size(row, name) / MIB for row in ledger.rows],
            name=name,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{name} %{{x:.2f}} MiB<extra>%{{y}}</extra>",
        )
    grown = [(row.grown_bytes / MIB, STEP_NAMES[row.step]) for row in ledger.rows if row.grown_bytes is not None]
    figure.add_scatter(
        x=[mib for mib, _ in grown],
        y=[name for _, name in grown],
        name="peak growth of its process",
        mode="markers",
        marker={"symbol": "diamond-open", "size": 11, "color": GREY, "line": {"width": 2}},
        hovertemplate="peak growth %{x:.1f} MiB<extra>%{y}</extra>",
    )
    stacked(figure, len(names))
    return figure


def _size(row: LedgerRow, name: str) -> int:
    return sum(row.sizes.get(kind, 0) for kind in KINDS[name][0])


def _sizes_text(row: LedgerRow) -> str:
    kinds = ", ".join(f"{name} {bytes_text(_size(row, name))}" for name in KINDS if _size(row, name))
    return f"{kinds}; peak growth {bytes_text(row.grown_bytes)}"
