"""Rates as dots, coloured by the kernel that multiplies most of the weights: a panel for prefill, one for decode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import EDGE, GREY, PURPLE, RED, TEAL, blank
from inferlab.measurement.run import Run
from inferlab.model.kernels import AMX, PLAIN, REPACKED, TILED
from studies.kernels.study import Pairs

UNKNOWN = "kernel not recorded"
KERNEL_COLOURS = {PLAIN: GREY, TILED: TEAL, REPACKED: PURPLE, AMX: RED, UNKNOWN: "rgba(128,128,128,0.6)"}
RATES = {"prefill": "prefill_tokens_per_second", "decode": "decode_tokens_per_second"}
OUTLIER = 1.4  # times the largest median: pairs beyond it met a disturbance
AXES = {"prefill": "x", "decode": "x2"}


def mix_rates(runs: Mapping[str, Run]) -> go.Figure:
    """Prefill and decode rates of one shape in several mixes, relative to the first: passes as points, medians as dots.

    The ticks in the decode panel are the ratio of bytes: decode would be there if reading the weights were its only
    cost.
    """
    name, first = next(iter(runs.items()))
    gains = {mix: first.model.tensor_bytes / run.model.tensor_bytes for mix, run in runs.items()}
    text = "; ".join(f"{mix} {_gain(first, run)}, bytes {gains[mix]:.2f}" for mix, run in runs.items())
    figure = _panels(first.machine_badge, f"Rates relative to {name}: {text}.", list(runs), name)
    for phase, field in RATES.items():
        base = getattr(first, field)
        every = {mix: [rate / base for rate in run.points(field)] for mix, run in runs.items()}
        _dots(figure, phase, every, {mix: main_kernel(run, phase) for mix, run in runs.items()})
    figure.add_scatter(
        x=list(gains.values()),
        y=list(gains),
        xaxis="x2",
        name="if only bytes counted",
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 14, "color": GREY, "line": {"width": 2}},
    )
    return _one_legend_entry_each(figure)


def _gain(first: Run, run: Run) -> str:
    gains = (f"{phase} {getattr(run, field) / getattr(first, field):.2f}" for phase, field in RATES.items())
    return f"{', '.join(gains)} ({run.kernels_text or UNKNOWN})"


def repacking(pairs: Mapping[str, Pairs]) -> go.Figure:
    """Rate by default over the rate with --no-repack of each type: every pair as a point, the median as a dot."""
    rows = {}
    for pair in pairs.values():
        rows[f"{pair.mix}, {100 * pair.default[0].kernel_shares(1).get(REPACKED, 0):.0f} % repacked"] = pair
    text = "; ".join(
        f"{name} prefill {pair.compared('prefill').ratio:.2f}, decode {pair.compared('decode').ratio:.2f}"
        for name, pair in rows.items()
    )
    badge = next(iter(pairs.values())).default[0].machine_badge
    figure = _panels(badge, f"Rates relative to those with --no-repack: {text}.", list(rows), "--no-repack")
    for phase in RATES:
        every = {name: pair.compared(phase).ratios for name, pair in rows.items()}
        shown = OUTLIER * max(map(median, every.values()))
        _dots(figure, phase, every, {name: main_kernel(pair.default[0], phase) for name, pair in rows.items()}, shown)
    for axis in AXES.values():
        figure.add_shape(type="line", x0=1, x1=1, y0=0, y1=1, xref=axis, yref="paper", line={"color": EDGE, "width": 2})
    return _one_legend_entry_each(figure)


def main_kernel(run: Run, phase: str) -> str:
    """The kernel that multiplies most of a run's weights in prefill or in decode."""
    shares = run.kernel_shares(run.n_prompt if phase == "prefill" else 1)
    return max(shares, key=shares.get) if shares else UNKNOWN


def _panels(badge: str, alt: str, names: Sequence[str], reference: str) -> go.Figure:
    """Two panels side by side with one row for each name, the first on top; rates are relative to the reference's."""
    figure = blank(badge, alt, f"prefill,<br>relative to<br>{reference}")
    title = f"decode,<br>relative to<br>{reference}"
    second = {"title": title, "domain": (0.53, 1), "anchor": "y", "rangemode": "tozero", "automargin": True}
    figure.update_layout(height=280 + 28 * len(names), showlegend=True, xaxis2=second)
    figure.update_xaxes(domain=(0, 0.47), rangemode="tozero", selector=0)
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=list(names), autorange="reversed")
    return figure


def _dots(
    figure: go.Figure,
    phase: str,
    values: Mapping[str, Sequence[float]],
    kernels: Mapping[str, str],
    largest: float = inf,
) -> None:
    """Every value as a faint point and the median as a dot, in the colour of the row's kernel.

    A value above `largest` is an arrow there.
    """
    for kernel in dict.fromkeys(kernels.values()):
        own = {name: ratios for name, ratios in values.items() if kernels[name] == kernel}
        every = [(name, value) for name, ratios in own.items() for value in ratios]
        marks = {"color": KERNEL_COLOURS[kernel]}
        symbols = ["circle" if value <= largest else "triangle-right" for _, value in every]
        figure.add_scatter(
            x=[min(value, largest) for _, value in every],
            y=[name for name, _ in every],
            xaxis=AXES[phase],
            mode="markers",
            marker={**marks, "opacity": 0.3, "size": 6, "symbol": symbols},
            showlegend=False,
            customdata=[value for _, value in every],
            name=f"{kernel}, {phase}, each",
            hovertemplate="%{y}: %{customdata:.3f}<extra></extra>",
        )
        figure.add_scatter(
            x=[median(ratios) for ratios in own.values()],
            y=list(own),
            xaxis=AXES[phase],
            mode="markers",
            marker={**marks, "size": 11},
            name=kernel,
            legendgroup=kernel,
            hovertemplate=f"%{{y}}: %{{x:.2f}}, mostly {kernel}<extra>{phase}</extra>",
        )


def _one_legend_entry_each(figure: go.Figure) -> go.Figure:
    seen: set[str] = set()
    for trace in figure.data:
        trace.showlegend = trace.showlegend is not False and trace.name not in seen
        seen.add(trace.name)
    return figure
