"""Quantization types: bits per weight, the content of one super-block, and the types mixed in a file.

Rounding to a quantization type: errors by method, and the search for a block's scale.
"""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inferlab.figures.style import EDGE, GREY, OLIVE, PURPLE, SERIES_COLOURS, TEAL, blank, line, stacked
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import Model
from studies.block_formats.dequantize import Q4KSuperBlock, Weights
from studies.block_formats.quantize_numpy import Rounding
from studies.block_formats.quantize_q4_k import Trial

PALETTE = ("#334155", *SERIES_COLOURS, "#a3b18a")
BIG, SMALL, TABLE, OTHER = "super-blocks of 256", "blocks of 32 to 128", "codes into a table", "other"
FAMILIES = {BIG: TEAL, SMALL: OLIVE, TABLE: PURPLE, OTHER: GREY}
NOT_FOR_WEIGHTS = ("F64", "I8", "I16", "I32", "I64", "Q8_1", "Q8_K", "F32")


def bits_per_weight() -> go.Figure:
    """Bits per weight, scales included, of every type in which llama.cpp stores weights."""
    kinds = sorted(
        (kind for kind in TYPES.values() if kind.name not in NOT_FOR_WEIGHTS), key=lambda k: -k.bits_per_weight
    )
    text = ", ".join(f"{kind.name} {kind.bits_per_weight:g}" for kind in kinds)
    figure = blank("computed from the block sizes in ggml-common.h", f"Bits per weight: {text}.", x="bits per weight")
    for family, colour in FAMILIES.items():
        own = [kind for kind in kinds if _family(kind.name) == family]
        figure.add_bar(
            y=[kind.name for kind in own],
            x=[kind.bits_per_weight for kind in own],
            name=family,
            orientation="h",
            marker_color=colour,
            customdata=[(kind.block, kind.block_bytes) for kind in own],
            hovertemplate="%{y}: %{customdata[1]} bytes for %{customdata[0]} weights<extra>%{x:.4f} bits</extra>",
        )
    figure.update_layout(barmode="overlay", showlegend=True, height=260 + 20 * len(kinds), bargap=0.25)
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=[kind.name for kind in kinds], autorange="reversed"
    )
    return figure


def _family(name: str) -> str:
    if name.endswith("_K"):
        return BIG
    if name.startswith("IQ"):
        return TABLE
    return SMALL if name.startswith("Q") else OTHER


def super_block(block: Q4KSuperBlock, name: str) -> go.Figure:
    """The content of one Q4_K super-block: 256 codes, a row for each block of 32 with its scale and minimum."""
    rows = [f"{scale} / {low}" for scale, low in zip(block.scales, block.minima, strict=True)]
    rows = [f"{index}: {row}" for index, row in enumerate(rows)]
    figure = blank(
        f"read from 144 bytes of {name}: d = {block.d:.4g}, dmin = {block.dmin:.4g}",
        f"A Q4_K super-block of {name}: d {block.d:.4g}, dmin {block.dmin:.4g}; block, scale and minimum: "
        f"{'; '.join(rows)}; 256 codes from {block.codes.min()} to {block.codes.max()}.",
        x="weight in its block of 32",
        y="block: scale / minimum",
    )
    figure.add_heatmap(
        z=block.codes,
        y=rows,
        colorscale="Viridis",
        zmin=0,
        zmax=15,
        xgap=1,
        ygap=2,
        customdata=block.weights,
        colorbar={"title": "code", "thickness": 12, "dtick": 5},
        hovertemplate="weight %{x} of block %{y}: code %{z}, value %{customdata:.5f}<extra></extra>",
    )
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def mixed_types(models: Sequence[Model]) -> go.Figure:
    """Share of each ggml type in the bytes of a model's tensors, a bar for each model."""
    composed = {_mixed_name(model): _type_shares(model) for model in models}
    kinds = sorted({kind for shares in composed.values() for kind in shares}, key=lambda kind: -_bits(kind))
    text = "; ".join(
        f"{name.replace('<br>', ', ')}: "
        + ", ".join(f"{share:.1f} % {kind}" for kind, share in sorted(own.items(), key=lambda e: -e[1]))
        for name, own in composed.items()
    )
    badge = "computed from shapes and llama.cpp's rules"
    figure = blank(badge, f"Shares of the bytes by type: {text}.", x="% of the bytes")
    for index, kind in enumerate(kinds):
        figure.add_bar(
            y=list(composed),
            x=[own.get(kind, 0) for own in composed.values()],
            name=kind,
            orientation="h",
            marker_color=PALETTE[index % len(PALETTE)],
            hovertemplate=f"{kind}: %{{x:.1f}} %<extra>%{{y}}</extra>",
        )
    stacked(figure, len(composed))
    return figure


