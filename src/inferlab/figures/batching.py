"""Batched decode: rate and step time against the number of sequences."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.style import (
    DECODE,
    EDGE,
    GREY,
    LOG_MARKS,
    PURPLE,
    SERIES_COLOURS,
    blank,
    line,
    points,
    samples_and_medians,
    tick_values,
    y_from_zero,
)
from inferlab.measurement.base import common_badge
from inferlab.measurement.batching import BatchedDecode


def batch_rates(measured: BatchedDecode) -> go.Figure:
    """Tokens per second against the number of sequences: all together, each, and (dotted) n times one."""
    batches, alone = measured.points, measured.at(1).tokens_per_second
    sizes = [one.n_sequences for one in batches]
    figure = blank(
        measured.badge,
        "Tokens per second, all together and each: "
        + "; ".join(f"{c.n_sequences}: {c.tokens_per_second:.1f}, {c.each_tokens_per_second:.1f}" for c in batches)
        + ".",
        x="sequences at once",
        y="tokens/s",
    )
    figure.add_scatter(
        x=sizes, y=[n * alone for n in sizes], name="n times one", mode="lines", line={"color": EDGE, "dash": "dot"}
    )
    for name, colour, of in (
        ("all together", DECODE, lambda n, s: n / s),
        ("each of them", PURPLE, lambda n, s: 1 / s),
    ):
        every = [(one.n_sequences, of(one.n_sequences, s)) for one in measured.points for s in one.step_seconds]
        medians = [(c.n_sequences, of(c.n_sequences, c.median_seconds)) for c in measured.points]
        samples_and_medians(figure, every, medians, name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", tickvals=tick_values(sizes, log=True))
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    return figure


def batch_steps(measured: BatchedDecode, expected: Mapping[int, float] | None = None) -> go.Figure:
    """Milliseconds of a step against the number of sequences in it: every step a point, the medians joined.

    expected  seconds by number of sequences, drawn as a dotted line
    """
    figure = blank(
        measured.badge,
        "Engine time of a step with one token for each sequence: "
        + "; ".join(f"{one.n_sequences}: {1e3 * one.median_seconds:.2f} ms" for one in measured.points)
        + ".",
        x="sequences at once",
        y="ms a step",
    )
    points(figure, [(b.n_sequences, 1e3 * s) for b in measured.points for s in b.step_seconds], "one step", DECODE)
    line(figure, [(one.n_sequences, 1e3 * one.median_seconds) for one in measured.points], "median", DECODE)
    if expected:
        line(figure, [(n, 1e3 * seconds) for n, seconds in expected.items()], "expected", GREY, marks=False)
        figure.data[-1].line.dash = "dot"
        figure.data[0].showlegend = False
        figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=tick_values([one.n_sequences for one in measured.points]))
    y_from_zero(figure)
    return figure


def batch_steps_by_kernel(found: Mapping[str, BatchedDecode]) -> go.Figure:
    """Milliseconds of a step against the number of sequences in it: a line for each name, every step a point."""
    text = "; ".join(
        f"{name}: " + ", ".join(f"{b.n_sequences} {1e3 * b.median_seconds:.1f} ms" for b in one.points)
        for name, one in found.items()
    )
    first = next(iter(found.values()))
    figure = blank(
        common_badge(list(found.values())),
        f"Engine time of a step by sequences. {text}.",
        x="sequences at once",
        y="ms a step",
    )
    for (name, one), colour in zip(found.items(), SERIES_COLOURS, strict=False):
        every = [(b.n_sequences, 1e3 * s) for b in one.points for s in b.step_seconds]
        medians = [(b.n_sequences, 1e3 * b.median_seconds) for b in one.points]
        samples_and_medians(figure, every, medians, name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=tick_values([one.n_sequences for one in first.points]))
    y_from_zero(figure)
    return figure
