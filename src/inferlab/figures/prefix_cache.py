"""Prefix reuse: time to the first token with and without a shared prefix in the cache."""

from __future__ import annotations

from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import PREFILL, TEAL, blank, samples_and_medians, tick_values, y_from_zero
from inferlab.measurement.prefix_cache import PrefixReuse

REUSED = TEAL


def prefix_reuse(reuse: PrefixReuse) -> go.Figure:
    """Engine time to the first token in ms against the length of the shared prefix, with and without reuse."""
    ways = {"everything is read": "whole_seconds", "the beginning is shared": "reused_seconds"}
    text = "; ".join(
        f"{one.n_shared} shared tokens: {1e3 * median(one.whole_seconds):.1f} ms without, "
        f"{1e3 * median(one.reused_seconds):.1f} ms with reuse"
        for one in reuse.prefixes
    )
    figure = blank(
        reuse.badge, f"Time to the first token. {text}.", x="tokens of the common beginning", y="first token, ms"
    )
    for (name, of), colour in zip(ways.items(), (PREFILL, REUSED), strict=True):
        every = [(one.n_shared, 1e3 * s) for one in reuse.prefixes for s in getattr(one, of)]
        medians = [(one.n_shared, 1e3 * median(getattr(one, of))) for one in reuse.prefixes]
        samples_and_medians(figure, every, medians, name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=tick_values([one.n_shared for one in reuse.prefixes]), rangemode="tozero")
    y_from_zero(figure)
    return figure
