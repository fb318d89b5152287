"""Planned memory: by device, by layer, against the context, and less the measured bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import plotly.graph_objects as go

from inferlab.figures.allocations import KINDS
from inferlab.figures.style import EDGE, SERIES_COLOURS, blank, from_zero, stacked
from inferlab.measurement.run import Run
from inferlab.prediction.compare import Gap, compare
from inferlab.prediction.memory import LayerBytes, MemoryPlan
from inferlab.units import GIB, MIB, bytes_text, size_unit

ROOM = "#d92d20"
FEW_LAYERS = 10
LOG_ROUNDING = 0.005
"""MiB by which a printed size may be off: llama.cpp's log has two decimals."""


def memory_breakdown(plan: MemoryPlan, room_bytes: Mapping[str, int | None] | None = None) -> go.Figure:
    """Planned bytes of each device, stacked by kind; a line across a device's bar marks its capacity."""
    devices = list(plan.devices)
    text = "; ".join(f"{device} {_device_text(plan, device)}" for device in devices)
    rooms = {device: n for device, n in (room_bytes or {}).items() if n is not None and device in devices}
    totals = [sum(n or 0 for n in plan.devices[device].parts.values()) for device in devices]
    longest = max([*totals, *rooms.values()])
    factor, unit = size_unit(longest)
    figure = blank(plan_badge(plan), f"Planned bytes by device: {text}.", x=unit)
    for kind, (name, colour) in KINDS.items():
        sizes = [(plan.devices[device].parts[kind] or 0) / factor for device in devices]
        if any(sizes):
            figure.add_bar(
                y=devices,
                x=sizes,
                name=name,
                orientation="h",
                marker_color=colour,
                hovertemplate=f"{name} %{{x:.3f}} {unit}<extra>%{{y}}</extra>",
            )
    for device, n_bytes in rooms.items():
        _room_across(figure, devices.index(device), n_bytes, factor)
    if rooms:
        figure.update_xaxes(from_zero(longest / factor))
    stacked(figure, len(devices))
    return figure


def layer_bytes(plan: MemoryPlan) -> go.Figure:
    """Planned bytes of each layer in the order of the model: weights and KV cache, hatched where on the host."""
    figure = blank(plan_badge(plan), _layers_text(plan), x="layer", y="MiB")
    names = [str(layer.index) if layer.index is not None else layer.name for layer in plan.layers]
    for kind, held in _layer_kinds(plan.layers):
        name, colour = KINDS[kind]
        for on_host in (False, True):
            here = [{place: n for place, n in one.items() if (place == "host") == on_host} for one in held]
            shown, places = [sum(one.values()) / MIB for one in here], [", ".join(one) for one in here]
            if any(shown):
                figure.add_bar(
                    x=names,
                    y=shown,
                    name=f"{name}, {'host' if on_host else 'device'}",
                    marker_color=colour,
                    marker_pattern_shape="/" if on_host else "",
                    customdata=places,
                    hovertemplate=f"{name} %{{y:.2f}} MiB on %{{customdata}}<extra>%{{x}}</extra>",
                )
    figure.update_layout(barmode="stack", showlegend=True, bargap=0.15)
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=names, tickvals=_layers_named(names))
    return figure


def _layers_named(names: Sequence[str]) -> list[str]:
    """The layers whose names fit below the bars on a phone: every fourth, and those that are no number."""
    few = len(names) <= FEW_LAYERS
    return [name for name in names if few or not name.isdigit() or (int(name) and int(name) % 4 == 0)]


def context_against_memory(
    plans: Mapping[str, Sequence[MemoryPlan]], room_bytes: int, device: str = "gpu0"
) -> go.Figure:
    """Planned bytes on one device against n_ctx, a line for each series, and a line at the device's capacity.

    Where a plan is a range, its upper end is drawn.
    """
    badge = _badge_of([plan for each in plans.values() for plan in each])
    series = {name: [(p.settings.n_ctx, p.most_bytes(device) / GIB) for p in each] for name, each in plans.items()}
    figure = blank(badge, _contexts_text(series, room_bytes / GIB), x="n_ctx, tokens")
    figure.update_yaxes(title=f"GiB on {device}")
    for (name, points), colour in zip(series.items(), SERIES_COLOURS, strict=False):
        x, y = zip(*points, strict=True)
        figure.add_scatter(
            x=x,
            y=y,
            name=name,
            mode="lines",
            line={"color": colour, "width": 2},
            hovertemplate=f"{name}<br>n_ctx %{{x:,}}: %{{y:.2f}} GiB<extra></extra>",
        )
    figure.add_hline(y=room_bytes / GIB, line={"color": ROOM, "width": 2, "dash": "dash"})
    figure.add_annotation(
        text=f"room: {room_bytes / GIB:.2f} GiB",
        x=0,
        xref="paper",
        xanchor="left",
        y=room_bytes / GIB,
        yanchor="bottom",
        showarrow=False,
    )
    figure.update_layout(showlegend=True)
    highest = max([room_bytes / GIB, *(gib for points in series.values() for _, gib in points)])
    figure.update_yaxes(from_zero(highest))
    return figure