def _mixed_name(model: Model) -> str:
    return f"{model.name.removesuffix(' shape')}<br>{8 * model.tensor_bytes / model.n_params:.2f} bits"


def _type_shares(model: Model) -> dict[str, float]:
    sizes: dict[str, int] = {}
    for tensor in model.tensors:
        sizes[tensor.type] = sizes.get(tensor.type, 0) + tensor.n_bytes
    return {kind: 100 * size / model.tensor_bytes for kind, size in sizes.items()}


def _bits(name: str) -> float:
    return TYPES[name].bits_per_weight


KEPT, DROPPED = TEAL, GREY


def rounding_errors(original: Weights, ways: Sequence[Rounding], name: str) -> go.Figure:
    """Root mean square error of each rounding method, in percent of the weights' standard deviation."""
    spread = float(original.std())
    losses = [100 * way.rmse(original) / spread for way in ways]
    labels = [f"{way.name}<br>{way.bits_per_weight:.3g} bits" for way in ways]
    text = "; ".join(f"{way.name} {loss:.2f} %" for way, loss in zip(ways, losses, strict=True))
    figure = blank(
        f"computed from {original.size:,} weights of {name}",
        f"Rounding errors in percent of the standard deviation: {text}.",
        x="RMS error, % of the spread",
    )
    figure.add_bar(
        y=labels,
        x=losses,
        orientation="h",
        marker_color=[KEPT if way.name == "Q4_K" else DROPPED for way in ways],
        text=[f"{loss:.1f}" for loss in losses],
        textposition="outside",
        cliponaxis=False,
        hovertemplate="%{y}: %{x:.2f} %<extra></extra>",
    )
    figure.update_layout(height=210 + 42 * len(ways))
    figure.update_xaxes(range=[0, 1.15 * max(losses)])
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def scale_search(trials: Sequence[Trial], name: str) -> go.Figure:
    """Error of each trial in Q4_K's search for a block's scale, in percent of the first guess; kept ones are marked."""
    first = float(trials[0].error)
    values = [(trial.steps, 100 * float(trial.error) / first) for trial in trials]
    best = min(value for _, value in values)
    kept = [value for value, trial in zip(values[1:], trials[1:], strict=True) if trial.kept]
    figure = blank(
        f"computed from 32 weights of {name}",
        f"The search for one block's scale and minimum: first guess 100 %, best of {len(trials) - 1} trials "
        f"{best:.1f} % of its error; {len(kept)} trials were better than all before them.",
        x="steps between minimum and greatest weight",
        y="weighted error, % of the first guess",
    )
    line(figure, values[1:], "trial", DROPPED)
    figure.add_scatter(
        x=[x for x, _ in kept],
        y=[y for _, y in kept],
        mode="markers",
        name="kept",
        marker={"size": 12, "color": KEPT},
        hovertemplate="kept: %{x:.1f} steps, %{y:.1f} %<extra></extra>",
    )
    figure.add_hline(100, line={"color": EDGE, "dash": "dot"})
    figure.update_layout(showlegend=True)
    return figure
