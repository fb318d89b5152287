"""Several engines on the same weights: tokens per second of prefill and of decode, every turn a point."""

from __future__ import annotations

from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import GREY, LOG_MARKS, OLIVE, PURPLE, RED, TEAL, blank
from inferlab.measurement.engine_comparison import EngineComparison, EngineRow
from inferlab.units import number_text

COLOURS = {"llama.cpp": TEAL, "transformers": PURPLE, "OpenVINO": RED, "ONNX Runtime": OLIVE, "MLX": GREY}
PHASES = {"prefill": "prompt tokens/s until the first token", "decode": "tokens/s after the first token"}
ROW_PIXELS = 30


def engine_rates(comparison: EngineComparison, phase: str) -> go.Figure:
    """Tokens per second of each engine in one phase, "prefill" or "decode", on a logarithmic axis.

    Every turn is a point and the median a mark; prefill counts the prompt's tokens over the time to the first token.
    """
    rates = {row.name: _rates(comparison, row, phase) for row in comparison.rows}
    text = "; ".join(f"{name} {number_text(median(values))}" for name, values in rates.items())
    figure = blank(comparison.badge, f"Median {PHASES[phase]}: {text}.", x=PHASES[phase])
    dot, mark = {"size": 6, "opacity": 0.3}, {"size": 15, "symbol": "line-ns-open", "line": {"width": 3}}
    for engine, colour in COLOURS.items():
        names = [row.name for row in comparison.rows if row.engine == engine]
        every = [(rate, name) for name in names for rate in rates[name]]
        medians = [(median(rates[name]), name) for name in names]
        for values, marker in ((every, dot), (medians, mark)):
            figure.add_scatter(
                x=[x for x, _ in values], y=[y for _, y in values], name=engine, mode="markers",
                marker={**marker, "color": colour}, showlegend=False,
                hovertemplate="%{x:.3g} tokens/s<extra>%{y}</extra>",
            )  # fmt: skip
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=list(rates)[::-1])
    figure.update_xaxes(type="log", tickvals=LOG_MARKS)
    figure.update_layout(height=190 + ROW_PIXELS * len(rates))
    return figure


def _rates(comparison: EngineComparison, row: EngineRow, phase: str) -> list[float]:
    if phase == "prefill":
        return [comparison.n_prompt / seconds for seconds in row.first_seconds]
    return [1 / seconds for seconds in row.step_seconds]
