"""What one token reads from RAM against what the card holds, for ways to place a model on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import blank, curves, mark, y_from_zero

PLANNED = "computed by the memory plans of this book, which follow llama.cpp; nothing was loaded"


def ram_reads(ways: Mapping[str, Sequence[tuple[float, float]]], cards_gib: Sequence[int]) -> go.Figure:
    """Points (GiB on the card, GB that a token reads from RAM) of each way, and vertical lines at cards.

    ways       name -> points in the order in which more and more leaves the card
    cards_gib  memory of each card, of which 1 GiB stays free
    """
    said = "; ".join(
        f"{name} from {points[0][1]:.2f} GB with {points[0][0]:.1f} GiB on the card "
        f"to {points[-1][1]:.2f} GB with {points[-1][0]:.1f} GiB"
        for name, points in ways.items()
    )
    figure = blank(PLANNED, f"What a token reads from RAM: {said}.", "GiB on the card", "GB read from RAM for a token")
    curves(figure, ways, "%{x:.1f} GiB on the card: %{y:.2f} GB")
    for n_gib in cards_gib:
        mark(figure, n_gib - 1, f"{n_gib} GiB")
    y_from_zero(figure)
    figure.update_xaxes(rangemode="tozero")
    figure.update_layout(showlegend=True, height=440, margin_t=112, legend_y=1.1)
    return figure
