"""Quantization in figures: what a type costs, what a block holds, what rounding loses, what it does to the speed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.experiments.quant_tradeoffs import Choice, Losses, Row, front
from inferlab.facts import PublishedTable
from inferlab.figures.style import DECODE, EDGE, PREFILL, blank, line, points, stacked
from inferlab.measurement.run import Run
from inferlab.model.dequantize import Q4KSuperBlock, Weights
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import Model
from inferlab.model.quantize_numpy import Rounding, Trial
from inferlab.units import GIB, MIB

PALETTE = ("#334155", "#6b7280", "#3b82c4", "#0f9d8a", "#d97706", "#a855c7", "#c0563c", "#8a7415")
BIG, SMALL, TABLE, OTHER = "super-blocks of 256", "blocks of 32 to 128", "codes into a table", "other"
FAMILIES = {BIG: "#0f9d8a", SMALL: "#3b82c4", TABLE: "#a855c7", OTHER: "#6b7280"}
NOT_FOR_WEIGHTS = ("F64", "I8", "I16", "I32", "I64", "Q8_1", "Q8_K", "F32")
LEAST_SHOWN = 1e-6  # nats: what a logarithmic axis shows for 0
KEPT, DROPPED = "#0f9d8a", "#6b7280"


def bits_per_weight() -> go.Figure:
    """Bits per weight of every type that llama.cpp stores weights in, scales included, computed from its blocks."""
    kinds = sorted(
        (kind for kind in TYPES.values() if kind.name not in NOT_FOR_WEIGHTS), key=lambda k: -k.bits_per_weight
    )
    told = ", ".join(f"{kind.name} {kind.bits_per_weight:g}" for kind in kinds)
    figure = blank("computed from the block sizes in ggml-common.h", f"Bits per weight: {told}.", x="bits per weight")
    for family, colour in FAMILIES.items():
        own = [kind for kind in kinds if _family(kind.name) == family]
        figure.add_bar(
            y=[kind.name for kind in own], x=[kind.bits_per_weight for kind in own], name=family, orientation="h",
            marker_color=colour, customdata=[(kind.block, kind.block_bytes) for kind in own],
            hovertemplate="%{y}: %{customdata[1]} bytes for %{customdata[0]} weights<extra>%{x:.4f} bits</extra>",
        )  # fmt: skip
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
    """One Q4_K super-block opened: 256 codes, a row for each block of 32, its scale and minimum beside it."""
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
        z=block.codes, y=rows, colorscale="Viridis", zmin=0, zmax=15, xgap=1, ygap=2, customdata=block.weights,
        colorbar={"title": "code", "thickness": 12, "dtick": 5},
        hovertemplate="weight %{x} of block %{y}: code %{z}, value %{customdata:.5f}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def roundings(original: Weights, ways: Sequence[Rounding], name: str) -> go.Figure:
    """Root mean square error of each way of rounding, in percent of the weights' own spread, beside its bits."""
    spread = float(original.std())
    losses = [100 * way.rmse(original) / spread for way in ways]
    labels = [f"{way.name}<br>{way.bits_per_weight:.3g} bits" for way in ways]
    told = "; ".join(f"{way.name} {loss:.2f} %" for way, loss in zip(ways, losses, strict=True))
    figure = blank(
        f"computed from {original.size:,} weights of {name}",
        f"Rounding errors in percent of the standard deviation: {told}.",
        x="RMS error, % of the spread",
    )
    figure.add_bar(
        y=labels, x=losses, orientation="h", marker_color=[KEPT if way.name == "Q4_K" else DROPPED for way in ways],
        text=[f"{loss:.1f}" for loss in losses], textposition="outside", cliponaxis=False,
        hovertemplate="%{y}: %{x:.2f} %<extra></extra>",
    )  # fmt: skip
    figure.update_layout(height=210 + 42 * len(ways))
    figure.update_xaxes(range=[0, 1.15 * max(losses)])
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def search(trials: Sequence[Trial], name: str) -> go.Figure:
    """Error of each trial of Q4_K's search for one block, as a share of the first guess's; kept trials are filled."""
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
        x=[x for x, _ in kept], y=[y for _, y in kept], mode="markers", name="kept",
        marker={"size": 12, "color": KEPT}, hovertemplate="kept: %{x:.1f} steps, %{y:.1f} %<extra></extra>",
    )  # fmt: skip
    figure.add_hline(100, line={"color": EDGE, "dash": "dot"})
    figure.update_layout(showlegend=True)
    return figure


