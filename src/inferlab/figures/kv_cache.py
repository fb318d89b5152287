"""Bytes of the KV cache: reserved and used in measurements."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import OLIVE, TEAL, blank, space_beside_bars
from inferlab.measurement.run import Run
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.units import MIB


def cache_runs(runs: Sequence[Run]) -> go.Figure:
    """Reserved and used bytes of each measured cache, with the time of a token beside them."""
    names = [f"{i}: {r.n_prompt + r.n_gen} of {r.settings.n_ctx}, {r.settings.type_k}" for i, r in enumerate(runs, 1)]
    reserved = [r.bytes_on("kv_cache") / MIB for r in runs]
    used = [m * (r.n_prompt + r.n_gen) / n_ctx_of(r.settings) for m, r in zip(reserved, runs, strict=True)]
    times = [1e3 / median(r.points("decode_tokens_per_second")) for r in runs]
    texts = [f"{t:.2f} ms a token" for t in times]
    text = "; ".join(
        f"{n} tokens: {a:.2f} MiB reserved, {b:.2f} in use, {t:.2f} ms a token"
        for n, a, b, t in zip(names, reserved, used, times, strict=True)
    )
    badge = runs[0].badge if runs else None
    figure = blank(badge, f"Measured caches: {text or 'none yet'}.", "MiB")
    figure.add_bar(
        y=names,
        x=reserved,
        name="reserved",
        orientation="h",
        marker_color=TEAL,
        textposition="outside",
        text=texts,
        cliponaxis=False,
    )
    figure.add_bar(y=names, x=used, name="in use", orientation="h", marker_color=OLIVE)
    figure.update_layout(showlegend=True, height=240 + 60 * max(2, len(runs)))
    figure.update_xaxes(range=space_beside_bars(names, reserved, texts))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure
