"""Effect of an option: rates over its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, EDGE, PREFILL, blank, points, value_text, y_from_zero
from inferlab.measurement.base import common_badge
from inferlab.measurement.run import Run
from inferlab.measurement.sweep import Sweep

RATES = {"prefill": "prefill_tokens_per_second", "decode": "decode_tokens_per_second"}
COLOURS = {"prefill": PREFILL, "decode": DECODE}
DASHES = ("solid", "dot", "dash", "dashdot")


def option_effect(
    sweep: Sweep, name: str, phases: tuple[str, ...] = ("prefill", "decode"), one_scale: bool = False
) -> go.Figure:
    """Rates over the values of one option of a sweep, relative to its first value: passes as points, medians joined.

    Every combination of the sweep's other options has a line of its own.
    one_scale  whether all lines of a phase are relative to the first value of its first line, in place of their own;
               then the heights of two lines can be compared
    """
    drawn = [(phase, index, *series) for phase in phases for index, series in enumerate(_series(sweep, name))]
    figure = blank(
        common_badge(sweep.runs),
        f"Rates over {name}: " + "; ".join(_rates_text(phase, label, runs) for phase, _, label, runs in drawn) + ".",
        x=name,
        y=f"rate, relative to {name}={value_text(next(iter(drawn[0][3])))}",
    )
    for phase, index, label, runs in drawn:
        scale = next(others for kind, _, _, others in drawn if kind == phase) if one_scale else runs
        _rate_line(figure, phase, label, runs, DASHES[index % len(DASHES)], next(iter(scale.values())))
    figure.add_hline(1, line={"color": EDGE, "dash": "dot"})
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="category")
    y_from_zero(figure)
    return figure


def _series(sweep: Sweep, name: str) -> Iterator[tuple[str, dict[Any, Run]]]:
    """A label and the runs by the option's value, for each combination of the other options."""
    series: dict[str, dict[Any, Run]] = {}
    for point in sweep.points:
        others = ", ".join(f"{other}={value_text(value)}" for other, value in point.changes.items() if other != name)
        if point.run:
            series.setdefault(others, {})[point.changes[name]] = point.run
    yield from series.items()


def _rate_line(figure: go.Figure, phase: str, label: str, runs: Mapping[Any, Run], dash: str, unit: Run) -> None:
    """The rates of `runs` over the median rate of `unit`."""
    every = {value: run.points(RATES[phase]) for value, run in runs.items()}
    first = median(unit.points(RATES[phase]))
    colour, title = COLOURS[phase], f"{phase}, {label}" if label else phase
    points(figure, [(value_text(v), rate / first) for v, rates in every.items() for rate in rates], title, colour)
    figure.data[-1].showlegend = False
    figure.add_scatter(
        x=[value_text(value) for value in every],
        y=[median(rates) / first for rates in every.values()],
        name=title,
        mode="lines+markers",
        line={"color": colour, "width": 2, "dash": dash},
        marker={"size": 8},
        customdata=[median(rates) for rates in every.values()],
        hovertemplate="%{x}: %{customdata:.1f} tokens/s, %{y:.2f} times<extra></extra>",
    )


def _rates_text(phase: str, label: str, runs: Mapping[Any, Run]) -> str:
    rates = ", ".join(f"{value_text(value)} {median(run.points(RATES[phase])):.1f}" for value, run in runs.items())
    return f"{phase}{f' with {label}' if label else ''}, tokens/s: {rates}"
