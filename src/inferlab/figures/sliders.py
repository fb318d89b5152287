"""A figure with controls over values, every position drawn in advance, so that a page needs no kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import plotly.graph_objects as go

from inferlab.figures.style import value_text

MOVED = ("annotations", "shapes")
"""Parts of the layout that change with the position; axes stay, so that positions can be compared."""
SAID = {
    "n_ctx": "{} tokens of context",
    "n_prompt": "{} tokens of prompt",
    "n_gen": "{} generated tokens",
    "n_batch": "{} tokens in a batch",
    "n_ubatch": "{} tokens in a ubatch",
    "n_threads": "{} threads",
    "n_gpu_layers": "{} layers on the device",
    "flash_attn": "flash attention {}",
}
"""How a setting's value is read aloud."""


def slider(draw: Callable[..., go.Figure], over: Mapping[str, Sequence[Any]], start: int = 0) -> go.Figure:
    """`draw(**values)` for every combination of `over`, the last name's values changing fastest.

    `start` is the position shown first. A trace that several positions draw alike is kept once.
    The page makes its controls from `layout.meta["controls"]` and shows one of `layout.meta["positions"]`.
    """
    values = [dict(zip(over, each, strict=True)) for each in product(*over.values())]
    drawn = [draw(**each) for each in values]
    traces, shown = _distinct(drawn)
    figure = go.Figure(layout=drawn[start].layout)
    figure.add_traces(traces)
    for trace, shown_at in zip(figure.data, shown, strict=True):
        trace.visible = start in shown_at
    positions = [_position(i, each, shown) for i, each in enumerate(drawn)]
    about = f"Controls for {', '.join(over)} with {len(values)} positions, {_text(values[0])} to {_text(values[-1])}. "
    alt = f"{about}At {_text(values[start])}: {drawn[start].layout.meta['alt']}"
    figure.update_layout(meta={"alt": alt, "controls": _controls(over, start), "positions": positions})
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


def _position(position: int, drawn: go.Figure, shown: Sequence[set[int]]) -> dict[str, Any]:
    """What one position shows: the indices of its traces, the moved parts of the layout, its text alternative."""
    layout = drawn.layout.to_plotly_json()
    visible = [i for i, positions in enumerate(shown) if position in positions]
    return {"shown": visible, "alt": drawn.layout.meta["alt"], **{name: layout.get(name, []) for name in MOVED}}


def _controls(over: Mapping[str, Sequence[Any]], start: int) -> list[dict[str, Any]]:
    """One control for each name: its values as text, the index at position `start`, how they are said."""
    at = indices(over, start)
    return [
        {
            "name": name,
            "values": [value_text(value) for value in values],
            "start": at[name],
            "said": SAID.get(name, f"{name} {{}}"),
        }
        for name, values in over.items()
    ]


def indices(over: Mapping[str, Sequence[Any]], position: int) -> dict[str, int]:
    """The index of each name's value at one position."""
    found, left = {}, position
    for name, values in reversed([*over.items()]):
        left, found[name] = divmod(left, len(values))
    return found


def _text(values: Mapping[str, Any]) -> str:
    """The values of one position as text."""
    return ", ".join(map(value_text, values.values()))
