"""The share of a card that vLLM takes."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.memory import CAPACITY
from inferlab.figures.style import EDGE, GREY, TEAL, blank, space_beside_bars, stacked
from inferlab.units import GIB, bytes_text
from studies.vllm.block_pool import MemoryShare

SHARED = "computed from the sizes of weights and from vLLM's documented share; nothing was run"


def card_shares(shares: Mapping[str, MemoryShare], bytes_per_token: int) -> go.Figure:
    """GiB of cards: weights, what is left of the share for cache and activations, and what stays outside it.

    Where the weights are larger than the card, a dashed line marks its memory; the text says what does not start.
    """
    texts = [
        f"{share.tokens(bytes_per_token):,} tokens" if share.fits else "does not start" for share in shares.values()
    ]
    weights = [f"{name}: weights {bytes_text(share.weights_bytes)}" for name, share in shares.items()]
    alt = "; ".join(f"{part}, {text}" for part, text in zip(weights, texts, strict=True))
    figure = blank(SHARED, f"Memory of cards by use: {alt}.", x="GiB")
    uses = {
        ("weights", GREY): [share.weights_bytes for share in shares.values()],
        ("cache, activations", TEAL): [share.pool_bytes for share in shares.values()],
        ("not taken", EDGE): [
            max(0, share.card_bytes - share.weights_bytes - share.pool_bytes) for share in shares.values()
        ],
    }
    for (name, colour), values in uses.items():
        figure.add_bar(
            y=list(shares),
            x=[n / GIB for n in values],
            name=name,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{name} %{{x:.2f}} GiB<extra>%{{y}}</extra>",
        )
    figure.data[-1].update(text=texts, textposition="outside", cliponaxis=False)
    for row, share in enumerate(shares.values()):
        if share.weights_bytes > share.card_bytes:
            at, style = share.card_bytes / GIB, {"color": CAPACITY, "width": 2, "dash": "dash"}
            figure.add_shape(type="line", x0=at, x1=at, y0=row - 0.4, y1=row + 0.4, line=style)
    stacked(figure, len(shares))
    figure.update_layout(height=200 + 40 * len(shares))
    ends = [sum(parts) / GIB for parts in zip(*uses.values(), strict=True)]
    figure.update_xaxes(range=space_beside_bars(list(shares), ends, texts))
    return figure
