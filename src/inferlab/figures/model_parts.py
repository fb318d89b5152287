"""Parts of a model: their bytes in the file, and their share in the cost of one token."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.style import GREY, PURPLE, SERIES_COLOURS, blank, stacked
from inferlab.model.gguf import Model
from inferlab.prediction import cost
from inferlab.units import bytes_text, size_unit

BYTES, OPERATIONS = GREY, PURPLE


def cost_by_part(model: Model, n_cells: int) -> go.Figure:
    """Each part's share of the cost of one generated token: of the bytes read, and of the operations.

    n_cells  tokens in the KV cache, this one included; the cache is in 16 bits
    """
    parts = cost.parts(model, n_cells)
    read, done = sum(part.read_bytes for part in parts), sum(part.operations for part in parts)
    bytes_share = [100 * part.read_bytes / read for part in parts]
    operations_share = [100 * part.operations / done for part in parts]
    text = "; ".join(
        f"{part.name} {a:.1f} % of the bytes, {b:.1f} % of the operations"
        for part, a, b in zip(parts, bytes_share, operations_share, strict=True)
    )
    figure = blank(
        f"computed from the header of {model.name}: {bytes_text(read)} and {done / 1e6:,.0f} million operations "
        f"for a token with {n_cells:,} in the cache",
        f"Shares of one token of {model.name} with {n_cells} in the cache: {text}.",
        x="% of one token",
    )
    names = [part.name for part in parts]
    for name, shares, colour in (("bytes", bytes_share, BYTES), ("operations", operations_share, OPERATIONS)):
        figure.add_bar(
            y=names,
            x=shares,
            name=name,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"%{{y}}: %{{x:.1f}} % of the {name}<extra></extra>",
        )
    stacked(figure, len(names))
    figure.update_layout(barmode="group", height=240 + 30 * len(names))
    return figure


def tensor_bytes(model: Model) -> go.Figure:
    """Bytes of a file by part of the model and ggml type."""
    sizes = cost.type_bytes(model.tensors)
    types = sorted({kind for kinds in sizes.values() for kind in kinds}, key=lambda kind: -_of_type(sizes, kind))
    unit, name = size_unit(model.tensor_bytes)
    sentences = (
        f"{part} {', '.join(f'{bytes_text(size)} in {kind}' for kind, size in kinds.items())}"
        for part, kinds in sizes.items()
    )
    figure = blank(
        f"read from the header of {model.name}: {bytes_text(model.tensor_bytes)} in {len(model.tensors)} tensors",
        f"Bytes of {model.name} by part and type: {'; '.join(sentences)}.",
        x=name,
    )
    for index, kind in enumerate(types):
        figure.add_bar(
            y=list(sizes),
            x=[kinds.get(kind, 0) / unit for kinds in sizes.values()],
            name=kind,
            orientation="h",
            marker_color=SERIES_COLOURS[index % len(SERIES_COLOURS)],
            hovertemplate=f"%{{y}}: %{{x:.4g}} {name} in {kind}<extra></extra>",
        )
    stacked(figure, len(sizes))
    figure.update_layout(height=240 + 26 * len(sizes))
    return figure


def _of_type(sizes: Mapping[str, Mapping[str, int]], kind: str) -> int:
    return sum(kinds.get(kind, 0) for kinds in sizes.values())
