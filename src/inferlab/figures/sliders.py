"""A figure with a slider over values, all of them drawn in advance, so that no kernel is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import plotly.graph_objects as go

from inferlab.figures.style import BADGE_SHIFT, value_text

SLIDER_HEIGHT = 110
MOVED = ("annotations", "shapes")
"""Parts of the layout that change with the position; axes stay, so that positions can be compared."""


def slider(draw: Callable[..., go.Figure], over: Mapping[str, Sequence[Any]], start: int = 0) -> go.Figure:
    """`draw(**values)` for every combination of `over`, the last name's values changing fastest, on one slider.

    `start` is the position shown first. A trace that several positions draw alike is kept once.
    """
    values = [dict(zip(over, each, strict=True)) for each in product(*over.values())]
    drawn = [draw(**each) for each in values]
    traces, shown = _distinct(drawn)
    figure = go.Figure(layout=drawn[start].layout)
    figure.add_traces(traces)
    for trace, positions in zip(figure.data, shown, strict=True):
        trace.visible = start in positions
    _make_room(figure)
    steps = [_step(i, each, drawn[i], shown) for i, each in enumerate(values)]
    figure.update_layout(sliders=[{
        "active": start, "steps": steps, "pad": {"t": 62, "b": 0}, "y": 0, "yanchor": "top",
        "currentvalue": {"prefix": f"{', '.join(over)}: ", "font": {"size": 14}},
    }])  # fmt: skip
    about = f"A slider over {', '.join(over)} with {len(values)} positions, {_text(values[0])} to {_text(values[-1])}. "
    figure.update_layout(meta={"alt": f"{about}At {_text(values[start])}: {drawn[start].layout.meta['alt']}"})
    return figure


def _distinct(drawn: Sequence[go.Figure]) -> tuple[list[Any], list[set[int]]]:
    """The distinct traces, and the positions that show each."""
    kept: dict[str, Any] = {}
    shown: dict[str, set[int]] = {}
    for position, figure in enumerate(drawn):
        for trace in figure.data:
            key = trace.to_json()
            kept.setdefault(key, trace)
            shown.setdefault(key, set()).add(position)
    return list(kept.values()), list(shown.values())


def _step(position: int, values: Mapping[str, Any], drawn: go.Figure, shown: Sequence[set[int]]) -> dict[str, Any]:
    """plotly's update for one position: visible traces, annotations and shapes."""
    layout = drawn.layout.to_plotly_json()
    moved = {name: layout.get(name, []) for name in MOVED}
    moved["annotations"] = [_lowered(note) for note in moved["annotations"]]
    visible = [position in positions for positions in shown]
    return {"label": _text(values), "method": "update", "args": [{"visible": visible}, moved]}


def _make_room(figure: go.Figure) -> None:
    """Make room for the slider between the axes and the badge."""
    notes = [_lowered(note.to_plotly_json()) for note in figure.layout.annotations]
    below = (figure.layout.margin.b or 80) + SLIDER_HEIGHT
    figure.update_layout(
        annotations=notes, margin_b=below, height=(figure.layout.height or 400) + SLIDER_HEIGHT
    )


def _lowered(note: Mapping[str, Any]) -> dict[str, Any]:
    """The annotation, moved down if it is the badge."""
    return {**note, "yshift": BADGE_SHIFT - SLIDER_HEIGHT} if note.get("yshift") == BADGE_SHIFT else dict(note)


def _text(values: Mapping[str, Any]) -> str:
    """The values of one position as text."""
    return ", ".join(map(value_text, values.values()))
