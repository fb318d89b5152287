"""The share of a card that vLLM takes."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.memory import ROOM
from inferlab.figures.style import EDGE, GREY, TEAL, blank, room_beside_bars, stacked
from inferlab.units import GIB, bytes_text
from studies.vllm.block_pool import MemoryShare

SHARED = "computed from the sizes of weights and from vLLM's documented share; nothing was run"


def card_shares(shares: Mapping[str, MemoryShare], bytes_per_token: int) -> go.Figure:
    """GiB of cards: weights, what is left of the share for cache and activations, and what stays outside it.

    Where the weights are larger than the card, a dashed line marks its memory; the text says what does not start.
    """
    texts = [_share_text(one, bytes_per_token) for one in shares.values()]
    said = "; ".join(
        f"{name}: weights {bytes_text(one.weights_bytes)}, {text}"
        for (name, one), text in zip(shares.items(), texts, strict=True)
    )
    figure = blank(SHARED, f"Memory of cards by use: {said}.", x="GiB")
    parts = [(one.weights_bytes, one.pool_bytes, _outside(one)) for one in shares.values()]
    kinds = (("weights", GREY), ("cache, activations", TEAL), ("not taken", EDGE))
    for (name, colour), values in zip(kinds, zip(*parts, strict=True), strict=True):
        figure.add_bar(
            y=list(shares),
            x=[n / GIB for n in values],
            name=name,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{name} %{{x:.2f}} GiB<extra>%{{y}}</extra>",
        )
    figure.data[-1].update(text=texts, textposition="outside", cliponaxis=False)
    for row, one in enumerate(shares.values()):
        if one.weights_bytes > one.card_bytes:
            _card_end(figure, row, one.card_bytes / GIB)
    stacked(figure, len(shares))
    figure.update_layout(height=200 + 40 * len(shares))
    figure.update_xaxes(range=room_beside_bars(list(shares), [sum(each) / GIB for each in parts], texts))
    return figure


def _outside(one: MemoryShare) -> int:
    return max(0, one.card_bytes - one.weights_bytes - one.pool_bytes)


def _share_text(one: MemoryShare, bytes_per_token: int) -> str:
    return f"{one.tokens(bytes_per_token):,} tokens" if one.fits else "does not start"


def _card_end(figure: go.Figure, row: int, at: float) -> None:
    """A dashed line across a bar at the card's memory, in GiB."""
    figure.add_shape(
        type="line", x0=at, x1=at, y0=row - 0.4, y1=row + 0.4, line={"color": ROOM, "width": 2, "dash": "dash"}
    )
