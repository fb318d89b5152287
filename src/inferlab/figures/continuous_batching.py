"""Continuous batching: which request occupies which slot, and when."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.style import SERIES_COLOURS, blank
from inferlab.measurement.continuous_batching import Schedule

SMALLEST_NUMBER = 9
"""Pixels of a request's number in its bar; one that would be smaller is left out."""


def slots(schedules: Mapping[str, Schedule]) -> go.Figure:
    """Each request as a bar in its slot over engine time, for several schedules of the same requests."""
    text = "; ".join(
        f"{name}: {one.seconds:.2f} s for {len(one.answered)} requests, slots busy {100 * one.busy_share:.0f} %"
        for name, one in schedules.items()
    )
    figure = blank(next(iter(schedules.values())).badge, f"Requests in slots. {text}.", x="seconds of engine time")
    for (name, one), colour in zip(schedules.items(), SERIES_COLOURS, strict=False):
        _answer_bars(figure, name, one, colour)
    n_rows = sum(one.n_slots for one in schedules.values())
    figure.update_layout(barmode="overlay", height=190 + 30 * n_rows, bargap=0.15)
    figure.update_layout(uniformtext={"minsize": SMALLEST_NUMBER, "mode": "hide"})
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def _answer_bars(figure: go.Figure, name: str, one: Schedule, colour: str) -> None:
    found = sorted(one.answered, key=lambda a: (a.slot, a.began_seconds))
    figure.add_bar(
        y=[f"{name} {a.slot + 1}" for a in found], x=[a.ended_seconds - a.began_seconds for a in found],
        base=[a.began_seconds for a in found], orientation="h", name=name, marker_color=colour,
        marker_line={"width": 1, "color": "rgba(255,255,255,0.8)"}, text=[a.number for a in found],
        textposition="inside", textangle=0, insidetextanchor="middle", insidetextfont={"color": "white"},
        customdata=[a.request.n_gen for a in found],
        hovertemplate="request %{text}: %{customdata} tokens, began at %{base:.2f} s<extra></extra>",
    )  # fmt: skip
