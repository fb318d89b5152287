"""Importance matrices: the loss with and without one, and with matrices of different texts.

Choice of a quantization: speed, loss and size of each type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go

from inferlab.facts import PublishedTable
from inferlab.figures.style import DECODE, EDGE, GREY, OLIVE, PINK, PREFILL, PURPLE, RED, TEAL, blank, line
from inferlab.units import GIB, MIB
from studies.quantization.quant_tradeoffs import Choice, Losses, Row, front
from studies.quantization.study import EVEN, LEAKED, MATRICES, MATRIX_NAMES, NONE, RIGHT, Loss, MatrixLosses

VISIBLE_ERROR = 0.15  # of the value: a smaller bar is hidden by its dot on an axis of several powers of ten
LEAST_SHOWN = 1e-6  # nats: drawn in place of 0, which a logarithmic axis cannot show
MATRIX_ROW_PIXELS, ROW_PIXELS = 24, 22
KEPT, DROPPED = TEAL, GREY
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


def losses_with_matrix(losses: MatrixLosses) -> go.Figure:
    """Divergence of every type without a matrix and with the training text's, a row each, most bits on top."""
    types = sorted(
        dict.fromkeys((*losses.types(NONE), *losses.types(RIGHT))),
        key=lambda type: -losses.bits_per_weight(_either(losses, type)),
    )
    rows = {type: f"{type}, {losses.bits_per_weight(_either(losses, type)):.2f} bits" for type in types}
    text = "; ".join(f"{rows[type]}: {_both_text(losses, type)}" for type in types)
    figure = blank(losses.badge, f"KL divergence from F16. {text}.", x="KL divergence, nats a token")
    for type in types:
        ends = [losses.of(type), losses.of(type, RIGHT)]
        if None not in ends:
            figure.add_scatter(
                x=[one.kl_divergence.value for one in ends],
                y=[rows[type]] * 2,
                mode="lines",
                line={"color": EDGE, "width": 3},
                showlegend=False,
                hoverinfo="skip",
            )
    for name in (NONE, RIGHT):
        _add_losses(figure, [losses.of(type, name) for type in types if losses.of(type, name)], rows, name)
    figure.update_xaxes(type="log", dtick=1, exponentformat="power")
    return _rows(figure, list(rows.values()))


def losses_by_text(losses: MatrixLosses, types: Sequence[str]) -> go.Figure:
    """Divergence with the matrix of each text, and without one, in units of that with the training text's matrix."""
    names = [name for name in (NONE, *MATRICES) if any(losses.of(type, name) for type in types)]
    text = "; ".join(f"{type}: {_relative_text(losses, type, names)}" for type in types)
    figure = blank(
        losses.badge,
        f"KL divergence relative to that with the matrix of the training text. {text}.",
        x="KL divergence, training text = 1",
    )
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


def _either(losses: MatrixLosses, type: str) -> Loss:
    return losses.of(type, RIGHT) or losses.of(type)


def _both_text(losses: MatrixLosses, type: str) -> str:
    ends = {MATRIX_NAMES[name]: losses.of(type, name) for name in (NONE, RIGHT)}
    return ", ".join(f"{name} {one.kl_divergence.value:.2g}" for name, one in ends.items() if one)


def _add_losses(
    figure: go.Figure, losses: Sequence[Loss], rows: Mapping[str, str], name: str, units: Sequence[float] | None = None
) -> None:
    """One matrix's losses in their rows, in nats or in the given units of nats."""
    colour, symbol = MARKS[name]
    units, values = units or [1.0] * len(losses), [one.kl_divergence for one in losses]
    figure.add_scatter(
        x=[value.value / unit for value, unit in zip(values, units, strict=True)],
        y=[rows[one.type] for one in losses],
        mode="markers",
        name=MATRIX_NAMES[name],
        marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
        error_x={
            "array": [value.standard_error / unit for value, unit in zip(values, units, strict=True)],
            "color": colour,
            "width": 0,
        },
        customdata=[(*one.kl_divergence, 100 * one.same_top_share.value) for one in losses],
        hovertemplate="%{y}: %{customdata[0]:.3g} ± %{customdata[1]:.1g} nats, same top token %{customdata[2]:.1f} %"
        f"<extra>{MATRIX_NAMES[name]}</extra>",
    )


def _rows(figure: go.Figure, names: list[str]) -> go.Figure:
    figure.update_layout(showlegend=True, height=240 + MATRIX_ROW_PIXELS * len(names))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names, autorange="reversed")
    return figure


def published_mix_rates(table: PublishedTable) -> go.Figure:
    """Rates relative to F16 from a published table, with its standard deviations."""
    base = table.rows["F16"]
    gains = {mix: base["bits_per_weight"] / row["bits_per_weight"] for mix, row in table.rows.items()}
    text = "; ".join(
        f"{mix} decode {row['decode'] / base['decode']:.2f}, prefill {row['prefill'] / base['prefill']:.2f}"
        for mix, row in table.rows.items()
    )
    figure = blank(f"cited: {table.title}", f"Published rates relative to F16: {text}.", x="rate relative to F16")
    for of, colour in (("decode", DECODE), ("prefill", PREFILL)):
        figure.add_scatter(
            x=[row[of] / base[of] for row in table.rows.values()],
            y=list(table.rows),
            name=of,
            mode="markers",
            marker={"size": 7, "color": colour},
            error_x={"array": [row[f"{of}_sd"] / base[of] for row in table.rows.values()], "color": colour, "width": 8},
        )
    _bytes_marks(figure, gains)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(rangemode="tozero")
    return _a_row_each(figure, list(table.rows))


