"""Generating with and without a KV cache: time of a token, and operations of a whole text."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import RED, TEAL, blank, line, points, y_from_zero
from inferlab.measurement.run import Run
from inferlab.model.gguf import Model
from inferlab.prediction import cost


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


def operations_without_cache(model: Model, lengths: Sequence[int]) -> go.Figure:
    """Operations to generate a text of each length, with and without a KV cache, on logarithmic axes."""
    kept = [cost.total_operations(model, n) / 1e12 for n in lengths]
    again = [cost.total_operations(model, n, cached=False) / 1e12 for n in lengths]
    text = "; ".join(f"{n} tokens {a:.3g} with, {b:.3g} without" for n, a, b in zip(lengths, kept, again, strict=True))
    name = model.name.removesuffix(" shape")
    figure = blank(
        f"computed from the shape of {name}",
        f"Trillions of operations to generate a text with {name}, with a cache and without: {text}.",
        x="tokens generated",
        y="trillions of operations",
    )
    line(figure, list(zip(lengths, again, strict=True)), "without a cache", RED)
    line(figure, list(zip(lengths, kept, strict=True)), "with a cache", TEAL)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    return figure
