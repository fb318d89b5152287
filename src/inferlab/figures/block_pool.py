"""Cache in blocks beside llama.cpp's cells, the share of a card that vLLM takes, and memory over model size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.figures.memory import ROOM
from inferlab.figures.style import (
    EDGE,
    GREY,
    OLIVE,
    SERIES_COLOURS,
    TEAL,
    blank,
    from_zero,
    line,
    room_beside_bars,
    stacked,
)
from inferlab.prediction.block_pool import (
    MemoryShare,
    cells_in_blocks,
    cells_in_one_pool,
    cells_in_slots,
    default,
)
from inferlab.prediction.memory import MemoryPlan
from inferlab.units import GIB, bytes_text

COMPUTED = "computed from llama.cpp's formula and from vLLM's documented block size; nothing was run"
SHARED = "computed from the sizes of weights and from vLLM's documented share; nothing was run"
USED, EMPTY = TEAL, EDGE


def cells_held(lengths: Sequence[int], n_ctx: int, longest: int | None = None) -> go.Figure:
    """Cells with and without a token for conversations of so many tokens: slots of `n_ctx`, one pool, and blocks.

    `longest` is the largest n_ctx that shares the axis.
    """
    held = _held(lengths, n_ctx)
    used = sum(lengths)
    said = "; ".join(f"{name} hold {n:,} cells, {n - used:,} of them empty" for name, n in held.items())
    figure = blank(COMPUTED, f"{len(lengths)} conversations with {used:,} tokens: {said}.", x="cells of the KV cache")
    names, texts = list(held), _empty_texts(held, used)
    figure.add_bar(y=names, x=[used] * len(names), name="with a token", orientation="h", marker_color=USED)
    figure.add_bar(
        y=names, x=[n - used for n in held.values()], name="empty", orientation="h", marker_color=EMPTY, text=texts,
        textposition="outside", cliponaxis=False,
    )  # fmt: skip
    stacked(figure, len(names))
    widest = _held(lengths, longest or n_ctx)
    figure.update_xaxes(range=room_beside_bars(names, list(widest.values()), _empty_texts(widest, used)))
    return figure


def _empty_texts(held: Mapping[str, int], used: int) -> list[str]:
    return [f"{n - used:,} empty" for n in held.values()]


def _held(lengths: Sequence[int], n_ctx: int) -> dict[str, int]:
    return {
        "slots": cells_in_slots(lengths, n_ctx),
        "one pool": cells_in_one_pool(lengths),
        f"blocks of {default('block-tokens'):.0f}": cells_in_blocks(lengths),
    }


def card_shares(shares: Mapping[str, MemoryShare], bytes_per_token: int) -> go.Figure:
    """GiB of cards: weights, what is left of the share for cache and activations, and what stays outside it.

    Where the weights are larger than the card, a dashed line marks its memory; the text says what does not start.
    """
    texts = [_share_text(one, bytes_per_token) for one in shares.values()]
    said = "; ".join(f"{name}: weights {bytes_text(one.weights_bytes)}, {text}"
                     for (name, one), text in zip(shares.items(), texts, strict=True))  # fmt: skip
    figure = blank(SHARED, f"Memory of cards by use: {said}.", x="GiB")
    parts = [(one.weights_bytes, one.pool_bytes, _outside(one)) for one in shares.values()]
    kinds = (("weights", GREY), ("cache, activations", TEAL), ("not taken", EDGE))
    for (name, colour), values in zip(kinds, zip(*parts, strict=True), strict=True):
        figure.add_bar(
            y=list(shares), x=[n / GIB for n in values], name=name, orientation="h", marker_color=colour,
            hovertemplate=f"{name} %{{x:.2f}} GiB<extra>%{{y}}</extra>",
        )  # fmt: skip
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


def footprint_factors(plans: Mapping[str, Sequence[MemoryPlan]], said_factor: float) -> go.Figure:
    """Planned memory over the size of the weights against n_ctx, a line for each series, and a line at one factor."""
    series = {
        name: [(plan.settings.n_ctx, plan.total_bytes / plan.bytes_of("weights")) for plan in each]
        for name, each in plans.items()
    }
    text = "; ".join(f"{name} {points[0][1]:.2f} at {points[0][0]:,} tokens and {points[-1][1]:.2f} at "
                     f"{points[-1][0]:,}" for name, points in series.items())  # fmt: skip
    badge = "computed (closed form): weights, KV cache, compute and output buffer; nothing was loaded"
    alt = f"Memory over weights by context: {text}. The dotted line is {said_factor}."
    figure = blank(badge, alt, x="n_ctx, tokens", y="memory / weights")
    for (name, points), colour in zip(series.items(), SERIES_COLOURS, strict=False):
        line(figure, points, name, colour, marks=False)
    figure.add_hline(y=said_factor, line={"color": OLIVE, "width": 2, "dash": "dot"})
    figure.update_layout(showlegend=True)
    figure.update_yaxes(from_zero(max(y for points in series.values() for _, y in points)))
    return figure
