"""Importance matrices: the loss with and without one, matrices of different texts, and the search for one block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.experiments.importance import EVEN, LEAKED, MATRICES, NONE, RIGHT, Loss, MatrixLosses
from inferlab.figures.style import EDGE, GREY, OLIVE, PINK, PURPLE, RED, TEAL, blank, line
from inferlab.model.quantize_numpy import ImatrixEffect
from inferlab.model.quantize_q4_k import Trial

ROW_PIXELS = 24
MATRIX_NAMES = {
    NONE: "no matrix",
    RIGHT: "training text",
    "one-chunk": "512 tokens of it",
    "code": "code examples",
    "random": "random tokens",
    EVEN: "all columns alike",
    "shuffled": "columns shuffled",
    LEAKED: "the test text itself",
}
"""Names of the matrices for readers."""
MARKS = {
    NONE: (GREY, "circle-open"),
    RIGHT: (TEAL, "circle"),
    "one-chunk": (PURPLE, "diamond"),
    "code": (OLIVE, "square"),
    "random": (RED, "x"),
    EVEN: (GREY, "circle"),
    "shuffled": (RED, "cross"),
    LEAKED: (PINK, "star"),
}


def losses_with_matrix(losses: MatrixLosses, matrix: str = RIGHT) -> go.Figure:
    """Divergence of every quantization without an importance matrix and with one, a row each, most bits on top."""
    types = sorted(
        dict.fromkeys((*losses.types(NONE), *losses.types(matrix))),
        key=lambda type: -losses.bits_per_weight(_either(losses, type, matrix)),
    )
    rows = {type: f"{type}, {losses.bits_per_weight(_either(losses, type, matrix)):.2f} bits" for type in types}
    text = "; ".join(f"{rows[type]}: {_both_text(losses, type, matrix)}" for type in types)
    figure = blank(losses.badge, f"KL divergence from F16. {text}.", x="KL divergence, nats a token")
    for type in types:
        ends = [losses.of(type), losses.of(type, matrix)]
        if None not in ends:
            figure.add_scatter(
                x=[one.kl_divergence.value for one in ends], y=[rows[type]] * 2, mode="lines",
                line={"color": EDGE, "width": 3}, showlegend=False, hoverinfo="skip",
            )  # fmt: skip
    for name in (NONE, matrix):
        _add_losses(figure, [losses.of(type, name) for type in types if losses.of(type, name)], rows, name)
    figure.update_xaxes(type="log", dtick=1, exponentformat="power")
    return _rows(figure, list(rows.values()))


def losses_by_text(losses: MatrixLosses, types: Sequence[str]) -> go.Figure:
    """Divergence with the matrix of each text, and without one, in units of that with the training text's matrix."""
    names = [name for name in (NONE, *MATRICES) if any(losses.of(type, name) for type in types)]
    text = "; ".join(f"{type}: {_relative_text(losses, type, names)}" for type in types)
    figure = blank(
        losses.badge, f"KL divergence relative to that with the matrix of the training text. {text}.",
        x="KL divergence, training text = 1",
    )  # fmt: skip
    for name in names:
        own = [losses.of(type, name) for type in types if losses.of(type, name)]
        units = [losses.of(one.type, RIGHT).kl_divergence.value for one in own]
        _add_losses(figure, own, {type: type for type in types}, name, units)
    figure.add_vline(1, line={"color": EDGE, "width": 2})
    figure = _rows(figure, list(types))
    figure.update_layout(height=figure.layout.height + 20 * len(types) + 60)
    return figure


def _relative_text(losses: MatrixLosses, type: str, names: Sequence[str]) -> str:
    unit = losses.of(type, RIGHT).kl_divergence.value
    ratios = {name: losses.of(type, name).kl_divergence.value / unit for name in names if losses.of(type, name)}
    return ", ".join(f"{MATRIX_NAMES[name]} {ratio:.2f}" for name, ratio in ratios.items())


