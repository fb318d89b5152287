"""Telemetry: readings of processors, memory, disk and GPUs over the time of the passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, PREFILL, badge_lines, badge_margin, blank, from_zero, write_badge
from inferlab.measurement.run import Run
from inferlab.measurement.telemetry.samples import GPU_FIELDS, PCIE_FIELDS, Sample
from inferlab.units import GIB, MB, MIB, count_text, seconds_text

READING = "#64748b"
DASHES = {"solid": "━━", "dot": "•••", "dash": "━ ━", "longdash": "━━ ━"}
PANEL_STEPS = 3
PASSES_PIXELS, PANEL_PIXELS, GAP_PIXELS = 34, 84, 34


def telemetry(run: Run) -> go.Figure:
    """Readings during the counted passes: a panel for each kind, on the time axis of the passes.

    A panel without any reading is left out; the badge says which, and why.
    """
    panels = _panels(run)
    shown, unknown = [p for p in panels if p.lines], _unknown(run, panels)
    text = [f"{p.title}: {', '.join(_range_text(line) for line in p.lines if not line.faint)}." for p in shown]
    badge = " ".join([f"{run.badge}.", *unknown])
    figure = blank(None, " ".join([_sampling_text(run), *text, *unknown]))
    _stack(figure, len(shown), len(badge_lines(badge)))
    _spans(figure, run)
    for row, panel in enumerate(shown, 2):
        _draw_panel(figure, panel, row)
    title = {"text": "seconds since the first counted call", "standoff": 8}
    figure.update_xaxes(title=title, row=1 + len(shown), col=1)
    write_badge(figure, badge)
    return figure


@dataclass(frozen=True)
class Readings:
    """Readings in order of time, None where unknown; `held` if a value is the mean of the interval before it."""

    name: str
    points: tuple[tuple[float, float | None], ...]
    held: bool = False
    faint: bool = False


@dataclass(frozen=True)
class Panel:
    """One kind of reading: the fields of `Sample` it is made from, and the lines of those that are known."""

    title: str
    fields: tuple[str, ...]
    lines: tuple[Readings, ...]


def _panels(run: Run) -> list[Panel]:
    samples, names = run.samples, _gpu_names(run)
    reads = (_rate(samples, "process_read_bytes", "engine"), _rate(samples, "machine_read_bytes", "whole machine"))
    panels = [
        Panel("Processors busy, %", ("cpu_percent",), _processors(samples)),
        Panel("Memory of the engine's process, MiB", ("rss_bytes",), (_level(samples, "rss_bytes", MIB),)),
        Panel("Read from disk, MB/s", ("process_read_bytes", "machine_read_bytes"), reads),
        Panel("GPU utilization, %", ("gpu_utilization_percent",), _per_gpu(samples, names, "gpu_utilization_percent")),
        Panel("GPU power, W", ("power_watts",), _per_gpu(samples, names, "power_watts")),
        Panel("VRAM in use, GiB", ("vram_used_bytes",), _per_gpu(samples, names, "vram_used_bytes", GIB)),
        Panel("PCIe to the host, MB/s", PCIE_FIELDS[:1], _per_gpu(samples, names, PCIE_FIELDS[0], MB)),
        Panel("PCIe to the GPU, MB/s", PCIE_FIELDS[1:], _per_gpu(samples, names, PCIE_FIELDS[1], MB)),
    ]
    return [Panel(p.title, p.fields, tuple(filter(_is_known, p.lines))) for p in panels]


def _is_known(line: Readings) -> bool:
    return any(value is not None for _, value in line.points)


def _level(samples: Sequence[Sample], field: str, unit: float) -> Readings:
    values = [(sample.seconds, getattr(sample, field)) for sample in samples]
    return Readings("", tuple((at, None if value is None else value / unit) for at, value in values))


def _rate(samples: Sequence[Sample], field: str, name: str) -> Readings:
    """MB/s between neighbouring samples of a counter of bytes."""
    points = []
    for before, after in pairwise(samples):
        first, last = getattr(before, field), getattr(after, field)
        seconds = after.seconds - before.seconds
        points.append((after.seconds, None if first is None or last is None else (last - first) / MB / seconds))
    return Readings(name, tuple(points), held=True)


def _processors(samples: Sequence[Sample]) -> tuple[Readings, ...]:
    text = [(sample.seconds, sample.cpu_percent) for sample in samples if sample.cpu_percent]
    mean = Readings("all together", tuple((at, fmean(percents)) for at, percents in text), held=True)
    each = zip(*(percents for _, percents in text), strict=False)
    times = [at for at, _ in text]
    faint = (
        Readings(f"processor {i}", tuple(zip(times, column, strict=True)), True, True) for i, column in enumerate(each)
    )
    return (mean, *faint)


def _gpu_names(run: Run) -> tuple[str, ...]:
    """llama.cpp's name of each GPU that the driver shows, found by its place on the bus; else the driver's number."""
    values = [getattr(sample, field) for sample in run.samples for field in GPU_FIELDS]
    n_gpus = max((len(value) for value in values if value), default=0)
    known = {run.sampling.column(device): device.name for device in run.machine.gpus} if run.sampling else {}
    return tuple(known.get(gpu, f"GPU {gpu}") for gpu in range(n_gpus))


def _per_gpu(samples: Sequence[Sample], names: Sequence[str], field: str, unit: float = 1) -> tuple[Readings, ...]:
    """A line for each GPU, which is named where there are several."""
    values = [(sample.seconds, getattr(sample, field)) for sample in samples]
    n_gpus = max((len(value) for _, value in values if value), default=0)
    lines = []
    for gpu in range(n_gpus):
        own = [(at, value[gpu] if value else None) for at, value in values]
        whose = names[gpu] if n_gpus > 1 else ""
        lines.append(Readings(whose, tuple((at, None if value is None else value / unit) for at, value in own)))
    return tuple(lines)


def _unknown(run: Run, panels: Sequence[Panel]) -> list[str]:
    """Sentences about what could not be read: panels that are left out, panels with gaps, each with the reason."""
    missing = run.sampling.missing if run.sampling else {}
    reasons: dict[tuple[str, str], list[str]] = {}
    for panel in panels:
        reason = next((missing[field] for field in panel.fields if field in missing), "")
        for number, name in enumerate(_gpu_names(run)):
            reason = reason.replace(f"GPU {number}:", f"{name}:")
        if reason or not panel.lines:
            how = "Known in part" if panel.lines else "Not reported here"
            reasons.setdefault((how, reason), []).append(panel.title.split(",")[0])
    if not run.samples:
        return ["No telemetry was taken."]
    return [f"{how}: {', '.join(names)}{f' ({why})' if why else ''}." for (how, why), names in reasons.items()]


def _sampling_text(run: Run) -> str:
    passes = count_text(len(run.passes), "pass", "passes")
    if not run.samples:
        return f"{passes}."
    seconds = seconds_text(run.samples[-1].seconds - run.samples[0].seconds)
    every = f", one every {seconds_text(run.sampling.interval_seconds)}" if run.sampling else ""
    return f"Telemetry of {passes}: {len(run.samples)} samples over {seconds}{every}."


def _range_text(line: Readings) -> str:
    values = [value for _, value in line.points if value is not None]
    return f"{line.name} mean {fmean(values):.4g}, between {min(values):.4g} and {max(values):.4g}".strip()


def _stack(figure: go.Figure, n_panels: int, n_badge_lines: int) -> None:
    """Rows that share the time axis: a low one for the passes, then one for each panel."""
    heights = [PASSES_PIXELS, *[PANEL_PIXELS] * n_panels]
    inside = sum(heights) + GAP_PIXELS * n_panels
    figure.set_subplots(
        rows=len(heights),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=GAP_PIXELS / inside if n_panels else 0,
    )
    margin = {"l": 48, "r": 16, "t": 32, "b": badge_margin(n_badge_lines)}
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0}
    figure.update_layout(
        height=inside + margin["t"] + margin["b"], margin=margin, showlegend=True, legend=legend, barmode="overlay"
    )
    figure.update_xaxes(zeroline=False)
    figure.update_yaxes(automargin=True)
    figure.update_yaxes(showticklabels=False, showgrid=False, fixedrange=True, row=1, col=1)


def _spans(figure: go.Figure, run: Run) -> None:
    """Each pass as two bars, and their colours behind every panel."""
    called = [(p.began, *p.token_seconds) for p in run.passes if p.began is not None and p.token_seconds]
    times = [0.0, *(began + tokens[-1] for began, *tokens in called), *(sample.seconds for sample in run.samples)]
    figure.update_xaxes(range=[min(times), max(times)])
    prefill = [(began, first) for began, first, *_ in called]
    decode = [(began + tokens[0], tokens[-1] - tokens[0]) for began, *tokens in called]
    for name, colour, spans in (("prefill", PREFILL, prefill), ("decode", DECODE, decode)):
        starts, lengths = [start for start, _ in spans], [length for _, length in spans]
        figure.add_bar(
            y=["pass"] * len(spans),
            base=starts,
            x=lengths,
            orientation="h",
            name=name,
            marker_color=colour,
            width=0.8,
            hovertemplate=f"{name}: from %{{base:.3f}} s, %{{x:.3f}} s long<extra></extra>",
            row=1,
            col=1,
        )
        for start, length in spans:
            figure.add_shape(
                type="rect",
                x0=start,
                x1=start + length,
                xref="x",
                y0=0,
                y1=1,
                yref="paper",
                fillcolor=colour,
                opacity=0.1,
                line_width=0,
                layer="below",
            )


def _draw_panel(figure: go.Figure, panel: Panel, row: int) -> None:
    bold = [line for line in panel.lines if not line.faint]
    dashes = dict(zip((line.name for line in bold), DASHES, strict=False))
    for line in sorted(panel.lines, key=lambda line: not line.faint):
        style = {"color": READING, "dash": dashes.get(line.name, "solid"), "width": 1 if line.faint else 2}
        figure.add_scatter(
            x=[at for at, _ in line.points],
            y=[value for _, value in line.points],
            mode="lines",
            name=line.name,
            line={**style, "shape": "vh" if line.held else "linear"},
            opacity=0.5 if line.faint else 1,
            showlegend=False,
            hovertemplate=f"%{{x:.2f}} s: %{{y:.4g}}<extra>{line.name}</extra>",
            row=row,
            col=1,
        )
    highest = max((value for line in panel.lines for _, value in line.points if value is not None), default=0)
    figure.update_yaxes(from_zero(100 if panel.title.endswith("%") else highest, 0, PANEL_STEPS), row=row, col=1)
    key = ", ".join(f"{DASHES[dashes.get(line.name, 'longdash')]} {line.name}" for line in bold if line.name)
    key += ", thin: each" if len(bold) < len(panel.lines) else ""
    figure.add_annotation(
        text=f"{panel.title}{': ' if key else ''}{key}",
        showarrow=False,
        font={"size": 12},
        xref="paper",
        x=0,
        xanchor="left",
        yref=f"y{row} domain",
        y=1,
        yanchor="bottom",
    )
