"""Bytes of the KV cache: by formula, and reserved and used in a measurement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import GREY, OLIVE, PURPLE, RED, TEAL, blank, dashed_line, room_beside_bars, y_from_zero
from inferlab.measurement.run import Run
from inferlab.model.ggml_types import padded
from inferlab.units import MIB, bytes_text

RESERVED, READ, GROWTH = TEAL, PURPLE, GREY
RIGHT, WRONG = TEAL, RED


def kv_formulas(readings: Mapping[str, int], engine_bytes: int, badge: str) -> go.Figure:
    """Bytes of the KV cache by several formulas, and a line at the bytes that the engine reserved."""
    text = "; ".join(f"{name} {bytes_text(n_bytes)}" for name, n_bytes in readings.items())
    figure = blank(badge, f"KV cache by formula: {text}. The engine reserved {bytes_text(engine_bytes)}.", x="MiB")
    colours = [RIGHT if name == "right" else WRONG for name in readings]
    figure.add_bar(
        y=[f"{name}: {n_bytes / engine_bytes:.2f} times" for name, n_bytes in readings.items()],
        x=[n_bytes / MIB for n_bytes in readings.values()],
        orientation="h",
        marker_color=colours,
        hovertemplate="%{y}: %{x:.2f} MiB<extra></extra>",
    )
    figure.add_vline(engine_bytes / MIB, line={"color": RIGHT, "dash": "dash", "width": 2}, layer="below")
    figure.update_layout(height=220 + 34 * len(readings))
    figure.update_xaxes(range=[0, 1.05 * max(*readings.values(), engine_bytes) / MIB])
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def cache_use(run: Run) -> go.Figure:
    """MiB of the KV cache during one answer: reserved, in use, read by a step, and the growth of the engine's process.

    Against the tokens in the context. The growth comes from the run's samples, if it has any.
    """
    one, reserved = run.passes[-1], run.bytes_on("kv_cache") / MIB
    cell = reserved / run.settings.n_ctx
    tokens = list(range(run.n_prompt, run.n_prompt + len(one.token_seconds)))
    looked_at = [cell * padded(n + 1) for n in tokens]
    grown = _grown(run)
    text = f"reserved {reserved:.2f} MiB throughout; in use from {cell * tokens[0]:.2f} to {cell * tokens[-1]:.2f} MiB"
    more = f"; the engine's process grew by at most {max(0.01, *(y for _, y in grown)):.2f} MiB" if grown else ""
    figure = blank(run.badge, f"The KV cache along an answer: {text}{more}.", "tokens in the context", "MiB")
    dashed_line(figure, [(n, reserved) for n in tokens], "reserved", RESERVED, "solid")
    dashed_line(figure, list(zip(tokens, looked_at, strict=True)), "looked at by a step", READ, "solid", shape="hv")
    dashed_line(figure, [(n, cell * n) for n in tokens], "in use", OLIVE, "solid")
    if grown:
        dashed_line(figure, grown, "growth of the process", GROWTH, "dash")
    figure.update_layout(showlegend=True, height=440, legend={"orientation": "v"}, margin={"t": 104})
    y_from_zero(figure)
    return figure


def _grown(run: Run) -> list[tuple[int, float]]:
    """(tokens in the context, MiB more than at the first token) of the last pass, from samples within it."""
    one, found = run.passes[-1], []
    for sample in run.samples:
        n_done = sum(one.began + at <= sample.seconds for at in one.token_seconds) if one.began is not None else 0
        if 0 < n_done < len(one.token_seconds) and sample.rss_bytes is not None:
            found.append((run.n_prompt + n_done - 1, sample.rss_bytes))
    return [(n, (rss - found[0][1]) / MIB) for n, rss in found]


def cache_runs(runs: Sequence[Run]) -> go.Figure:
    """Reserved and used bytes of each measured cache, with the time of a token beside them."""
    names = [f"{i}: {r.n_prompt + r.n_gen} of {r.settings.n_ctx}, {r.settings.type_k}" for i, r in enumerate(runs, 1)]
    reserved = [r.bytes_on("kv_cache") / MIB for r in runs]
    used = [m * (r.n_prompt + r.n_gen) / r.settings.n_ctx for m, r in zip(reserved, runs, strict=True)]
    times = [1e3 / r.decode_tokens_per_second for r in runs]
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
        marker_color=RESERVED,
        textposition="outside",
        text=texts,
        cliponaxis=False,
    )
    figure.add_bar(y=names, x=used, name="in use", orientation="h", marker_color=OLIVE)
    figure.update_layout(showlegend=True, height=240 + 60 * max(2, len(runs)))
    figure.update_xaxes(range=room_beside_bars(names, reserved, texts))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure
