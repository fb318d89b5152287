"""The decode rate along a conversation, as claimed and as bytes over bandwidth."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.style import RED, TEAL, blank, line, y_from_zero


def rate_against_depth(claimed: Mapping[int, float], computed: Mapping[int, float], badge: str) -> go.Figure:
    """Decode rate in tokens per second against the tokens in the context: as claimed, and as bytes over bandwidth."""
    text = "; ".join(f"at {n} tokens {rate:.0f} claimed" for n, rate in claimed.items())
    last = max(computed)
    figure = blank(
        badge,
        f"Decode rate along a conversation: {text}; computed {computed[last]:.1f} at {last} tokens.",
        "tokens in the context",
        "tokens per second",
    )
    line(figure, list(claimed.items()), "as claimed", RED)
    line(figure, list(computed.items()), "bytes over bandwidth", TEAL, marks=False)
    figure.update_traces(line_dash="dash", selector={"name": "as claimed"})
    figure.update_layout(showlegend=True)
    y_from_zero(figure)
    return figure
