"""Utilization of processors: one recording, averaged over windows of different length."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inferlab.figures.style import SERIES_COLOURS, blank, dashed_line
from inferlab.measurement.telemetry.samples import Sample
from studies.utilization.study import averaged

DASHES = ("solid", "dash", "dot")


def averaged_utilization(
    samples: Sequence[Sample], windows: Sequence[float] = (0.2, 1.0, 3.0), badge: str = ""
) -> go.Figure:
    """Mean utilization of all processors, in percent, over windows of each length in seconds."""
    means = {f"mean of {window:g} s": averaged(samples, window) for window in windows}
    ranges = [f"{name}: {min(v for _, v in m):.0f} to {max(v for _, v in m):.0f} %" for name, m in means.items()]
    figure = blank(badge, f"One recording, averaged. {'; '.join(ranges)}.", x="seconds", y="processors busy, %")
    for (name, values), window, colour, dash in zip(means.items(), windows, SERIES_COLOURS, DASHES, strict=False):
        steps = [point for end, value in values for point in ((end - window, value), (end, value))]
        dashed_line(figure, steps, name, colour, dash)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(range=[0, 104])
    figure.update_layout(showlegend=True)
    return figure
