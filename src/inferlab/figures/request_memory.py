"""Planned memory of one card over one request: what the load allocates, and what of it the request uses."""

from __future__ import annotations

import plotly.graph_objects as go

from inferlab.errors import InvalidSettings
from inferlab.figures.allocations import KINDS
from inferlab.figures.memory import ROOM, plan_badge
from inferlab.figures.style import ABOVE_TOP_TICK, DECODE, EDGE, PREFILL, blank, from_zero
from inferlab.prediction.memory import MemoryPlan
from inferlab.units import GIB, bytes_text

LOAD_SHARE = 0.3
"""Width of the load beside the request, whose width is n_ctx."""


def request_memory(plan: MemoryPlan, n_prompt: int, room_bytes: int, device: str = "gpu0") -> go.Figure:
    """Planned GiB on one card against the tokens in the context: weights, compute buffer, cache in use and reserved.

    Left of 0 is the load. The cells in use grow with the tokens, cells = tokens; what is allocated does not change.
    Raises InvalidSettings where the prompt does not fit into n_ctx.
    """
    n_ctx = plan.settings.n_ctx
    if not 0 < n_prompt < n_ctx:
        raise InvalidSettings(f"A prompt of {n_prompt} tokens leaves no answer in n_ctx={n_ctx}; take fewer tokens.")
    parts = {kind: n_bytes or 0 for kind, n_bytes in plan.devices[device].parts.items()}
    figure = blank(plan_badge(plan), _text(plan, parts, n_prompt, room_bytes), x="tokens in the context", y="GiB")
    for name, colour, points in _layers(parts, n_prompt, n_ctx):
        _area(figure, name, colour, points)
    _phases(figure, n_prompt, n_ctx)
    _room(figure, room_bytes)
    highest = max(room_bytes, sum(parts.values())) / GIB
    figure.update_yaxes(from_zero(1.1 * highest))
    figure.update_layout(showlegend=True, height=480, legend_traceorder="reversed", margin_t=72)
    return figure


def load_steps(n_ctx: int) -> tuple[float, float, float, float]:
    """Where the load's steps lie on the axis: start, weights, cache and buffers, ready."""
    width = LOAD_SHARE * n_ctx
    return -width, -2 / 3 * width, -width / 3, 0


def _layers(parts: dict[str, int], n_prompt: int, n_ctx: int):
    """Name, colour and points (tokens, bytes) of each area, from the bottom."""
    start, loaded, made, _ = load_steps(n_ctx)
    cache, rest = parts["kv_cache"], parts["compute"] + parts["output"]
    names = {kind: name for kind, (name, _) in KINDS.items()}
    yield names["weights"], KINDS["weights"][1], _step(start, loaded, parts["weights"], n_ctx)
    yield f"{names['compute']} buffer", KINDS["compute"][1], _step(start, made, rest, n_ctx)
    used = [(start, 0), (made, 0), (0, 0), (n_prompt, cache * n_prompt / n_ctx), (n_ctx, cache)]
    yield f"{names['kv_cache']}, in use", KINDS["kv_cache"][1], used
    free = [(start, 0), (made, 0), (made, cache), (0, cache), (n_prompt, cache * (1 - n_prompt / n_ctx)), (n_ctx, 0)]
    yield f"{names['kv_cache']}, reserved", EDGE, free


def _step(start: float, at: float, n_bytes: int, n_ctx: int) -> list[tuple[float, float]]:
    return [(start, 0), (at, 0), (at, n_bytes), (n_ctx, n_bytes)]


def _area(figure: go.Figure, name: str, colour: str, points: list[tuple[float, float]]) -> None:
    """An area on top of those drawn before; areas are summed here, because plotly stacks no steps."""
    below = list(zip(figure.data[-1].x, figure.data[-1].y, strict=True)) if figure.data else [(points[0][0], 0)]
    xs = sorted({x for x, _ in [*points, *below]})
    sides = [(x, side) for x in xs for side in (0, -1)]
    figure.add_scatter(
        x=[x for x, _ in sides],
        y=[_at(below, *side) + _at(points, *side) / GIB for side in sides],
        name=name,
        mode="lines",
        line={"color": colour, "width": 0},
        fill="tonexty" if figure.data else "tozeroy",
        fillcolor=colour,
        hovertemplate=f"up to {name}: %{{y:.2f}} GiB<extra></extra>",
    )


def _at(points: list[tuple[float, float]], x: float, side: int) -> float:
    """The value of a line at x, left of a step there (side 0) or right of it (side -1)."""
    found = [y for at, y in points if at == x]
    if found:
        return found[side]
    before = [(at, y) for at, y in points if at < x]
    after = [(at, y) for at, y in points if at > x]
    if not before or not after:
        return (before or after)[-1 if before else 0][1]
    (x0, y0), (x1, y1) = before[-1], after[0]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _phases(figure: go.Figure, n_prompt: int, n_ctx: int) -> None:
    """The names of the three phases above the axes, the two of the request in their colours."""
    start = load_steps(n_ctx)[0]
    for name, x0, x1, colour in (
        ("load", start, 0, EDGE),
        ("prefill", 0, n_prompt, PREFILL),
        ("decode", n_prompt, n_ctx, DECODE),
    ):
        figure.add_shape(type="rect", x0=x0, x1=x1, yref="paper", y0=1, y1=1.02, fillcolor=colour, line_width=0)
        figure.add_annotation(text=name, x=(x0 + x1) / 2, yref="paper", y=1.02, yanchor="bottom", showarrow=False)
    figure.update_layout(legend={"y": 1.09})
    ticks = [0, n_prompt, n_ctx]
    figure.update_xaxes(range=[start, ABOVE_TOP_TICK * n_ctx], showgrid=False)
    figure.update_xaxes(tickvals=ticks, ticktext=[f"{n:,}" for n in ticks])


def _room(figure: go.Figure, room_bytes: int) -> None:
    figure.add_hline(y=room_bytes / GIB, line={"color": ROOM, "width": 2, "dash": "dash"})
    figure.add_annotation(
        text=f"room: {room_bytes / GIB:.2f} GiB",
        xref="paper",
        x=0,
        xanchor="left",
        y=room_bytes / GIB,
        yanchor="bottom",
        showarrow=False,
    )


def _text(plan: MemoryPlan, parts: dict[str, int], n_prompt: int, room_bytes: int) -> str:
    n_ctx = plan.settings.n_ctx
    used = bytes_text(round(parts["kv_cache"] * n_prompt / n_ctx))
    total = sum(parts.values())
    return (
        f"Planned memory of one card over one request. For {plan.model.name} the load allocates "
        f"weights {bytes_text(parts['weights'])}, "
        f"KV cache {bytes_text(parts['kv_cache'])} and compute buffers "
        f"{bytes_text(parts['compute'] + parts['output'])}. The total, {bytes_text(total)} of a room of "
        f"{bytes_text(room_bytes)}, stays the same through prefill and decode. Of the cache, {used} are in use after "
        f"a prompt of {n_prompt:,} tokens, and all of it when the context of {n_ctx:,} tokens is full."
    )
