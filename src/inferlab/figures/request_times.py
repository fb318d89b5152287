"""Requests over time: one pass, time to first token, and the time of each token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, EDGE, PREFILL, blank, line, points, stacked, y_from_zero
from inferlab.measurement.run import Run
from inferlab.model.ggml_types import CELL_STEP
from inferlab.units import rate_text, seconds_text


def timeline(run: Run) -> go.Figure:
    """One pass on a time axis: prefill as one bar, then a bar for each decoded token."""
    middle = sorted(run.passes, key=lambda p: p.token_seconds[-1])[len(run.passes) // 2]
    ends = [1e3 * t for t in middle.token_seconds]
    gaps = [after - before for before, after in pairwise(ends)]
    figure = blank(
        run.badge,
        f"Time line of one request: {run.n_prompt} prompt tokens prefilled until {ends[0]:.1f} ms, "
        f"then {len(gaps)} tokens decoded one after another until {ends[-1]:.1f} ms.",
        x="milliseconds since the call",
    )
    figure.add_bar(
        y=["prefill"],
        x=[ends[0]],
        orientation="h",
        name="prefill",
        marker_color=PREFILL,
        hovertemplate=f"{run.n_prompt} prompt tokens<br>first token after %{{x:.2f}} ms<extra></extra>",
    )
    figure.add_bar(
        y=["decode"] * len(gaps),
        x=gaps,
        base=ends[:-1],
        orientation="h",
        name="decode",
        marker_color=DECODE,
        marker_line={"width": 0.5, "color": EDGE},
        hovertemplate="token known at %{base:.2f} + %{x:.2f} ms<extra></extra>",
    )
    figure.update_layout(barmode="overlay", height=300)
    figure.update_yaxes(autorange="reversed")
    return figure


def ttft_against_prompt(runs: Sequence[Run]) -> go.Figure:
    """Time to first token against prompt length: every pass a point, the medians joined."""
    figure = blank(
        runs[0].badge,
        "Time to first token against prompt length: "
        + "; ".join(f"{r.n_prompt} tokens {seconds_text(r.ttft_seconds)}" for r in runs),
        x="prompt tokens",
        y="time to first token, ms",
    )
    points(figure, [(r.n_prompt, 1e3 * t) for r in runs for t in r.points("ttft_seconds")], "one pass", PREFILL)
    line(figure, [(r.n_prompt, 1e3 * median(r.points("ttft_seconds"))) for r in runs], "median", PREFILL)
    y_from_zero(figure)
    figure.update_xaxes(rangemode="tozero")
    return figure


def token_times(run: Run) -> go.Figure:
    """Engine time of each decoded token: every pass faint, the median on top.

    Vertical rules stand where prompt and answer together pass a multiple of 256 cells of the KV cache.
    The axis follows the medians; points above it are counted in the text alternative and in a note.
    """
    columns = list(zip(*(p.decode_seconds for p in run.passes), strict=False))
    middle = [1e3 * median(column) for column in columns]
    every = [(i + 2, 1e3 * s) for p in run.passes for i, s in enumerate(p.decode_seconds)]
    typical = median(middle) if middle else None
    top = 1 if typical is None else max(1.2 * max(middle), 2 * typical)
    text = seconds_text(None if typical is None else typical / 1e3)
    above = sum(ms > top for _, ms in every)
    figure = blank(
        run.badge,
        f"Engine time of each decoded token: median {text} over {len(middle)} tokens and {len(run.passes)} passes; "
        f"{above} of {len(every)} points lie above the top of the figure.",
        x="token in the answer",
        y="engine time, ms",
    )
    points(figure, every, "one pass", DECODE)
    line(figure, [(i + 2, ms) for i, ms in enumerate(middle)], "median", DECODE, marks=False)
    for cells in range(CELL_STEP, run.n_prompt + run.n_gen, CELL_STEP):
        if cells > run.n_prompt:
            figure.add_vline(cells - run.n_prompt + 1.5, line={"color": EDGE, "dash": "dot", "width": 1})
    if above:
        note = f"{above} of {len(every)} points above"
        figure.add_annotation(text=note, showarrow=False, xref="paper", x=1, yref="paper", y=1, yanchor="bottom")
    figure.update_yaxes(range=[0, top])
    return figure


def requests(runs: Sequence[Run]) -> go.Figure:
    """Each measured request as one bar: time to first token, then the rest of the answer."""
    names = [f"{i}: {r.n_prompt} → {r.n_gen}{_where(r)}" for i, r in enumerate(runs, 1)]
    ttft = [1e3 * median(r.points("ttft_seconds")) for r in runs]
    rest = [1e3 * (r.inter_token_seconds or 0) * (r.n_gen - 1) for r in runs]
    bars = zip(names, ttft, rest, strict=True)
    text = "; ".join(f"{name} tokens: {a:.1f} ms prefill, {b:.1f} ms decode" for name, a, b in bars)
    badge = runs[0].badge if runs else None
    figure = blank(badge, f"Measured requests: {text or 'none yet'}.", x="milliseconds")
    figure.add_bar(y=names, x=ttft, name="prefill", orientation="h", marker_color=PREFILL)
    figure.add_bar(y=names, x=rest, name="decode", orientation="h", marker_color=DECODE)
    stacked(figure, len(runs))
    return figure


def summary(run: Run) -> str:
    """The four numbers of a run in one line of text."""
    return (
        f"TTFT {seconds_text(run.ttft_seconds)} · prefill {rate_text(run.prefill_tokens_per_second)} · "
        f"decode {rate_text(run.decode_tokens_per_second)} · {seconds_text(run.inter_token_seconds)} per token"
    )


def _where(run: Run) -> str:
    return f", {run.settings.n_gpu_layers} layers on the GPU" if run.machine.gpus else ""