def mixed_types(models: Sequence[Model]) -> go.Figure:
    """Share of each ggml type in the bytes of each model's tensors, one bar a model."""
    composed = {_mixed_name(model): _type_shares(model) for model in models}
    kinds = sorted({kind for shares in composed.values() for kind in shares}, key=lambda kind: -_bits(kind))
    told = "; ".join(
        f"{name.replace('<br>', ', ')}: "
        + ", ".join(f"{share:.1f} % {kind}" for kind, share in sorted(own.items(), key=lambda e: -e[1]))
        for name, own in composed.items()
    )
    badge = "computed from shapes and llama.cpp's rules"
    figure = blank(badge, f"Shares of the bytes by type: {told}.", x="% of the bytes")
    for index, kind in enumerate(kinds):
        figure.add_bar(
            y=list(composed), x=[own.get(kind, 0) for own in composed.values()], name=kind, orientation="h",
            marker_color=PALETTE[index % len(PALETTE)], hovertemplate=f"{kind}: %{{x:.1f}} %<extra>%{{y}}</extra>",
        )  # fmt: skip
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


def rates(runs: Mapping[str, Run]) -> go.Figure:
    """Prefill and decode of one shape in several mixes, relative to the first: every pass a point, medians joined.

    The dotted line is what decode would gain if only the bytes of the weights counted.
    """
    first = next(iter(runs.values()))
    gains = {mix: first.model.tensor_bytes / run.model.tensor_bytes for mix, run in runs.items()}
    told = "; ".join(f"{mix} {_gain(first, run)}, bytes {gains[mix]:.2f}" for mix, run in runs.items())
    figure = blank(
        first.badge, f"Rates relative to {next(iter(runs))}: {told}.", y=f"rate relative to {next(iter(runs))}"
    )
    for of, name, colour in (
        ("decode_tokens_per_second", "decode", DECODE),
        ("prefill_tokens_per_second", "prefill", PREFILL),
    ):
        base = getattr(first, of)
        every = [(mix, rate / base) for mix, run in runs.items() for rate in run.points(of)]
        points(figure, every, f"{name}, one pass", colour)
        figure.data[-1].showlegend = False
        line(figure, [(mix, getattr(run, of) / base) for mix, run in runs.items()], name, colour)
    _bytes_line(figure, gains)
    return _named_mixes(figure, list(runs))


def published_rates(table: PublishedTable) -> go.Figure:
    """The same from a published table, with the standard deviations it prints."""
    base = table.rows["F16"]
    gains = {mix: base["bits_per_weight"] / row["bits_per_weight"] for mix, row in table.rows.items()}
    told = "; ".join(
        f"{mix} decode {row['decode'] / base['decode']:.2f}, prefill {row['prefill'] / base['prefill']:.2f}"
        for mix, row in table.rows.items()
    )
    figure = blank(f"cited: {table.title}", f"Published rates relative to F16: {told}.", y="rate relative to F16")
    for of, colour in (("decode", DECODE), ("prefill", PREFILL)):
        figure.add_scatter(
            x=list(table.rows), y=[row[of] / base[of] for row in table.rows.values()], name=of, mode="lines+markers",
            line={"color": colour, "width": 2}, marker={"size": 8},
            error_y={"array": [row[f"{of}_sd"] / base[of] for row in table.rows.values()], "color": colour},
        )  # fmt: skip
    _bytes_line(figure, gains)
    return _named_mixes(figure, list(table.rows))


def _gain(first: Run, run: Run) -> str:
    decode = run.decode_tokens_per_second / first.decode_tokens_per_second
    return f"decode {decode:.2f}, prefill {run.prefill_tokens_per_second / first.prefill_tokens_per_second:.2f}"


def _bytes_line(figure: go.Figure, gains: Mapping[str, float]) -> None:
    figure.add_scatter(
        x=list(gains), y=list(gains.values()), name="if only bytes counted", mode="lines",
        line={"color": DROPPED, "dash": "dot", "width": 2},
    )  # fmt: skip


