"""Where the time of a token goes between llama-bench and a client of llama-server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, GREY, OLIVE, PURPLE, TEAL, blank, stacked
from inferlab.measurement.base import common_badge
from studies.sampling_cost.study import SPLIT, BenchmarkPrograms

COLOURS = {"decode": DECODE, "server's loop": GREY, "streaming": TEAL, "sampling": PURPLE, "way to the client": OLIVE}


def token_split(programs: BenchmarkPrograms, requests: Sequence[str] = SPLIT) -> go.Figure:
    """A bar for each kind of request, in microseconds for a token; a part that is no longer than noise is left out."""
    parts = {name: {part: 1e6 * s for part, s in programs.token_parts(name).items()} for name in requests}
    text = "; ".join(f"{name}: {_words(seconds)}" for name, seconds in parts.items())
    figure = blank(
        common_badge([programs]), f"Microseconds of a token over HTTP. {text}.", x="microseconds for a token"
    )
    for part, colour in COLOURS.items():
        figure.add_bar(
            y=list(parts),
            x=[max(0.0, seconds[part]) for seconds in parts.values()],
            orientation="h",
            name=part,
            marker_color=colour,
            hovertemplate=f"%{{y}}: {part} %{{x:.3g}} µs<extra></extra>",
        )
    stacked(figure, len(parts))
    return figure


def _words(parts: Mapping[str, float]) -> str:
    return ", ".join(f"{part} {max(0.0, micros):.3g}" for part, micros in parts.items())
