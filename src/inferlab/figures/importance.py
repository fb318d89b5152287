"""Importance matrices: the loss with and without one, and with matrices of different texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.experiments.importance import EVEN, LEAKED, MATRICES, NONE, RIGHT, Loss, MatrixLosses
from inferlab.figures.style import EDGE, GREY, OLIVE, PINK, PURPLE, RED, TEAL, blank

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
