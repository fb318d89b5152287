"""What a measurement looks like: records in, plotly figures out, no input or output of its own.

Every figure carries a text alternative in `layout.meta["alt"]` and, below its axes, the badge of its data.
Backgrounds are transparent and text has no colour of its own: the page and JupyterLab set theirs.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from textwrap import wrap

import plotly.graph_objects as go
import plotly.io as pio
from plotly.io.base_renderers import MimetypeRenderer

from inferlab.run import Run, ttft_seconds
from inferlab.telemetry import PCIE_FIELDS, Sample
from inferlab.units import GIB, MB, MIB, bytes_text, rate_text, seconds_text

PREFILL = "#3b82c4"
DECODE = "#d97706"
WEIGHTS, KV_CACHE, COMPUTE, OUTPUT = "#6b7280", "#0f9d8a", "#a855c7", "#c0563c"
KIND_COLOURS = {"weights": WEIGHTS, "kv_cache": KV_CACHE, "compute": COMPUTE, "output": OUTPUT}
KIND_NAMES = {"weights": "weights", "kv_cache": "KV cache", "compute": "compute", "output": "output"}
READING = "#64748b"
DASHES = {"solid": "━", "dot": "┅", "dash": "╍", "longdash": "╌"}
BADGE_COLUMNS = 62
PASSES_PIXELS, PANEL_PIXELS, GAP_PIXELS = 34, 84, 34


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


def telemetry(run: Run) -> go.Figure:
    """What the machine did during the counted passes: a panel for each kind of reading, on the passes' time axis.

    A panel of which nothing is known is left out; the line below the figure says which, and why.
    """
    panels = _panels(run.samples)
    shown, unknown = [p for p in panels if p.lines], _unknown(run, panels)
    told = [f"{p.title}: {', '.join(_range_text(line) for line in p.lines if not line.faint)}." for p in shown]
    badge = " ".join([f"{run.badge}.", *unknown])
    figure = _figure(None, " ".join([_sampling_text(run), *told, *unknown]))
    _stack(figure, len(shown), len(wrap(badge, BADGE_COLUMNS, break_on_hyphens=False)))
    _spans(figure, run)
    for row, panel in enumerate(shown, 2):
        _draw_panel(figure, panel, row)
    title = {"text": "seconds since the first counted call", "standoff": 8}
    figure.update_xaxes(title=title, row=1 + len(shown), col=1)
    _write_badge(figure, badge)
    return figure


@dataclass(frozen=True)
class Line:
    """Readings in the order of time, None where unknown; `held` if a value speaks for the interval before it."""

    name: str
    points: tuple[tuple[float, float | None], ...]
    held: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Panel:
    """One kind of reading: the fields of `Sample` it is made from, and the lines of those that are known."""

    title: str
    fields: tuple[str, ...]
    lines: tuple[Line, ...]


def _panels(samples: Sequence[Sample]) -> list[Panel]:
    reads = (_rate(samples, "process_read_bytes", "engine"), _rate(samples, "machine_read_bytes", "whole machine"))
    panels = [
        Panel("Processors busy, %", ("cpu_percent",), _processors(samples)),
        Panel("Memory of the engine's process, MiB", ("rss_bytes",), (_level(samples, "rss_bytes", MIB),)),
        Panel("Read from disk, MB/s", ("process_read_bytes", "machine_read_bytes"), reads),
        Panel("GPU utilization, %", ("gpu_utilization_percent",), _per_gpu(samples, "gpu_utilization_percent")),
        Panel("GPU power, W", ("power_watts",), _per_gpu(samples, "power_watts")),
        Panel("VRAM in use, GiB", ("vram_used_bytes",), _per_gpu(samples, "vram_used_bytes", GIB)),
        Panel("PCIe to the host, MB/s", PCIE_FIELDS[:1], _per_gpu(samples, PCIE_FIELDS[0], MB)),
        Panel("PCIe to the GPU, MB/s", PCIE_FIELDS[1:], _per_gpu(samples, PCIE_FIELDS[1], MB)),
    ]
    return [Panel(p.title, p.fields, tuple(filter(_is_known, p.lines))) for p in panels]


def _is_known(line: Line) -> bool:
    return any(value is not None for _, value in line.points)


def _level(samples: Sequence[Sample], field: str, unit: float) -> Line:
    values = [(sample.seconds, getattr(sample, field)) for sample in samples]
    return Line("", tuple((at, None if value is None else value / unit) for at, value in values))


def _rate(samples: Sequence[Sample], field: str, name: str) -> Line:
    """MB/s between neighbouring samples of a counter of bytes."""
    points = []
    for before, after in pairwise(samples):
        first, last = getattr(before, field), getattr(after, field)
        seconds = after.seconds - before.seconds
        points.append((after.seconds, None if first is None or last is None else (last - first) / MB / seconds))
    return Line(name, tuple(points), held=True)


def _processors(samples: Sequence[Sample]) -> tuple[Line, ...]:
    told = [(sample.seconds, sample.cpu_percent) for sample in samples if sample.cpu_percent]
    mean = Line("all together", tuple((at, fmean(percents)) for at, percents in told), held=True)
    each = zip(*(percents for _, percents in told), strict=False)
    times = [at for at, _ in told]
    faint = (
        Line(f"processor {i}", tuple(zip(times, column, strict=True)), True, True) for i, column in enumerate(each)
    )
    return (mean, *faint)


def _per_gpu(samples: Sequence[Sample], field: str, unit: float = 1) -> tuple[Line, ...]:
    """A line for each GPU, which is named where there are several."""
    values = [(sample.seconds, getattr(sample, field)) for sample in samples]
    n_gpus = max((len(value) for _, value in values if value), default=0)
    lines = []
    for gpu in range(n_gpus):
        one = [(at, value[gpu] if value else None) for at, value in values]
        whose = f"GPU {gpu}" if n_gpus > 1 else ""
        lines.append(Line(whose, tuple((at, None if value is None else value / unit) for at, value in one)))
    return tuple(lines)


def _unknown(run: Run, panels: Sequence[Panel]) -> list[str]:
    """Sentences about what could not be read: panels that are left out, panels with gaps, each with the reason."""
    missing = run.sampling.missing if run.sampling else {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for panel in panels:
        reason = next((missing[field] for field in panel.fields if field in missing), "")
        if reason or not panel.lines:
            how = "Known in part" if panel.lines else "Not reported here"
            reasons.setdefault((how, reason), []).append(panel.title.split(",")[0])
    if not run.samples:
        return ["No telemetry was taken."]
    return [f"{how}: {', '.join(names)}{f' ({why})' if why else ''}." for (how, why), names in reasons.items()]


def _sampling_text(run: Run) -> str:
    if not run.samples:
        return f"{len(run.passes)} passes."
    seconds = seconds_text(run.samples[-1].seconds - run.samples[0].seconds)
    every = f", one every {seconds_text(run.sampling.interval_seconds)}" if run.sampling else ""
    return f"Telemetry of {len(run.passes)} passes: {len(run.samples)} samples over {seconds}{every}."


def _range_text(line: Line) -> str:
    values = [value for _, value in line.points if value is not None]
    return f"{line.name} mean {fmean(values):.4g}, between {min(values):.4g} and {max(values):.4g}".strip()


def _stack(figure: go.Figure, n_panels: int, n_badge_lines: int) -> None:
    """Rows that share the time axis: a low one for the passes, then one for each panel."""
    heights = [PASSES_PIXELS, *[PANEL_PIXELS] * n_panels]
    inside = sum(heights) + GAP_PIXELS * n_panels
    figure.set_subplots(
        rows=len(heights), cols=1, shared_xaxes=True, row_heights=heights,
        vertical_spacing=GAP_PIXELS / inside if n_panels else 0,
    )  # fmt: skip
    margin = {"l": 48, "r": 16, "t": 32, "b": 60 + 15 * n_badge_lines}
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}
    figure.update_layout(
        height=inside + margin["t"] + margin["b"], margin=margin, showlegend=True, legend=legend, barmode="overlay"
    )
    figure.update_xaxes(zeroline=False)
    figure.update_yaxes(rangemode="tozero", nticks=4, automargin=True)
    figure.update_yaxes(showticklabels=False, showgrid=False, fixedrange=True, row=1, col=1)


def _spans(figure: go.Figure, run: Run) -> None:
    """Each pass as two bars, and their colours behind every panel."""
    called = [p for p in run.passes if p.began is not None and p.token_seconds]
    times = [0.0, *(p.began + p.token_seconds[-1] for p in called), *(sample.seconds for sample in run.samples)]
    figure.update_xaxes(range=[min(times), max(times)])
    prefill = [(p.began, p.token_seconds[0]) for p in called]
    decode = [(p.began + p.token_seconds[0], p.token_seconds[-1] - p.token_seconds[0]) for p in called]
    for name, colour, spans in (("prefill", PREFILL, prefill), ("decode", DECODE, decode)):
        starts, lengths = [start for start, _ in spans], [length for _, length in spans]
        figure.add_bar(
            y=["pass"] * len(spans), base=starts, x=lengths, orientation="h", name=name, marker_color=colour, width=0.8,
            hovertemplate=f"{name}: from %{{base:.3f}} s, %{{x:.3f}} s long<extra></extra>", row=1, col=1,
        )  # fmt: skip
        for start, length in spans:
            figure.add_shape(
                type="rect", x0=start, x1=start + length, xref="x", y0=0, y1=1, yref="paper",
                fillcolor=colour, opacity=0.1, line_width=0, layer="below",
            )  # fmt: skip


def _draw_panel(figure: go.Figure, panel: Panel, row: int) -> None:
    bold = [line for line in panel.lines if not line.faint]
    dashes = dict(zip((line.name for line in bold), DASHES, strict=False))
    for line in sorted(panel.lines, key=lambda line: not line.faint):
        style = {"color": READING, "dash": dashes.get(line.name, "solid"), "width": 1 if line.faint else 2}
        figure.add_scatter(
            x=[at for at, _ in line.points], y=[value for _, value in line.points], mode="lines", name=line.name,
            line={**style, "shape": "vh" if line.held else "linear"}, opacity=0.5 if line.faint else 1,
            showlegend=False, hovertemplate=f"%{{x:.2f}} s: %{{y:.4g}}<extra>{line.name}</extra>", row=row, col=1,
        )  # fmt: skip
    if panel.title.endswith("%"):
        figure.update_yaxes(range=[0, 108], tickvals=[0, 50, 100], row=row, col=1)
    key = ", ".join(f"{DASHES[dashes.get(line.name, 'longdash')]} {line.name}" for line in bold if line.name)
    key += ", thin: each" if len(bold) < len(panel.lines) else ""
    figure.add_annotation(
        text=f"{panel.title}{': ' if key else ''}{key}", showarrow=False, font={"size": 12}, xref="paper", x=0,
        xanchor="left", yref=f"y{row} domain", y=1, yanchor="bottom",
    )  # fmt: skip


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
        text="<br>".join(wrap(badge, BADGE_COLUMNS, break_on_hyphens=False)), showarrow=False, align="left", font={"size": 11},
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
