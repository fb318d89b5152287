"""Prefix reuse: time to the first token with and without a shared prefix in the cache.

Continuous batching: which request occupies which slot, and when.

Time of a token, with and without a KV cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import (
    PREFILL,
    RED,
    SERIES_COLOURS,
    TEAL,
    blank,
    line,
    points,
    samples_and_medians,
    tick_values,
    y_from_zero,
)
from inferlab.measurement.run import Run
from studies.cache_and_batch.continuous_batching import Schedule
from studies.cache_and_batch.prefix_cache import PrefixReuse

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
        y=[f"{name} {a.slot + 1}" for a in found],
        x=[a.ended_seconds - a.began_seconds for a in found],
        base=[a.began_seconds for a in found],
        orientation="h",
        name=name,
        marker_color=colour,
        marker_line={"width": 1, "color": "rgba(255,255,255,0.8)"},
        text=[a.number for a in found],
        textposition="inside",
        textangle=0,
        insidetextanchor="middle",
        insidetextfont={"color": "white"},
        customdata=[a.request.n_gen for a in found],
        hovertemplate="request %{text}: %{customdata} tokens, began at %{base:.2f} s<extra></extra>",
    )


def time_without_cache(runs: Sequence[Run]) -> go.Figure:
    """Engine time of the next token in ms against the tokens before it, without and with a KV cache.

    Without: prefill of the whole text. With: decode of one token at that depth. Medians of the passes.
    """
    lengths = [run.n_prompt for run in runs]
    again = [1e3 * run.prefill_seconds for run in runs]
    last = [1e3 * median(seconds for one in run.passes for seconds in one.decode_seconds) for run in runs]
    text = "; ".join(
        f"{n} tokens: {a:.2f} ms without, {b:.2f} ms with" for n, a, b in zip(lengths, again, last, strict=True)
    )
    figure = blank(
        runs[0].badge,
        f"Time for the next token, without a cache and with it. {text}.",
        x="tokens before it",
        y="engine time, ms",
    )
    every = [(run.n_prompt, 1e3 * one.prefill_seconds) for run in runs for one in run.passes]
    points(figure, every, "one pass", RED)
    line(figure, list(zip(lengths, again, strict=True)), "without a cache", RED)
    line(figure, list(zip(lengths, last, strict=True)), "with a cache", TEAL)
    figure.update_traces(selector={"name": "one pass"}, showlegend=False)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(rangemode="tozero")
    y_from_zero(figure)
    return figure
