"""What fits: planned memory against the context and over one request, and planned less measured bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.errors import InvalidSettings
from inferlab.figures.allocations import KINDS
from inferlab.figures.memory import CAPACITY, plan_badge
from inferlab.figures.style import ABOVE_TOP_TICK, DECODE, EDGE, PREFILL, SERIES_COLOURS, blank, from_zero
from inferlab.measurement.run import Run
from inferlab.prediction.compare import Gap, compare
from inferlab.prediction.memory import MemoryPlan
from inferlab.units import GIB, MIB, bytes_text

LOG_ROUNDING = 0.005
"""MiB by which a printed size may be off: llama.cpp's log has two decimals."""
CARD = "gpu0"
LOAD_SHARE = 0.3
"""Width of the load beside the request, whose width is n_ctx."""


def context_against_memory(plans: Mapping[str, Sequence[MemoryPlan]], capacity_bytes: int) -> go.Figure:
    """Planned bytes on one device against n_ctx, a line for each series, and a line at the device's capacity.

    Where a plan is a range, its upper end is drawn.
    """
    badge = _badge_of([plan for each in plans.values() for plan in each])
    series = {name: [(p.settings.n_ctx, p.most_bytes(CARD) / GIB) for p in each] for name, each in plans.items()}
    figure = blank(badge, _contexts_text(series, capacity_bytes / GIB), x="n_ctx, tokens")
    figure.update_yaxes(title=f"GiB on {CARD}")
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
    _capacity_line(figure, capacity_bytes)
    figure.update_layout(showlegend=True)
    highest = max([capacity_bytes / GIB, *(gib for points in series.values() for _, gib in points)])
    figure.update_yaxes(from_zero(highest))
    return figure


def memory_residuals(pairs: Mapping[str, tuple[MemoryPlan, Run]]) -> go.Figure:
    """Measured minus planned bytes by device and kind, for several settings; the band is the rounding of the log."""
    gaps = {name: compare(plan, run) for name, (plan, run) in pairs.items()}
    badge = f"{_badge_of([plan for plan, _ in pairs.values()])}; {_largest_run(pairs).badge}"
    figure = blank(badge, _residuals_text(gaps), x="measured - planned, MiB")
    for kind, (name, colour) in KINDS.items():
        known = [
            (setting, gap.difference_bytes / MIB, gap.device)
            for setting, each in gaps.items()
            for gap in each
            if gap.kind == kind and gap.difference_bytes is not None
        ]
        figure.add_scatter(
            y=[setting for setting, *_ in known],
            x=[mib for _, mib, _ in known],
            name=name,
            mode="markers",
            marker={"color": colour, "size": 9, "opacity": 0.8},
            customdata=[device for *_, device in known],
            hovertemplate=f"{name} on %{{customdata}}: %{{x:+.3f}} MiB<extra>%{{y}}</extra>",
        )
    figure.add_vrect(x0=-LOG_ROUNDING, x1=LOG_ROUNDING, fillcolor=EDGE, line_width=0, layer="below")
    figure.update_layout(showlegend=True, height=220 + 24 * len(gaps))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=list(gaps), autorange="reversed")
    figure.update_xaxes(range=[-1.1 * _widest(gaps), 1.1 * _widest(gaps)])
    return figure


def _badge_of(plans: Sequence[MemoryPlan]) -> str:
    """The badge of several plans of one model: every method among them."""
    methods = ", ".join(dict.fromkeys(plan.method for plan in plans))
    return f"computed ({methods}): {plans[0].model.name}; nothing was loaded"


def _largest_run(pairs: Mapping[str, tuple[MemoryPlan, Run]]) -> Run:
    """The run with the most buffers: its badge names every device of the others."""
    return max((run for _, run in pairs.values()), key=lambda run: len({b.device for b in run.buffers}))


def _widest(gaps: Mapping[str, Sequence[Gap]]) -> float:
    """Half the width of the axis in MiB: the largest residual, at least twice the rounding of the log."""
    sizes = [abs(gap.difference_bytes) / MIB for each in gaps.values() for gap in each if gap.difference_bytes]
    return max([*sizes, 2 * LOG_ROUNDING])


def _contexts_text(series: Mapping[str, Sequence[tuple[int, float]]], gib: float) -> str:
    text = "; ".join(
        f"{name} from {points[0][1]:.2f} GiB at {points[0][0]:,} tokens to {points[-1][1]:.2f} GiB at {points[-1][0]:,}"
        for name, points in series.items()
    )
    return f"Planned bytes on the device against the context: {text}. The room is {gib:.2f} GiB."