def matrix_searches(searches: Mapping[str, Sequence[Trial]], name: str) -> go.Figure:
    """Error of each trial for one block in Q4_K's two searches, each in percent of its own first guess."""
    values = {
        label: [(one.steps, 100 * float(one.error) / float(trials[0].error)) for one in trials]
        for label, trials in searches.items()
    }
    text = "; ".join(
        f"{label}: best of {len(found) - 1} trials {min(y for _, y in found):.1f} %" for label, found in values.items()
    )
    figure = blank(
        f"computed from 32 weights of {name}",
        f"The search for one block's scale and minimum, error in percent of the first guess. {text}.",
        x="steps between minimum and greatest weight", y="weighted error, % of the first guess",
    )  # fmt: skip
    for (label, found), name in zip(values.items(), (NONE, RIGHT), strict=False):
        colour, symbol = MARKS[name]
        kept = [point for point, one in zip(found[1:], searches[label][1:], strict=True) if one.kept]
        line(figure, found[1:], label, colour)
        figure.add_scatter(
            x=[x for x, _ in kept], y=[y for _, y in kept], mode="markers", name=f"{label}, kept",
            marker={"size": 12, "color": colour, "symbol": symbol, "line": {"width": 2, "color": colour}},
            hovertemplate="kept: %{x:.2f} steps, %{y:.1f} %<extra></extra>",
        )  # fmt: skip
    figure.add_hline(100, line={"color": EDGE, "dash": "dot"})
    figure.update_layout(showlegend=True, height=440, margin_t=80)
    return figure


def changed_codes(effect: ImatrixEffect, name: str) -> go.Figure:
    """The codes of one Q4_K super-block that an importance matrix changes, a row for each block of 32 weights."""
    change = effect.weighted.codes.astype(int) - effect.plain.codes.astype(int)
    scales = [f"{a} to {b}" for a, b in zip(effect.plain.scales, effect.weighted.scales, strict=True)]
    rows = [f"{number}: {text}" for number, text in enumerate(scales)]
    figure = blank(
        f"computed from 256 weights of {name} and the importance of their columns",
        f"{effect.n_codes_changed} of 256 codes differ with the matrix; scales of the blocks: {', '.join(rows)}.",
        x="weight in its block of 32", y="block: scale without and with",
    )  # fmt: skip
    figure.add_heatmap(
        z=change, y=rows, zmid=0, zmin=-2, zmax=2, xgap=1, ygap=2, customdata=effect.importance.reshape(8, 32),
        colorscale=[[0, PURPLE], [0.5, "rgba(128,128,128,0.18)"], [1, TEAL]],
        colorbar={"title": "change", "thickness": 12, "dtick": 1},
        hovertemplate="weight %{x} of block %{y}: code %{z:+d}, importance %{customdata:.3g}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(type="category", autorange="reversed")
    return figure


def _either(losses: MatrixLosses, type: str, matrix: str) -> Loss:
    return losses.of(type, matrix) or losses.of(type)


def _both_text(losses: MatrixLosses, type: str, matrix: str) -> str:
    ends = {MATRIX_NAMES[name]: losses.of(type, name) for name in (NONE, matrix)}
    return ", ".join(f"{name} {one.kl_divergence.value:.2g}" for name, one in ends.items() if one)


def _add_losses(
    figure: go.Figure, losses: Sequence[Loss], rows: Mapping[str, str], name: str, units: Sequence[float] | None = None
) -> None:
    """One matrix's losses in their rows, in nats or in the given units of nats."""
    colour, symbol = MARKS[name]
    units, values = units or [1.0] * len(losses), [one.kl_divergence for one in losses]
    figure.add_scatter(
        x=[value.value / unit for value, unit in zip(values, units, strict=True)],
        y=[rows[one.type] for one in losses], mode="markers", name=MATRIX_NAMES[name],
        marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
        error_x={
            "array": [value.standard_error / unit for value, unit in zip(values, units, strict=True)],
            "color": colour, "width": 0,
        },
        customdata=[(*one.kl_divergence, 100 * one.same_top_share.value) for one in losses],
        hovertemplate="%{y}: %{customdata[0]:.3g} ± %{customdata[1]:.1g} nats, same top token %{customdata[2]:.1f} %"
        f"<extra>{MATRIX_NAMES[name]}</extra>",
    )  # fmt: skip


def _rows(figure: go.Figure, names: list[str]) -> go.Figure:
    figure.update_layout(showlegend=True, height=240 + ROW_PIXELS * len(names))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names, autorange="reversed")
    return figure
