"""Decode against depth: time of a token against the tokens in its context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import SERIES_COLOURS, blank, dashed_line, line, points, tick_values, y_from_zero
from inferlab.measurement.depth import DepthScaling
from inferlab.measurement.kv_steps import levels
from inferlab.measurement.kv_steps import line as line_through
from inferlab.measurement.run import Run
from inferlab.model.ggml_types import CELL_STEP

POINT_SHARE = 0.025
"""Of the horizontal axis: how far the samples of two series stand apart, a point's width on a phone."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def token_against_depth(models: Mapping[str, DepthScaling]) -> go.Figure:
    """Milliseconds of a decoded token against the cells in use, a line for each model; samples side by side."""
    text = "; ".join(
        f"{name}: " + ", ".join(f"{n} cells {1e3 * model.median_seconds(n):.2f} ms" for n in model.seconds)
        for name, model in models.items()
    )
    figure = blank(next(iter(models.values())).badge, f"Time of a token. {text}.", x="cells in use", y="ms a token")
    most = max(n for model in models.values() for n in model.seconds)
    for place, ((name, model), colour) in enumerate(zip(models.items(), SERIES_COLOURS, strict=False)):
        aside = POINT_SHARE * most * (place - (len(models) - 1) / 2)
        points(figure, [(n + aside, 1e3 * s) for n, many in model.seconds.items() for s in many], name, colour)
        figure.data[-1].update(showlegend=False, hovertemplate="%{y:.3f} ms")
    for (name, model), colour in zip(models.items(), SERIES_COLOURS, strict=False):
        line(figure, [(n, 1e3 * model.median_seconds(n)) for n in model.seconds], name, colour)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(tickvals=tick_values(list(next(iter(models.values())).seconds)), rangemode="tozero")
    y_from_zero(figure)
    return figure


def token_against_cells(runs: Mapping[str, Sequence[Run | DepthScaling]]) -> go.Figure:
    """Engine time of a token against the cells that attention reads: a point for each 256-cell step, and a line.

    Names may have two parts, "where the cache is, which link": then the first chooses the colour, the last the dashes.
    """
    first = next(iter(runs.values()))[0]
    level = {name: levels(*every) for name, every in runs.items()}
    lines = {name: line_through(steps) for name, steps in level.items()}
    text = "; ".join(
        f"{name}: {1e3 * fit.seconds:.2f} ms and "
        f"{1e3 * CELL_STEP * fit.seconds_per_cell:.3f} ms for each {CELL_STEP} cells"
        if fit.seconds_per_cell > 0
        else f"{name}: no rise with the cells in this run"
        for name, fit in lines.items()
    )
    figure = blank(first.badge, f"Time of a token against cells. {text}.", "cells looked at", "engine time, ms")
    styles = _styles(list(level))
    for name, steps in level.items():
        colour, dash = styles[name]
        ends = [(n, 1e3 * lines[name].at(n)) for n in (min(steps), max(steps))]
        dashed_line(figure, ends, name, colour, dash)
        figure.add_scatter(
            x=list(steps),
            y=[1e3 * s for s in steps.values()],
            mode="markers",
            name=f"{name}, {CELL_STEP}-cell steps",
            marker={"color": colour, "size": 9},
            showlegend=False,
            hovertemplate="%{x} cells: %{y:.3f} ms",
        )
    rows = 20 * len(level)
    figure.update_layout(showlegend=True, height=400 + rows, legend={"orientation": "v"}, margin={"t": 24 + rows})
    figure.update_xaxes(rangemode="tozero")
    y_from_zero(figure)
    return figure


def _styles(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Colour and dashes of each line: by the two parts of the names, or one after another where a name has one part."""
    parts = {name: name.rpartition(", ")[::2] for name in names}
    if not all(first for first, _ in parts.values()):
        return {name: _style(i, i) for i, name in enumerate(names)}
    firsts, lasts = (list(dict.fromkeys(part[k] for part in parts.values())) for k in (0, 1))
    return {name: _style(firsts.index(first), lasts.index(last)) for name, (first, last) in parts.items()}


def _style(colour: int, dash: int) -> tuple[str, str]:
    return SERIES_COLOURS[colour % len(SERIES_COLOURS)], DASHES[dash % len(DASHES)]
