"""Rounding to a quantization type: errors by method, and the search for a block's scale."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inferlab.figures.style import EDGE, GREY, TEAL, blank, line
from inferlab.model.dequantize import Weights
from inferlab.model.quantize_numpy import Rounding
from inferlab.model.quantize_q4_k import Trial

KEPT, DROPPED = TEAL, GREY


def rounding_errors(original: Weights, ways: Sequence[Rounding], name: str) -> go.Figure:
    """Root mean square error of each rounding method, in percent of the weights' standard deviation."""
    spread = float(original.std())
    losses = [100 * way.rmse(original) / spread for way in ways]
    labels = [f"{way.name}<br>{way.bits_per_weight:.3g} bits" for way in ways]
    text = "; ".join(f"{way.name} {loss:.2f} %" for way, loss in zip(ways, losses, strict=True))
    figure = blank(
        f"computed from {original.size:,} weights of {name}",
        f"Rounding errors in percent of the standard deviation: {text}.",
        x="RMS error, % of the spread",
    )
    figure.add_bar(
        y=labels, x=losses, orientation="h", marker_color=[KEPT if way.name == "Q4_K" else DROPPED for way in ways],
        text=[f"{loss:.1f}" for loss in losses], textposition="outside", cliponaxis=False,
        hovertemplate="%{y}: %{x:.2f} %<extra></extra>",
    )  # fmt: skip
    figure.update_layout(height=210 + 42 * len(ways))
    figure.update_xaxes(range=[0, 1.15 * max(losses)])
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def scale_search(trials: Sequence[Trial], name: str) -> go.Figure:
    """Error of each trial in Q4_K's search for a block's scale, in percent of the first guess; kept ones are marked."""
    first = float(trials[0].error)
    values = [(trial.steps, 100 * float(trial.error) / first) for trial in trials]
    best = min(value for _, value in values)
    kept = [value for value, trial in zip(values[1:], trials[1:], strict=True) if trial.kept]
    figure = blank(
        f"computed from 32 weights of {name}",
        f"The search for one block's scale and minimum: first guess 100 %, best of {len(trials) - 1} trials "
        f"{best:.1f} % of its error; {len(kept)} trials were better than all before them.",
        x="steps between minimum and greatest weight",
        y="weighted error, % of the first guess",
    )
    line(figure, values[1:], "trial", DROPPED)
    figure.add_scatter(
        x=[x for x, _ in kept], y=[y for _, y in kept], mode="markers", name="kept",
        marker={"size": 12, "color": KEPT}, hovertemplate="kept: %{x:.1f} steps, %{y:.1f} %<extra></extra>",
    )  # fmt: skip
    figure.add_hline(100, line={"color": EDGE, "dash": "dot"})
    figure.update_layout(showlegend=True)
    return figure
