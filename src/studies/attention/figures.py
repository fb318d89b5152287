"""Attention with the flash kernel and with a table of scores: memory and time against the number of tokens."""

from __future__ import annotations

import plotly.graph_objects as go

from inferlab.figures.style import LOG_MARKS, PURPLE, TEAL, blank, line, tick_values
from inferlab.units import MIB
from studies.attention.torch_attention import Timings

WAYS = {"flash": ("flash kernel", TEAL), "math": ("table of scores", PURPLE)}
QUANTITIES = {
    "extra_bytes": (lambda one: (one.extra_bytes or 0) / MIB, "MiB"),
    "seconds": (lambda one: one.median_seconds, "s"),
}


def attention_against_tokens(timings: Timings, quantity: str = "extra_bytes") -> go.Figure:
    """Memory or time of attention against the number of tokens, by both methods, on logarithmic axes.

    quantity  "extra_bytes" (drawn in MiB) or "seconds"
    """
    of, unit = QUANTITIES[quantity]
    known = {way: [(n, of(one)) for n, one in timings.of(way).items() if of(one)] for way in WAYS}
    text = "; ".join(f"{WAYS[w][0]}: " + ", ".join(f"{n} {v:.3g} {unit}" for n, v in own) for w, own in known.items())
    figure = blank(timings.badge, f"Attention by number of tokens: {text}.", x="tokens", y=unit)
    for way, own in known.items():
        line(figure, own, *WAYS[way])
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", tickvals=tick_values([n for n, _ in known["math"]], log=True))
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure
