"""Tokens per second of engines, every turn a point; and the time that weights outside the card cost."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import GREY, LOG_MARKS, OLIVE, PURPLE, RED, TEAL, blank, curves, from_zero
from inferlab.prediction.link_rates import Rung
from inferlab.units import GB, number_text
from studies.other_engines.study import EngineComparison

COLOURS = {"llama.cpp": TEAL, "transformers": PURPLE, "OpenVINO": RED, "ONNX Runtime": OLIVE, "MLX": GREY}
DECODE = "tokens/s after the first token"
ROW_PIXELS = 30
BADGE = "computed from cited rates, which are upper bounds; nothing was run"


def decode_rates(comparison: EngineComparison) -> go.Figure:
    """Tokens per second of each engine in decode, on a logarithmic axis: every turn a point, the median a mark."""
    rates = {row.name: [1 / seconds for seconds in row.step_seconds] for row in comparison.rows}
    text = "; ".join(f"{name} {number_text(median(values))}" for name, values in rates.items())
    figure = blank(comparison.badge, f"Median {DECODE}: {text}.", x=DECODE)
    dot, mark = {"size": 6, "opacity": 0.3}, {"size": 15, "symbol": "line-ns-open", "line": {"width": 3}}
    for engine, colour in COLOURS.items():
        own = {row.name: rates[row.name] for row in comparison.rows if row.engine == engine}
        for marker, shown in ((dot, own), (mark, {name: [median(values)] for name, values in own.items()})):
            figure.add_scatter(
                x=[rate for values in shown.values() for rate in values],
                y=[name for name, values in shown.items() for _ in values],
                name=engine,
                mode="markers",
                marker={**marker, "color": colour},
                showlegend=False,
                hovertemplate="%{x:.3g} tokens/s<extra>%{y}</extra>",
            )
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=list(rates)[::-1])
    figure.update_xaxes(type="log", tickvals=LOG_MARKS)
    figure.update_layout(height=190 + ROW_PIXELS * len(rates))
    return figure


def outside_the_card(rungs: Mapping[str, Rung], most_gb: int = 8) -> go.Figure:
    """Least milliseconds of a pass against the GB that lie outside the card, a line for each way that they are read."""
    most = {name: 1e3 * rung.seconds(most_gb * GB) for name, rung in rungs.items()}
    text = "; ".join(f"{name} {value:.0f} ms" for name, value in most.items())
    figure = blank(
        BADGE,
        f"Least time of a pass with {most_gb} GB outside the card: {text}.",
        x="GB outside the card",
        y="ms for a pass, at least",
    )
    lines = {name: [(0, 0), (most_gb, value)] for name, value in most.items()}
    curves(figure, lines, "%{x:.1f} GB: %{y:.0f} ms")
    figure.update_layout(showlegend=True)
    figure.update_yaxes(from_zero(max(most.values())))
    return figure
