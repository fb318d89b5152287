"""Planned memory: by device and by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import plotly.graph_objects as go

from inferlab.figures.allocations import KINDS
from inferlab.figures.style import blank, from_zero, stacked
from inferlab.machine import HOST_DEVICE
from inferlab.prediction.memory import LayerBytes, MemoryPlan
from inferlab.units import MIB, bytes_text, size_unit

CAPACITY = "#d92d20"
"""The colour of a line at what a plan may use."""
FEW_LAYERS = 10


def memory_breakdown(plan: MemoryPlan, capacity_bytes: Mapping[str, int | None] | None = None) -> go.Figure:
    """Planned bytes of each device, stacked by kind; a line across a device's bar marks its capacity."""
    devices = list(plan.devices)
    text = "; ".join(f"{device} {_device_text(plan, device)}" for device in devices)
    capacities = {d: n for d, n in (capacity_bytes or {}).items() if n is not None and d in devices}
    totals = [sum(n or 0 for n in plan.devices[device].parts.values()) for device in devices]
    longest = max([*totals, *capacities.values()])
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
    for device, n_bytes in capacities.items():
        _capacity_across(figure, devices.index(device), n_bytes, factor)
    if capacities:
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
            here = [{place: n for place, n in layer.items() if (place == HOST_DEVICE) == on_host} for layer in held]
            shown, places = [sum(sizes.values()) / MIB for sizes in here], [", ".join(sizes) for sizes in here]
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


def plan_badge(plan: MemoryPlan) -> str:
    """The badge of a plan: method, model and the settings that change it."""
    s = plan.settings
    asked = [f"n_gpu_layers={s.n_gpu_layers}", f"K {s.type_k}, V {s.type_v}", f"flash attention {s.flash_attn}"]
    return f"computed ({plan.method}): {plan.model.name}, n_ctx={s.n_ctx}, {', '.join(asked)}; nothing was loaded"


def _device_text(plan: MemoryPlan, device: str) -> str:
    return ", ".join(f"{KINDS[kind][0]} {bytes_text(n)}" for kind, n in plan.devices[device].parts.items() if n != 0)


def _capacity_across(figure: go.Figure, row: int, n_bytes: int, factor: int) -> None:
    """A dashed line across one bar at the capacity of its device, named at its left, where the axis goes on."""
    at = n_bytes / factor
    figure.add_shape(
        type="line", x0=at, x1=at, y0=row - 0.45, y1=row + 0.45, line={"color": CAPACITY, "width": 2, "dash": "dash"}
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
    for places, each in groupby(plan.layers, lambda row: (tuple(row.weights_by_device), tuple(row.cache_by_device))):
        rows = list(each)
        names = rows[0].name if len(rows) == 1 else f"{rows[0].name} to {rows[-1].name}"
        weights = _places_text(places[0], [row.weights_by_device for row in rows])
        text.append(f"{names}{weights}, their KV cache{_places_text(places[1], [row.cache_by_device for row in rows])}")
    return f"Planned bytes by layer: {'; '.join(text)}."


def _places_text(places: Sequence[str], layers: Sequence[Mapping[str, int]]) -> str:
    """` on gpu0 1.00 GiB and 0.25 GiB on host`: bytes of some layers on each device."""
    first, *others = ((place, bytes_text(sum(layer[place] for layer in layers))) for place in places)
    return f" on {first[0]} {first[1]}" + "".join(f" and {n_bytes} on {place}" for place, n_bytes in others)
