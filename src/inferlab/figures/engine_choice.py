"""Time that the part of a model outside the card costs, computed in RAM or sent over a bus."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.style import blank, curves, from_zero
from inferlab.prediction.engine_choice import least_seconds
from inferlab.prediction.link_rates import Rung
from inferlab.units import GB

BADGE = "computed from cited rates, which are upper bounds; nothing was run"


def outside_the_card(rungs: Mapping[str, Rung], most_gb: int = 8) -> go.Figure:
    """Least milliseconds of a pass against the GB that lie outside the card, a line for each way that they are read."""
    most = {name: 1e3 * least_seconds(most_gb * GB, rung.bytes_per_second) for name, rung in rungs.items()}
    text = "; ".join(f"{name} {value:.0f} ms" for name, value in most.items())
    figure = blank(BADGE, f"Least time of a pass with {most_gb} GB outside the card: {text}.",
                   x="GB outside the card", y="ms for a pass, at least")  # fmt: skip
    lines = {name: [(0, 0), (most_gb, value)] for name, value in most.items()}
    curves(figure, lines, "%{x:.1f} GB: %{y:.0f} ms")
    figure.update_layout(showlegend=True)
    figure.update_yaxes(from_zero(max(most.values())))
    return figure
