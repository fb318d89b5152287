"""Time of a token, with and without a KV cache."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import RED, TEAL, blank, line, points, y_from_zero
from inferlab.measurement.run import Run


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
