"""Layers that stay on a card against the context, computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import ABOVE_TOP_TICK, blank, curves, mark, tick_values

FITTED = "computed by the memory plans of this book, which follow llama.cpp; nothing was loaded"


def layers_against_context(shares: Mapping[str, Sequence[tuple[int, float]]], marked: Sequence[int]) -> go.Figure:
    """Percent of a model's layers on a card against n_ctx, a line for each model, and vertical lines at contexts.

    shares  name -> (n_ctx, percent of the layers), shortest context first
    marked  contexts of the vertical lines
    """
    said = "; ".join(
        f"{name} {points[0][1]:.0f} % at {points[0][0]:,} and {points[-1][1]:.0f} % at {points[-1][0]:,}"
        for name, points in shares.items()
    )
    figure = blank(
        FITTED, f"Layers on the card by context in tokens: {said}.", "n_ctx, tokens", "layers on the card, %"
    )
    curves(figure, shares, "%{x:,} tokens: %{y:.0f} %")
    for n_ctx in marked:
        mark(figure, n_ctx, f"{n_ctx // 1024}k", log=True)
    contexts = [n_ctx for points in shares.values() for n_ctx, _ in points]
    powers = [2**power for power in range(10, 21) if min(contexts) <= 2**power <= max(*contexts, *marked)]
    figure.update_xaxes(type="log", tickvals=tick_values(powers, log=True), tickformat=",d")
    figure.update_yaxes(range=[0, 100 * ABOVE_TOP_TICK], dtick=20)
    figure.update_layout(showlegend=True, height=440, margin_t=96, legend_y=1.1)
    return figure
