"""A model split between host and device: bytes on each, and predicted and measured rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.allocations import KINDS
from inferlab.figures.memory import plan_badge
from inferlab.figures.style import DECODE, EDGE, PREFILL, badge_lines, blank, from_zero, write_badge
from inferlab.machine import HOST_DEVICE
from inferlab.measurement.run import Run
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.speed import SpeedPlan
from inferlab.settings import Settings
from inferlab.units import GIB, bytes_text, size_unit

PHASES = {"decode": DECODE, "prefill": PREFILL}
DOMAINS = ((0.8372, 1.0), (0.4186, 0.7072), (0.0, 0.2886))
"""Heights of the three rows, from the top."""
NUMBERED = 1.14
"""Times the highest rate: so high its number reaches."""
RATES = {"automargin": True, "ticklabelstandoff": 6}
APART = ("n_gpu_layers", "rpc_servers")
"""Settings that may differ on one curve: the axis, and an address that changes with every start."""

Held = Mapping[str, Mapping[str, int | None]]


def split(
    at: int,
    held: MemoryPlan | Run | None = None,
    plans: Sequence[SpeedPlan] = (),
    runs: Sequence[Run] = (),
    badge: str | None = None,
) -> go.Figure:
    """Bytes by device at one n_gpu_layers, and below it both rates over all of them.

    held   the plan, or the run as llama.cpp logged it, whose bytes are drawn
    plans  predicted rates, one for each n_gpu_layers: a line with its band
    runs   measured rates: every pass a faint point, the median a numbered one; hollow where its other settings
           differ from those of `plans`
    """
    bars = _bytes_by_device(held)
    factor, unit = size_unit(sum(n or 0 for parts in bars.values() for n in parts.values()) or GIB)
    traces = _bytes(bars, factor, unit)
    for row, (phase, colour) in enumerate(PHASES.items(), 2):
        traces += _predicted(row, phase, colour, plans) + _measured(row, phase, colour, runs, plans)
    empty = blank(None, _alt_text(at, held, plans, runs)).layout.to_plotly_json()
    figure = go.Figure(traces, {**empty, **_layout(at, traces, unit, _tick(plans, runs))})
    line = badge or _badge(held, plans, runs)
    write_badge(figure, line)
    figure.layout.margin.b = 116 + 14 * max(0, len(badge_lines(line)) - 3)
    return figure


def _layout(at: int, traces: Sequence[dict], unit: str, tick: int) -> dict:
    """Axes of the three rows, with the mark at the n_gpu_layers that is drawn.

    One dict is checked by plotly in a tenth of the time of `update_layout`: a slider draws this at every move.
    """
    layers = {"title": {"text": "n_gpu_layers"}, "dtick": tick}
    axes = {
        "xaxis": {"anchor": "y", "title": {"text": unit}, "rangemode": "tozero", "automargin": True},
        "yaxis": {"anchor": "x", "domain": DOMAINS[0], "autorange": "reversed", "type": "category", **RATES},
    }
    for row, phase in enumerate(PHASES, 2):
        rates = {"title": {"text": f"{phase}<br>tokens/s"}, **RATES, **_headroom(traces, row)}
        axes[f"xaxis{row}"] = {"anchor": f"y{row}", "automargin": True, **layers}
        axes[f"yaxis{row}"] = {"anchor": f"x{row}", "domain": DOMAINS[row - 1], **rates}
    shapes = [_mark(at, row) for row in (2, 3)]
    return {"barmode": "stack", "showlegend": True, "height": 760, "shapes": shapes, **axes}


def _bytes_by_device(held: MemoryPlan | Run | None) -> Held:
    """Bytes by device and kind; the upper end where a plan has a range."""
    if isinstance(held, MemoryPlan):
        most = {device: {"compute": ends[1]} for device, ends in held.compute_range.items()}
        return {device: parts.parts | most.get(device, {}) for device, parts in held.devices.items()}
    if held is None:
        return {}
    logged: dict[str, dict[str, int | None]] = {HOST_DEVICE: {}}
    for (device, kind), n_bytes in measured_bytes(held.buffers, held.settings.rpc_servers).items():
        logged.setdefault(device, {})[kind] = n_bytes
    return logged


def _bytes(held: Held, factor: int, unit: str) -> list[dict]:
    """A bar for each kind of bytes, in units of `factor` bytes."""
    bars = []
    for kind, (name, colour) in KINDS.items():
        sizes = [(parts.get(kind) or 0) / factor for parts in held.values()]
        if any(sizes):
            bars.append(
                {
                    "type": "bar",
                    "y": list(held),
                    "x": sizes,
                    "name": name,
                    "orientation": "h",
                    "marker": {"color": colour},
                    "hovertemplate": f"{name} %{{x:.3f}} {unit}<extra>%{{y}}</extra>",
                    "xaxis": "x",
                    "yaxis": "y",
                }
            )
    return bars


def _predicted(row: int, phase: str, colour: str, plans: Sequence[SpeedPlan]) -> list[dict]:
    """The predicted rates as a line on their band."""
    if not plans:
        return []
    x = [plan.settings.n_gpu_layers for plan in plans]
    steps = [getattr(plan, phase) for plan in plans]
    least, most = zip(*(step.rate_range for step in steps), strict=True)
    band = {
        "x": [*x, *reversed(x)],
        "y": [*most, *reversed(least)],
        "fill": "toself",
        "fillcolor": EDGE,
        "mode": "none",
        "name": "band of the prediction",
        "showlegend": row == 2,
        "hoverinfo": "skip",
        "opacity": 0.5,
    }
    line = {
        "x": x,
        "y": [step.tokens_per_second for step in steps],
        "name": f"{phase}, predicted",
        "mode": "lines",
        "line": {"color": colour, "width": 2},
        "text": [step.bound_by for step in steps],
        "hovertemplate": f"{phase} predicted %{{y:.1f}} tokens/s<br>most of it: %{{text}}<extra>%{{x}} layers</extra>",
    }
    return [_in_row(row, band), _in_row(row, line)]


def _measured(row: int, phase: str, colour: str, runs: Sequence[Run], plans: Sequence[SpeedPlan]) -> list[dict]:
    """Every pass as a faint point, the run's number above the highest, and the median of each run."""
    every = [(number, run, run.points(f"{phase}_tokens_per_second")) for number, run in enumerate(runs, 1)]
    timed = [(number, run, rates) for number, run, rates in every if rates]
    if not timed:
        return []
    passes = {
        "x": [run.settings.n_gpu_layers for _, run, rates in timed for _ in rates],
        "y": [rate for *_, rates in timed for rate in rates],
        "mode": "markers+text",
        "hoverinfo": "skip",
        "showlegend": False,
        "name": "every pass",
        "marker": {"color": colour, "opacity": 0.3, "size": 5},
        "text": [text for number, _, rates in timed for text in _above_highest(number, rates)],
        "textposition": "top center",
    }
    alike = [not plans or same_curve(run.settings, plans[0].settings) for _, run, _ in timed]
    medians = {
        "x": [run.settings.n_gpu_layers for _, run, _ in timed],
        "y": [median(rates) for *_, rates in timed],
        "name": f"{phase}, measured",
        "mode": "markers",
        "customdata": [settings_text(run.settings, run) for _, run, _ in timed],
        "marker": {"color": colour, "size": 10, "symbol": ["circle" if same else "circle-open" for same in alike]},
        "hovertemplate": f"{phase} measured %{{y:.1f}} tokens/s<br>%{{customdata}}<extra>%{{x}} layers</extra>",
    }
    return [_in_row(row, passes), _in_row(row, medians)]