def _named_mixes(figure: go.Figure, mixes: list[str]) -> go.Figure:
    figure.update_layout(showlegend=True, height=440)
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=mixes, tickangle=-45)
    figure.update_yaxes(rangemode="tozero")
    return figure


def fidelity(losses: Losses) -> go.Figure:
    """Mean KL divergence of each file or cache against bits per weight or by name, with its standard error."""
    found = losses.by_name
    told = "; ".join(
        f"{name} {one.kl_divergence.value:.2g} ± {one.kl_divergence.standard_error:.1g}" for name, one in found.items()
    )
    figure = blank(losses.badge, f"KL divergence from F16: {told}.", y="KL divergence, nats a token")
    figure.add_scatter(
        x=list(found), y=[one.kl_divergence.value for one in found.values()], mode="markers", name="mean",
        marker={"size": 11, "color": KEPT},
        error_y={"array": [one.kl_divergence.standard_error for one in found.values()], "color": KEPT},
        customdata=[(one.perplexity.value, 100 * one.same_top_share.value) for one in found.values()],
        hovertemplate="%{x}: %{y:.2g} nats, perplexity %{customdata[0]:.3f}, "
        "same top token %{customdata[1]:.1f} %<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    figure.update_xaxes(type="category", tickangle=-45)
    figure.update_layout(height=460, margin={"b": 170})
    return figure


def pareto(rows: Sequence[Row], badge: str) -> go.Figure:
    """Size, speed and loss of each type: decode rate against KL divergence, a disc as large as the file.

    The line joins the types that no other type beats in rate and loss.
    """
    known = [row for row in rows if row.known]
    best = sorted(front(known), key=lambda row: row.decode_tokens_per_second)
    told = "; ".join(
        f"{r.name} {r.tensor_bytes / GIB:.2f} GiB, {r.decode_tokens_per_second:.1f} tokens/s, KLD {r.kl_divergence:.2g}"
        for r in known
    )
    figure = blank(
        badge, f"Size, speed and loss: {told}. On the front: {', '.join(row.name for row in best)}.",
        x="decode, tokens/s, of the shape", y="KL divergence, of the trained model",
    )  # fmt: skip
    line(figure, [(row.decode_tokens_per_second, row.kl_divergence) for row in best], "front", EDGE, marks=False)
    largest = max(row.tensor_bytes for row in known)
    figure.add_scatter(
        x=[row.decode_tokens_per_second for row in known], y=[row.kl_divergence for row in known],
        mode="markers+text", text=[row.name for row in known], textposition="top center", name="type",
        marker={
            "size": [36 * (row.tensor_bytes / largest) ** 0.5 for row in known],
            "color": [KEPT if row in best else DROPPED for row in known], "opacity": 0.75,
        },
        customdata=[row.tensor_bytes / GIB for row in known],
        hovertemplate="%{text}: %{customdata:.2f} GiB, %{x:.1f} tokens/s, KLD %{y:.2g}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    figure.update_layout(height=540, margin={"b": 190})
    return figure


def choices(made: Sequence[Choice], badge: str | None = None) -> go.Figure:
    """Weights and cache together: bytes against KL divergence, a point for each choice; 0 lies on the lower edge."""
    values = [(one.n_bytes / MIB, max(one.fidelity.kl_divergence.value, LEAST_SHOWN)) for one in made]
    told = "; ".join(f"{one.name} {x:.2f} MiB, KLD {y:.2g}" for one, (x, y) in zip(made, values, strict=True))
    figure = blank(
        badge, f"Choices of types for weights and cache: {told or 'none yet'}.",
        x="weights and full cache, MiB", y="KL divergence, nats a token",
    )  # fmt: skip
    figure.add_scatter(
        x=[x for x, _ in values], y=[y for _, y in values], mode="markers+text", textposition="top center",
        text=[str(number) for number in range(1, len(made) + 1)], marker={"size": 11, "color": KEPT},
        customdata=[one.name for one in made],
        hovertemplate="%{customdata}: %{x:.2f} MiB, KLD %{y:.2g}<extra>choice %{text}</extra>",
    )  # fmt: skip
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    return figure
