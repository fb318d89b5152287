"""Decode rate against how long a waiting thread spins, idle and beside other programs."""

from __future__ import annotations

import plotly.graph_objects as go

from inferlab.figures.style import SERIES_COLOURS, blank, line, points, y_from_zero
from studies.operating_system.study import Waiting


def decode_against_spin(record: Waiting) -> go.Figure:
    """Tokens per second of every pass and the median against GOMP_SPINCOUNT, a line for each situation.

    A pass without a result within the limit has the rate 0. The last value is libgomp's own.
    """
    lines = {name: [case for case in record.cases if case.situation == name] for name in record.situations}
    text = "; ".join(
        f"{name}: " + ", ".join(f"{case.label} {case.rate:.3g}" for case in cases) for name, cases in lines.items()
    )
    figure = blank(
        record.badge, f"Decode rate in tokens per second. {text}.", x="GOMP_SPINCOUNT", y="decode, tokens per second"
    )
    for (name, cases), colour in zip(lines.items(), SERIES_COLOURS, strict=False):
        points(figure, [(case.label, rate) for case in cases for rate in case.rates], name, colour)
        figure.data[-1].update(showlegend=False)
        line(figure, [(case.label, case.rate) for case in cases], name, colour)
    figure.update_layout(showlegend=True, xaxis_type="category", margin_t=72, height=440)
    y_from_zero(figure)
    return figure