def memory_residuals(pairs: Mapping[str, tuple[MemoryPlan, Run]]) -> go.Figure:
    """Measured minus planned bytes by device and kind, for several settings; the band is the rounding of the log."""
    gaps = {name: compare(plan, run) for name, (plan, run) in pairs.items()}
    badge = f"{_badge_of([plan for plan, _ in pairs.values()])}; {_largest_run(pairs).badge}"
    figure = blank(badge, _residuals_text(gaps), x="measured - planned, MiB")
    for kind, (name, colour) in KINDS.items():
        found = [(setting, gap) for setting, each in gaps.items() for gap in each if gap.kind == kind]
        known = [(setting, gap) for setting, gap in found if gap.difference_bytes is not None]
        figure.add_scatter(
            y=[setting for setting, _ in known],
            x=[gap.difference_bytes / MIB for _, gap in known],
            name=name,
            mode="markers",
            marker={"color": colour, "size": 9, "opacity": 0.8},
            customdata=[gap.device for _, gap in known],
            hovertemplate=f"{name} on %{{customdata}}: %{{x:+.3f}} MiB<extra>%{{y}}</extra>",
        )
    figure.add_vrect(x0=-LOG_ROUNDING, x1=LOG_ROUNDING, fillcolor=EDGE, line_width=0, layer="below")
    figure.update_layout(showlegend=True, height=220 + 24 * len(gaps))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=list(gaps), autorange="reversed")
    figure.update_xaxes(range=[-1.1 * _widest(gaps), 1.1 * _widest(gaps)])
    return figure


def plan_badge(plan: MemoryPlan) -> str:
    """The badge of a plan: method, model and the settings that change it."""
    s = plan.settings
    asked = [f"n_gpu_layers={s.n_gpu_layers}", f"K {s.type_k}, V {s.type_v}", f"flash attention {s.flash_attn}"]
    return f"computed ({plan.method}): {plan.model.name}, n_ctx={s.n_ctx}, {', '.join(asked)}; nothing was loaded"


def _badge_of(plans: Sequence[MemoryPlan]) -> str:
    """The badge of several plans of one model: every method among them."""
    methods = ", ".join(dict.fromkeys(plan.method for plan in plans))
    return f"computed ({methods}): {plans[0].model.name}; nothing was loaded"


def _largest_run(pairs: Mapping[str, tuple[MemoryPlan, Run]]) -> Run:
    """The run with the most buffers: its badge names every device of the others."""
    return max((run for _, run in pairs.values()), key=lambda run: len({b.device for b in run.buffers}))


def _widest(gaps: Mapping[str, Sequence[Gap]]) -> float:
    """Half the width of the axis in MiB: the largest residual, at least twice the rounding of the log."""
    found = [abs(gap.difference_bytes) / MIB for each in gaps.values() for gap in each if gap.difference_bytes]
    return max([*found, 2 * LOG_ROUNDING])


def _device_text(plan: MemoryPlan, device: str) -> str:
    return ", ".join(f"{KINDS[kind][0]} {bytes_text(n)}" for kind, n in plan.devices[device].parts.items() if n != 0)


def _room_across(figure: go.Figure, row: int, n_bytes: int, factor: int) -> None:
    """A dashed line across one bar at the capacity of its device, named at its left, where the axis goes on."""
    at = n_bytes / factor
    figure.add_shape(
        type="line", x0=at, x1=at, y0=row - 0.45, y1=row + 0.45, line={"color": ROOM, "width": 2, "dash": "dash"}
    )
    figure.add_annotation(
        text=f"room {bytes_text(n_bytes)}", x=at, xanchor="right", y=row - 0.45, yanchor="bottom", showarrow=False
    )


def _layer_kinds(layers: Sequence[LayerBytes]) -> Iterator[tuple[str, list[dict[str, int]]]]:
    """Each kind with the bytes of each layer by device."""
    yield "weights", [layer.weights_by_device for layer in layers]
    yield "kv_cache", [layer.cache_by_device for layer in layers]


def _layers_text(plan: MemoryPlan) -> str:
    """Text alternative of `layer_bytes`; neighbouring layers in the same places are summed."""
    text = []
    for places, each in groupby(plan.layers, lambda one: (tuple(one.weights_by_device), tuple(one.cache_by_device))):
        some = list(each)
        names = some[0].name if len(some) == 1 else f"{some[0].name} to {some[-1].name}"
        weights = _places_text(places[0], [one.weights_by_device for one in some])
        text.append(f"{names}{weights}, their KV cache{_places_text(places[1], [one.cache_by_device for one in some])}")
    return f"Planned bytes by layer: {'; '.join(text)}."


def _places_text(places: Sequence[str], layers: Sequence[Mapping[str, int]]) -> str:
    """` on gpu0 1.00 GiB and 0.25 GiB on host`: bytes of some layers on each device."""
    first, *others = ((place, bytes_text(sum(layer[place] for layer in layers))) for place in places)
    return f" on {first[0]} {first[1]}" + "".join(f" and {n_bytes} on {place}" for place, n_bytes in others)


def _contexts_text(series: Mapping[str, Sequence[tuple[int, float]]], room: float) -> str:
    text = "; ".join(
        f"{name} from {points[0][1]:.2f} GiB at {points[0][0]:,} tokens to {points[-1][1]:.2f} GiB at {points[-1][0]:,}"
        for name, points in series.items()
    )
    return f"Planned bytes on the device against the context: {text}. The room is {room:.2f} GiB."


def _residuals_text(gaps: Mapping[str, Sequence[Gap]]) -> str:
    worst = {
        name: max((abs(gap.difference_bytes) for gap in each if gap.difference_bytes is not None), default=None)
        for name, each in gaps.items()
    }
    text = "; ".join(f"{name} at most {bytes_text(n)}" for name, n in worst.items())
    return f"Measured minus planned bytes, largest of all kinds: {text}."