def _bytes_marks(figure: go.Figure, gains: Mapping[str, float]) -> None:
    figure.add_scatter(
        x=list(gains.values()),
        y=list(gains),
        name="if only bytes counted",
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 16, "color": DROPPED, "line": {"width": 2}},
    )


def _a_row_each(figure: go.Figure, names: list[str]) -> go.Figure:
    """One row for each name, the first on top: a name is read at its row on a phone too."""
    figure.update_layout(height=figure.layout.height - 180 + ROW_PIXELS * len(names))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names, autorange="reversed")
    return figure


def fidelity(losses: Losses) -> go.Figure:
    """Mean KL divergence in nats per token of each file or cache type; error bars if one exceeds its dot."""
    found = losses.by_name
    text = "; ".join(
        f"{name} {one.kl_divergence.value:.2g} ± {one.kl_divergence.standard_error:.1g}" for name, one in found.items()
    )
    largest = max(one.kl_divergence.standard_error / one.kl_divergence.value for one in found.values())
    shown = {"array": [one.kl_divergence.standard_error for one in found.values()], "color": KEPT}
    hidden = "" if largest > VISIBLE_ERROR else f"; standard errors of at most {100 * largest:.1f} %, inside the dots"
    figure = blank(losses.badge + hidden, f"KL divergence from F16: {text}.", x="KL divergence, nats a token")
    figure.add_scatter(
        x=[one.kl_divergence.value for one in found.values()],
        y=list(found),
        mode="markers",
        name="mean",
        marker={"size": 11, "color": KEPT},
        error_x=None if hidden else shown,
        customdata=[
            (one.kl_divergence.standard_error, one.perplexity.value, 100 * one.same_top_share.value)
            for one in found.values()
        ],
        hovertemplate="%{y}: %{x:.2g} ± %{customdata[0]:.1g} nats, perplexity %{customdata[1]:.3f}, "
        "same top token %{customdata[2]:.1f} %<extra></extra>",
    )
    figure.update_xaxes(type="log", dtick=1, exponentformat="power")
    return _a_row_each(figure, list(found))


def pareto(rows: Sequence[Row], badge: str) -> go.Figure:
    """KL divergence against decode rate of each type; the area of a disc is the size of the file.

    The line is the Pareto front: types that no other type beats in both rate and loss.
    """
    known = [row for row in rows if row.known]
    best = sorted(front(known), key=lambda row: row.decode_tokens_per_second)
    text = "; ".join(
        f"{r.name} {r.tensor_bytes / GIB:.2f} GiB, {r.decode_tokens_per_second:.1f} tokens/s, KLD {r.kl_divergence:.2g}"
        for r in known
    )
    figure = blank(
        badge,
        f"Size, speed and loss: {text}. On the front: {', '.join(row.name for row in best)}.",
        x="decode, tokens/s, of the shape",
        y="KL divergence, of the trained model",
    )
    line(figure, [(row.decode_tokens_per_second, row.kl_divergence) for row in best], "front", EDGE, marks=False)
    largest = max(row.tensor_bytes for row in known)
    figure.add_scatter(
        x=[row.decode_tokens_per_second for row in known],
        y=[row.kl_divergence for row in known],
        mode="markers+text",
        text=[row.name for row in known],
        textposition="top center",
        name="type",
        marker={
            "size": [36 * (row.tensor_bytes / largest) ** 0.5 for row in known],
            "color": [KEPT if row in best else DROPPED for row in known],
            "opacity": 0.75,
        },
        customdata=[row.tensor_bytes / GIB for row in known],
        hovertemplate="%{text}: %{customdata:.2f} GiB, %{x:.1f} tokens/s, KLD %{y:.2g}<extra></extra>",
    )
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    figure.update_layout(height=540, margin={"b": 190})
    return figure


def type_choices(made: Sequence[Choice], badge: str | None = None) -> go.Figure:
    """KL divergence against bytes of weights and cache, a point for each choice; 0 is drawn as 1e-6."""
    values = [(one.n_bytes / MIB, max(one.fidelity.kl_divergence.value, LEAST_SHOWN)) for one in made]
    text = "; ".join(f"{one.name} {x:.2f} MiB, KLD {y:.2g}" for one, (x, y) in zip(made, values, strict=True))
    figure = blank(
        badge,
        f"Choices of types for weights and cache: {text or 'none yet'}.",
        x="weights and full cache, MiB",
        y="KL divergence, nats a token",
    )
    figure.add_scatter(
        x=[x for x, _ in values],
        y=[y for _, y in values],
        mode="markers+text",
        textposition="top center",
        text=[str(number) for number in range(1, len(made) + 1)],
        marker={"size": 11, "color": KEPT},
        customdata=[one.name for one in made],
        hovertemplate="%{customdata}: %{x:.2f} MiB, KLD %{y:.2g}<extra>choice %{text}</extra>",
    )
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    return figure
