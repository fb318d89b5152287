"""Measured against computed seconds of cold starts, and the wait that a program is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.style import GREY, LOG_MARKS, OLIVE, PURPLE, RED, TEAL, blank, dashed_line


def start_waits(badge: str, groups: Mapping[str, Sequence[tuple[float, float]]], margin: float) -> go.Figure:
    """Points (computed, measured seconds) of each group of starts, with the lines measured = computed and = wait.

    badge   of the recorded starts
    groups  name -> starts of that group; at most four groups
    margin  wait over computed seconds
    """
    every = [point for points in groups.values() for point in points]
    late = sum(measured > margin * computed for computed, measured in every)
    text = "; ".join(f"{name}: {len(points)} starts" for name, points in groups.items())
    said = f"Cold starts, measured against computed. {text}. {late} took longer than {margin:.3g} times as computed."
    figure = blank(badge, said, x="computed seconds", y="measured seconds")
    for (name, points), colour, symbol in zip(
        groups.items(), (GREY, TEAL, PURPLE, RED), ("circle", "diamond", "square", "x"), strict=False
    ):
        figure.add_scatter(
            x=[x for x, _ in points], y=[y for _, y in points], name=name, mode="markers",
            marker={"color": colour, "size": 9, "symbol": symbol, "opacity": 0.8},
            hovertemplate=f"computed %{{x:.2f}} s, measured %{{y:.2f}} s<extra>{name}</extra>",
        )  # fmt: skip
    ends = min(x for x, _ in every) / 1.2, 1.2 * max(x for x, _ in every)
    dashed_line(figure, [(x, x) for x in ends], "as computed", OLIVE, "dot")
    dashed_line(figure, [(x, margin * x) for x in ends], f"wait: {margin:.3g} times", RED, "dash")
    figure.update_xaxes(type="log", tickvals=LOG_MARKS)
    figure.update_yaxes(type="log", tickvals=LOG_MARKS)
    figure.update_layout(showlegend=True, height=470, margin_t=92)
    return figure
