"""Bytes of the KV cache by formula, beside those that the engine reserved."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.style import RED, TEAL, blank
from inferlab.units import MIB, bytes_text


def kv_formulas(readings: Mapping[str, int], engine_bytes: int, badge: str) -> go.Figure:
    """Bytes of the KV cache by several formulas, and a line at the bytes that the engine reserved."""
    text = "; ".join(f"{name} {bytes_text(n_bytes)}" for name, n_bytes in readings.items())
    figure = blank(badge, f"KV cache by formula: {text}. The engine reserved {bytes_text(engine_bytes)}.", x="MiB")
    figure.add_bar(
        y=[f"{name}: {n_bytes / engine_bytes:.2f} times" for name, n_bytes in readings.items()],
        x=[n_bytes / MIB for n_bytes in readings.values()],
        orientation="h",
        marker_color=[TEAL if name == "right" else RED for name in readings],
        hovertemplate="%{y}: %{x:.2f} MiB<extra></extra>",
    )
    figure.add_vline(engine_bytes / MIB, line={"color": TEAL, "dash": "dash", "width": 2}, layer="below")
    figure.update_layout(height=220 + 34 * len(readings))
    figure.update_xaxes(range=[0, 1.05 * max(*readings.values(), engine_bytes) / MIB])
    figure.update_yaxes(autorange="reversed", type="category")
    return figure