def _above_highest(number: int, rates: Sequence[float]) -> list[str]:
    """A text for each pass: the number of the run at its highest, where no other pass of it stands, else nothing."""
    highest = rates.index(max(rates))
    return [f"{number}" if at == highest else "" for at in range(len(rates))]


def _in_row(row: int, scatter: dict) -> dict:
    return {"type": "scatter", **scatter, "xaxis": f"x{row}", "yaxis": f"y{row}"}


def _mark(at: int, row: int) -> dict:
    """The vertical line at the n_gpu_layers that is drawn."""
    ends = {"x0": at, "x1": at, "y0": 0, "y1": 1}
    return {"type": "line", "xref": f"x{row}", "yref": f"y{row} domain", "line": {"color": EDGE, "width": 6}, **ends}


def _headroom(traces: Sequence[dict], row: int) -> dict:
    """The axis up to a tick above the highest point and above its number."""
    most = max((y for trace in traces if trace["yaxis"] == f"y{row}" for y in trace["y"]), default=0)
    return from_zero(NUMBERED * most) if most else {}


def same_curve(first: Settings, second: Settings) -> bool:
    """Whether two settings differ at most in n_gpu_layers and in the device's address."""
    left, right = first.to_dict(), second.to_dict()
    asked = [name for name in left if name not in APART and right[name] is not None and left[name] is not None]
    return all(left[name] == right[name] for name in asked)


def settings_text(settings: Settings, run: Run | None = None) -> str:
    """The settings with a control in the split lab, in one line."""
    kept = "cache with its layer" if settings.offload_kqv else "cache on the host"
    links = [link.text for link in run.links] if run else []
    text = [
        f"n_ctx {settings.n_ctx}",
        f"K {settings.type_k}, V {settings.type_v}",
        f"flash attention {settings.flash_attn}",
        kept,
        *links,
    ]
    return ", ".join(text)


def recorded_badge(run: Run) -> str:
    """The badge of a run that was read from a record instead of measured at build."""
    kind = "synthetic weights in the shape of" if run.model.synthetic else "the model"
    return f"recorded: {run.badge.removeprefix('measured: ')}; {kind} {run.model.name.removesuffix(' shape')}"


def _badge(held: MemoryPlan | Run | None, plans: Sequence[SpeedPlan], runs: Sequence[Run]) -> str:
    parts = [plan_badge(held)] if isinstance(held, MemoryPlan) else []
    parts += [runs[-1].badge] if runs else ["nothing measured yet"]
    return "; ".join(parts)


def _tick(plans: Sequence[SpeedPlan], runs: Sequence[Run]) -> int:
    settings = [plan.settings for plan in plans] + [run.settings for run in runs]
    most = max([each.n_gpu_layers for each in settings], default=0)
    return 1 if most <= 20 else 4


def _alt_text(at: int, held: MemoryPlan | Run | None, plans: Sequence[SpeedPlan], runs: Sequence[Run]) -> str:
    placed = "; ".join(
        f"{device} {bytes_text(sum(filter(None, parts.values())))}" for device, parts in _bytes_by_device(held).items()
    )
    here = [plan for plan in plans if plan.settings.n_gpu_layers == at]
    text = [f"predicted {phase} {getattr(here[0], phase).tokens_per_second:.1f} tokens/s" for phase in PHASES if here]
    text += [
        f"measurement {number} at {run.settings.n_gpu_layers} layers: "
        f"prefill {run.prefill_tokens_per_second or 0:.1f}, decode {run.decode_tokens_per_second or 0:.1f} tokens/s"
        for number, run in enumerate(runs, 1)
    ]
    return f"With n_gpu_layers {at}: {placed or 'nothing is placed yet'}. {'; '.join(text) or 'No rates yet'}."
