"""Ratios of two sides that were measured in pairs, with their intervals, beside the controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, EDGE, LOG_MARKS, PREFILL, blank
from inferlab.measurement.base import common_badge
from inferlab.measurement.paired import Paired

PHASES = {"prefill": (PREFILL, "circle"), "decode": (DECODE, "diamond")}
ROW_PIXELS = 38
APART = 0.16  # of a row, between the two phases
SPAN = (0.45, 2.2)
"""The axis shows at least from half to double."""


def paired_ratios(pairs: Mapping[str, Paired], controls: Sequence[str] = ()) -> go.Figure:
    """Rate after over rate before of each comparison: the median ratio and its 95 % interval, for both phases.

    controls  the names whose two sides do the same; their marks are hollow
    """
    text = "; ".join(
        f"{name}{' (control)' if name in controls else ''}: "
        + ", ".join(f"{phase} {pair.compared(phase).range_text}" for phase in PHASES)
        for name, pair in pairs.items()
    )
    badge = common_badge([pair.before[0] for pair in pairs.values()])
    figure = blank(badge, f"Rate after a change over the rate before. {text}.", x="rate after / rate before")
    for phase, side in zip(PHASES, (-APART, APART), strict=True):
        _phase(figure, pairs, controls, phase, side)
    figure.add_vline(1, line={"color": EDGE, "width": 2})
    rows = list(range(len(pairs)))
    figure.update_yaxes(tickvals=rows, ticktext=list(pairs), range=[len(pairs) - 0.4, -0.6], zeroline=False)
    figure.update_xaxes(type="log", tickvals=LOG_MARKS, range=_range(pairs))
    figure.update_layout(showlegend=True, height=230 + ROW_PIXELS * len(pairs), margin_t=60)
    return figure


def _phase(figure: go.Figure, pairs: Mapping[str, Paired], controls: Sequence[str], phase: str, side: float) -> None:
    colour, symbol = PHASES[phase]
    compared = [pair.compared(phase) for pair in pairs.values()]
    figure.add_scatter(
        x=[rate.ratio for rate in compared],
        y=[row + side for row in range(len(pairs))],
        name=phase,
        mode="markers",
        marker={
            "color": colour,
            "size": 9,
            "symbol": [symbol + "-open" * (name in controls) for name in pairs],
            "line": {"color": colour, "width": 2},
        },
        error_x={
            "array": [rate.ends[1] - rate.ratio for rate in compared],
            "arrayminus": [rate.ratio - rate.ends[0] for rate in compared],
            "color": colour,
            "width": 5,
        },
        text=[f"{name}: {rate.range_text}" for name, rate in zip(pairs, compared, strict=True)],
        hovertemplate=f"%{{text}}<extra>{phase}</extra>",
    )


def _range(pairs: Mapping[str, Paired]) -> list[float]:
    """The ends of the logarithmic axis, in powers of ten."""
    ends = [end for pair in pairs.values() for phase in PHASES for end in pair.compared(phase).ends]
    return [log10(min(SPAN[0], 0.85 * min(ends))), log10(max(SPAN[1], 1.2 * max(ends)))]
