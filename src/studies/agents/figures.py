"""Tokens that llama-server read again in each turn of an agent, and the first token's seconds: a row a setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import plotly.graph_objects as go

from inferlab.figures.style import PREFILL, RED, TEAL, blank, from_zero
from studies.agents.study import TRAINED, Replay, first_token_seconds

ROW_PIXELS, GAP_PIXELS, TOP_PIXELS = 66, 34, 92
NEW, AGAIN, SECONDS = "new tokens", "read again", "first token, s"


def read_again(shape: Mapping[str, Replay], trained: Mapping[str, Sequence[Replay]]) -> go.Figure:
    """Left the prompt tokens that each turn read, new ones and again; right the median time to its first token."""
    names = [name for name in shape if name in trained]
    figure = blank(shape[names[0]].badge, _alt(names, shape, trained))
    inside = len(names) * ROW_PIXELS + GAP_PIXELS * (len(names) - 1)
    figure.set_subplots(
        rows=len(names), cols=2, shared_xaxes=True, vertical_spacing=GAP_PIXELS / inside, horizontal_spacing=0.14
    )
    for row, name in enumerate(names, 1):
        _tokens(figure, row, shape[name])
        _bars(figure, row, 2, SECONDS, TEAL, first_token_seconds(trained[name]), "%{y:.2f} s")
    _scale(figure, names, shape, trained)
    _titles(figure, names, shape)
    if trained[names[0]][0].model != shape[names[0]].model:
        _above(figure, 2, f"{TRAINED}, 1/{trained[names[0]][0].scale}", 0.57)
    height = inside + TOP_PIXELS + figure.layout.margin.b
    figure.update_layout(barmode="stack", bargap=0.2, height=height, margin_t=TOP_PIXELS, showlegend=True)
    figure.update_layout(legend_y=1 + 44 / inside)
    figure.update_xaxes(range=[0.4, len(shape[names[0]].main) + 0.6], zeroline=False)
    figure.update_xaxes(title_text="turn", row=len(names))
    return figure


def _tokens(figure: go.Figure, row: int, one: Replay) -> None:
    """Stacked bars of one setting; nothing where the server refused the request."""
    read = [asked for asked in one.main if asked.n_read is not None]
    _bars(figure, row, 1, NEW, PREFILL, {asked.turn: asked.n_read - asked.n_again for asked in read}, "%{y:,d} tokens")
    _bars(figure, row, 1, AGAIN, RED, {asked.turn: asked.n_again for asked in read}, "%{y:,d} tokens")


def _bars(
    figure: go.Figure, row: int, col: int, name: str, colour: str, by_turn: Mapping[int, float], hover: str
) -> None:
    figure.add_bar(
        x=list(by_turn),
        y=list(by_turn.values()),
        name=name,
        legendgroup=name,
        showlegend=row == 1,
        marker_color=colour,
        hovertemplate="turn %{x}: " + hover,
        row=row,
        col=col,
    )


def _scale(figure: go.Figure, names: Sequence[str], shape: Mapping[str, Replay], trained: Mapping) -> None:
    """One vertical axis for all rows of a column."""
    tokens = max(asked.n_read or 0 for name in names for asked in shape[name].main)
    seconds = max((s for name in names for s in first_token_seconds(trained[name]).values()), default=0.0)
    figure.update_yaxes(from_zero(tokens, 0, 2), col=1)
    figure.update_yaxes(from_zero(seconds, 0, 2), col=2)


def _titles(figure: go.Figure, names: Sequence[str], shape: Mapping[str, Replay]) -> None:
    """The setting's name above each row, and how many requests it refused."""
    for row, name in enumerate(names, 1):
        refused = shape[name].n_refused
        told = f": {refused} of {len(shape[name].requests)} refused" if refused else ""
        _above(figure, 2 * row - 1, name + told, 0)


def _above(figure: go.Figure, axis: int, text: str, x: float) -> None:
    """Text above one panel, by the number of its vertical axis."""
    figure.add_annotation(
        text=text,
        showarrow=False,
        font={"size": 12},
        xref="paper",
        x=x,
        xanchor="left",
        yref=f"y{axis if axis > 1 else ''} domain",
        y=1.02,
        yanchor="bottom",
    )


def _alt(names: Sequence[str], shape: Mapping[str, Replay], trained: Mapping[str, Sequence[Replay]]) -> str:
    told = []
    for name in names:
        one, seconds = shape[name], first_token_seconds(trained[name])
        worst = max(asked.n_again for asked in one.main)
        times = f"median first token {median(seconds.values()):.2f} s" if seconds else "no answer"
        told.append(f"{name}: at most {worst:,d} in a turn, {one.n_refused} requests refused, {times}")
    return f"Prompt tokens that llama-server read again in {len(shape[names[0]].main)} turns. " + "; ".join(told) + "."