def _residuals_text(gaps: Mapping[str, Sequence[Gap]]) -> str:
    worst = {
        name: max((abs(gap.difference_bytes) for gap in each if gap.difference_bytes is not None), default=None)
        for name, each in gaps.items()
    }
    text = "; ".join(f"{name} at most {bytes_text(n)}" for name, n in worst.items())
    return f"Measured minus planned bytes, largest of all kinds: {text}."


def request_memory(plan: MemoryPlan, n_prompt: int, capacity_bytes: int) -> go.Figure:
    """Planned GiB on one card against the tokens in the context: weights, compute buffer, cache in use and reserved.

    Left of 0 is the load. The cells in use grow with the tokens, cells = tokens; what is allocated does not change.
    Raises InvalidSettings where the prompt does not fit into n_ctx.
    """
    n_ctx = plan.settings.n_ctx
    if not 0 < n_prompt < n_ctx:
        raise InvalidSettings(f"A prompt of {n_prompt} tokens leaves no answer in n_ctx={n_ctx}; take fewer tokens.")
    parts = {kind: n_bytes or 0 for kind, n_bytes in plan.devices[CARD].parts.items()}
    figure = blank(
        plan_badge(plan), _request_text(plan, parts, n_prompt, capacity_bytes), x="tokens in the context", y="GiB"
    )
    _areas(figure, parts, n_prompt, n_ctx)
    _phases(figure, n_prompt, n_ctx)
    _capacity_line(figure, capacity_bytes)
    highest = max(capacity_bytes, sum(parts.values())) / GIB
    figure.update_yaxes(from_zero(1.1 * highest))
    figure.update_layout(showlegend=True, height=480, legend_traceorder="reversed", margin_t=72)
    return figure


def load_steps(n_ctx: int) -> tuple[float, float, float, float]:
    """Where the load's steps lie on the axis: start, weights, cache and buffers, ready."""
    width = LOAD_SHARE * n_ctx
    return -width, -2 / 3 * width, -width / 3, 0


def _areas(figure: go.Figure, parts: dict[str, int], n_prompt: int, n_ctx: int) -> None:
    """Areas on top of each other; they are summed here, because plotly stacks no steps."""
    start, loaded, made, _ = load_steps(n_ctx)
    x = [start, loaded, loaded, made, made, 0, n_prompt, n_ctx]
    weights, rest, cache = parts["weights"], parts["compute"] + parts["output"], parts["kv_cache"]
    in_use = cache * n_prompt / n_ctx
    names = {kind: name for kind, (name, _) in KINDS.items()}
    areas = (
        (names["weights"], KINDS["weights"][1], [0, 0, *[weights] * 6]),
        (f"{names['compute']} buffer", KINDS["compute"][1], [0, 0, 0, 0, *[rest] * 4]),
        (f"{names['kv_cache']}, in use", KINDS["kv_cache"][1], [0, 0, 0, 0, 0, 0, in_use, cache]),
        (f"{names['kv_cache']}, reserved", EDGE, [0, 0, 0, 0, cache, cache, cache - in_use, 0]),
    )
    below = [0.0] * len(x)
    for name, colour, n_bytes in areas:
        below = [y + n / GIB for y, n in zip(below, n_bytes, strict=True)]
        figure.add_scatter(
            x=x,
            y=below,
            name=name,
            mode="lines",
            line={"color": colour, "width": 0},
            fill="tonexty" if figure.data else "tozeroy",
            fillcolor=colour,
            hovertemplate=f"up to {name}: %{{y:.2f}} GiB<extra></extra>",
        )


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


def _capacity_line(figure: go.Figure, n_bytes: int) -> None:
    """A dashed line at what the plan may use, named at its left."""
    gib = n_bytes / GIB
    figure.add_hline(y=gib, line={"color": CAPACITY, "width": 2, "dash": "dash"})
    figure.add_annotation(
        text=f"room: {gib:.2f} GiB", x=0, xref="paper", xanchor="left", y=gib, yanchor="bottom", showarrow=False
    )


def _request_text(plan: MemoryPlan, parts: dict[str, int], n_prompt: int, capacity_bytes: int) -> str:
    n_ctx = plan.settings.n_ctx
    used = bytes_text(round(parts["kv_cache"] * n_prompt / n_ctx))
    total = sum(parts.values())
    return (
        f"Planned memory of one card over one request. For {plan.model.name} the load allocates "
        f"weights {bytes_text(parts['weights'])}, "
        f"KV cache {bytes_text(parts['kv_cache'])} and compute buffers "
        f"{bytes_text(parts['compute'] + parts['output'])}. The total, {bytes_text(total)} of a room of "
        f"{bytes_text(capacity_bytes)}, stays the same through prefill and decode. Of the cache, {used} are in use "
        f"after a prompt of {n_prompt:,} tokens, and all of it when the context of {n_ctx:,} tokens is full."
    )
