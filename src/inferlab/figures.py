"""What a measurement looks like: records in, plotly figures out, no input or output of its own.

Every figure carries a text alternative in `layout.meta["alt"]` and, below its axes, the badge of its data.
Backgrounds are transparent and text has no colour of its own: the page and JupyterLab set theirs.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from textwrap import wrap

import plotly.graph_objects as go
import plotly.io as pio
from plotly.io.base_renderers import MimetypeRenderer

from inferlab.run import Run, ttft_seconds
from inferlab.units import MIB, bytes_text, rate_text, seconds_text

PREFILL = "#3b82c4"
DECODE = "#d97706"
WEIGHTS, KV_CACHE, COMPUTE, OUTPUT = "#6b7280", "#0f9d8a", "#a855c7", "#c0563c"
KIND_COLOURS = {"weights": WEIGHTS, "kv_cache": KV_CACHE, "compute": COMPUTE, "output": OUTPUT}
KIND_NAMES = {"weights": "weights", "kv_cache": "KV cache", "compute": "compute", "output": "output"}
BADGE_COLUMNS = 62


def timeline(run: Run) -> go.Figure:
    """One pass on a clock: the prefill as one bar, then a bar for each token until it is known."""
    one = sorted(run.passes, key=lambda p: p.token_seconds[-1])[len(run.passes) // 2]
    ends = [1e3 * t for t in one.token_seconds]
    gaps = [after - before for before, after in pairwise(ends)]
    figure = _figure(
        run,
        f"Time line of one request: {run.n_prompt} prompt tokens prefilled until {ends[0]:.1f} ms, "
        f"then {len(gaps)} tokens decoded one after another until {ends[-1]:.1f} ms.",
        x="milliseconds since the call",
    )
    figure.add_bar(
        y=["prefill"], x=[ends[0]], orientation="h", name="prefill", marker_color=PREFILL,
        hovertemplate=f"{run.n_prompt} prompt tokens<br>first token after %{{x:.2f}} ms<extra></extra>",
    )  # fmt: skip
    figure.add_bar(
        y=["decode"] * len(gaps), x=gaps, base=ends[:-1], orientation="h", name="decode", marker_color=DECODE,
        marker_line={"width": 0.5, "color": "rgba(255,255,255,0.7)"},
        hovertemplate="token known at %{base:.2f} + %{x:.2f} ms<extra></extra>",
    )  # fmt: skip
    figure.update_layout(barmode="overlay", height=300, yaxis={"autorange": "reversed"})
    return figure


def ttft_against_prompt(runs: Sequence[Run]) -> go.Figure:
    """Time to first token against prompt length: every pass a point, the medians joined."""
    figure = _figure(
        runs[0],
        "Time to first token against prompt length: "
        + "; ".join(f"{r.n_prompt} tokens {seconds_text(r.ttft_seconds)}" for r in runs),
        x="prompt tokens",
        y="time to first token, ms",
    )
    points = [(r.n_prompt, 1e3 * t) for r in runs for t in map(ttft_seconds, r.passes) if t is not None]
    _scatter(figure, points, "one pass", PREFILL, faint=True)
    _line(figure, [(r.n_prompt, 1e3 * r.ttft_seconds) for r in runs], "median", PREFILL)
    figure.update_yaxes(rangemode="tozero")
    figure.update_xaxes(rangemode="tozero")
    return figure


def token_times(run: Run) -> go.Figure:
    """Engine time of each decoded token along the generation: every pass faint, the median on top."""
    columns = list(zip(*(p.decode_seconds for p in run.passes), strict=False))
    middle = [1e3 * median(column) for column in columns]
    typical = seconds_text(median(middle) / 1e3 if middle else None)
    figure = _figure(
        run,
        f"Engine time of each decoded token: median {typical} "
        f"over {len(middle)} tokens and {len(run.passes)} passes.",
        x="token in the answer",
        y="engine time, ms",
    )
    every = [(i + 2, 1e3 * s) for p in run.passes for i, s in enumerate(p.decode_seconds)]
    _scatter(figure, every, "one pass", DECODE, faint=True)
    _line(figure, [(i + 2, ms) for i, ms in enumerate(middle)], "median", DECODE, markers=False)
    figure.update_yaxes(rangemode="tozero")
    return figure


def buffers(run: Run) -> go.Figure:
    """What llama.cpp allocated, stacked by kind for each device."""
    devices = list(dict.fromkeys(b.device for b in run.buffers))
    told = "; ".join(f"{b.device} {KIND_NAMES[b.kind]} {bytes_text(b.n_bytes)}" for b in run.buffers)
    figure = _figure(run, f"Buffers by device: {told}.", x="MiB")
    for kind, name in KIND_NAMES.items():
        sizes = {b.device: b.n_bytes / MIB for b in run.buffers if b.kind == kind}
        if sizes:
            figure.add_bar(
                y=devices, x=[sizes.get(device, 0) for device in devices], name=name, orientation="h",
                marker_color=KIND_COLOURS[kind], hovertemplate=f"{name} %{{x:.2f}} MiB<extra>%{{y}}</extra>",
            )  # fmt: skip
    figure.update_layout(barmode="stack", showlegend=True, height=220 + 50 * len(devices))
    figure.update_yaxes(autorange="reversed")
    return figure


def requests(runs: Sequence[Run]) -> go.Figure:
    """Each measured request as one bar: time to first token, then the rest of the answer."""
    names = [f"{i}: {r.n_prompt} → {r.n_gen}{_where(r)}" for i, r in enumerate(runs, 1)]
    ttft = [1e3 * r.ttft_seconds for r in runs]
    rest = [1e3 * (r.inter_token_seconds or 0) * (r.n_gen - 1) for r in runs]
    bars = zip(names, ttft, rest, strict=True)
    told = "; ".join(f"{name} tokens: {a:.1f} ms prefill, {b:.1f} ms decode" for name, a, b in bars)
    figure = _figure(runs[0] if runs else None, f"Measured requests: {told or 'none yet'}.", x="milliseconds")
    figure.add_bar(y=names, x=ttft, name="prefill", orientation="h", marker_color=PREFILL)
    figure.add_bar(y=names, x=rest, name="decode", orientation="h", marker_color=DECODE)
    figure.update_layout(barmode="stack", showlegend=True, height=220 + 32 * max(2, len(runs)))
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def live(figure: go.Figure) -> go.FigureWidget:
    """The same figure as a widget that JupyterLab can redraw in place."""
    return go.FigureWidget(figure)


def redraw(shown: go.FigureWidget, figure: go.Figure) -> None:
    """Let a widget show another figure."""
    with shown.batch_update():
        shown.data = ()
        shown.add_traces(list(figure.data))
        shown.layout = figure.layout


def summary(run: Run) -> str:
    """The four numbers of a run in one line of text."""
    return (
        f"TTFT {seconds_text(run.ttft_seconds)} · prefill {rate_text(run.prefill_tokens_per_second)} · "
        f"decode {rate_text(run.decode_tokens_per_second)} · {seconds_text(run.inter_token_seconds)} per token"
    )


def _where(run: Run) -> str:
    return f", {run.settings.n_gpu_layers} layers on the GPU" if run.machine.gpus else ""


def _figure(run: Run | None, alt: str, x: str = "", y: str = "") -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        meta={"alt": alt},
        template="none",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 60, "r": 16, "t": 24, "b": 104},
        height=400,
        showlegend=False,
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom"},
        bargap=0.35,
    )
    figure.update_xaxes(title=x, automargin=True)
    figure.update_yaxes(title=y, automargin=True)
    if run is not None:
        _write_badge(figure, run.badge)
    return figure


def _write_badge(figure: go.Figure, badge: str) -> None:
    figure.add_annotation(
        text="<br>".join(wrap(badge, BADGE_COLUMNS)), showarrow=False, align="left", font={"size": 11},
        xref="paper", x=0, xanchor="left", yref="paper", y=0, yanchor="top", yshift=-52, opacity=0.75,
    )  # fmt: skip


def _scatter(figure: go.Figure, points, name: str, colour: str, faint: bool = False) -> None:
    x, y = zip(*points, strict=True) if points else ((), ())
    marker = {"color": colour, "opacity": 0.3 if faint else 1, "size": 6}
    figure.add_scatter(x=x, y=y, name=name, mode="markers", marker=marker, hovertemplate="%{x}: %{y:.3f}")


def _line(figure: go.Figure, points, name: str, colour: str, markers: bool = True) -> None:
    x, y = zip(*points, strict=True) if points else ((), ())
    mode = "lines+markers" if markers else "lines"
    figure.add_scatter(x=x, y=y, name=name, mode=mode, line={"color": colour, "width": 2}, marker={"size": 8})


class PageRenderer(MimetypeRenderer):
    """A plotly figure as HTML for the built page: its JSON, drawn by the page's own script.

    `layout.meta["alt"]` becomes the text alternative; a figure with a slider or buttons stays operable.
    """

    def to_mimebundle(self, fig_dict: dict) -> dict[str, str]:
        layout = fig_dict.get("layout", {})
        alt = html.escape((layout.get("meta") or {}).get("alt", ""))
        role = "group" if layout.get("sliders") or layout.get("updatemenus") else "img"
        drawing = pio.to_json(fig_dict, validate=False).replace("</", "<\\/")
        return {
            "text/html": f'<div class="lab-figure" role="{role}" aria-label="{alt}" '
            f'style="height: {layout.get("height") or 400}px">'
            f'<script type="application/json">{drawing}</script><noscript>{alt}</noscript></div>'
        }


def register_page_renderer() -> None:
    """Make every figure shown in this process a `PageRenderer` figure."""
    pio.renderers["page"] = PageRenderer()
    pio.renderers.default = "page"
