"""Attention with the flash kernel and with a table of scores: memory against the number of tokens."""

from __future__ import annotations

import plotly.graph_objects as go

from inferlab.figures.style import LOG_MARKS, PURPLE, TEAL, blank, line, tick_values
from inferlab.units import MIB
from studies.attention.study import Timings

WAYS = {"flash": ("flash kernel", TEAL), "math": ("table of scores", PURPLE)}


def attention_against_tokens(timings: Timings) -> go.Figure:
    """MiB by which a process grows against the number of tokens, by both methods, on logarithmic axes."""
    known = {
        way: [(n, timing.extra_bytes / MIB) for n, timing in timings.by_tokens(way).items() if timing.extra_bytes]
        for way in WAYS
    }
    text = "; ".join(f"{WAYS[w][0]}: " + ", ".join(f"{n} {v:.3g} MiB" for n, v in own) for w, own in known.items())
    figure = blank(timings.badge, f"Attention by number of tokens: {text}.", x="tokens", y="MiB")
    for way, own in known.items():
        line(figure, own, *WAYS[way])
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", tickvals=tick_values([n for n, _ in known["math"]], log=True))
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure
