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
ROW_PIXELS = 22
KEPT, DROPPED = TEAL, GREY
POWERS = {"type": "log", "dtick": 1, "exponentformat": "power"}
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
    every = {loss.type: loss for loss in losses.losses if loss.matrix in (NONE, RIGHT)}
    bits = {type: losses.bits_per_weight(losses.loss(type, RIGHT) or loss) for type, loss in every.items()}
    rows = {type: f"{type}, {bits[type]:.2f} bits" for type in sorted(every, key=lambda type: -bits[type])}
    marks = {name: {type: loss for type in rows if (loss := losses.loss(type, name))} for name in (NONE, RIGHT)}
    text = "; ".join(
        f"{row}: "
        + ", ".join(f"{MATRIX_NAMES[n]} {m[type].kl_divergence.value:.2g}" for n, m in marks.items() if type in m)
        for type, row in rows.items()
    )
    figure = blank(losses.badge, f"KL divergence from F16. {text}.", x="KL divergence, nats a token")
    for type, row in rows.items():
        ends = [known[type].kl_divergence.value for known in marks.values() if type in known]
        if len(ends) == 2:
            style = {"color": EDGE, "width": 3}
            figure.add_scatter(x=ends, y=[row] * 2, mode="lines", line=style, showlegend=False, hoverinfo="skip")
    for name, known in marks.items():
        _add_losses(figure, list(known.values()), rows, name)
    figure.update_xaxes(POWERS)
    figure.update_layout(showlegend=True)
    return _a_row_each(figure, list(rows.values()), 240 + 24 * len(rows))


def losses_by_text(losses: MatrixLosses, types: Sequence[str]) -> go.Figure:
    """Divergence with the matrix of each text, and without one, in units of that with the training text's matrix."""
    units = {type: losses.loss(type, RIGHT).kl_divergence.value for type in types}
    marks = {name: [loss for type in types if (loss := losses.loss(type, name))] for name in (NONE, *MATRICES)}
    text = "; ".join(
        f"{type}: "
        + ", ".join(
            f"{MATRIX_NAMES[loss.matrix]} {loss.kl_divergence.value / units[type]:.2f}"
            for known in marks.values()
            for loss in known
            if loss.type == type
        )
        for type in types
    )
    figure = blank(
        losses.badge,
        f"KL divergence relative to that with the matrix of the training text. {text}.",
        x="KL divergence, training text = 1",
    )
    for name, known in marks.items():
        if known:
            _add_losses(figure, known, {type: type for type in types}, name, units)
    figure.add_vline(1, line={"color": EDGE, "width": 2})
    figure.update_layout(showlegend=True)
    return _a_row_each(figure, list(types), 300 + 44 * len(types))


def _add_losses(
    figure: go.Figure,
    losses: Sequence[Loss],
    rows: Mapping[str, str],
    name: str,
    units: Mapping[str, float] | None = None,
) -> None:
    """One matrix's losses in their rows, in nats or in the given units of nats."""
    colour, symbol = MARKS[name]
    values = [[part / (units[loss.type] if units else 1.0) for part in loss.kl_divergence] for loss in losses]
    figure.add_scatter(
        x=[value for value, _ in values],
        y=[rows[loss.type] for loss in losses],
        mode="markers",
        name=MATRIX_NAMES[name],
        marker={"color": colour, "symbol": symbol, "size": 11, "line": {"width": 2, "color": colour}},
        error_x={"array": [error for _, error in values], "color": colour, "width": 0},
        customdata=[(*loss.kl_divergence, 100 * loss.same_top_share.value) for loss in losses],
        hovertemplate="%{y}: %{customdata[0]:.3g} ± %{customdata[1]:.1g} nats, same top token %{customdata[2]:.1f} %"
        f"<extra>{MATRIX_NAMES[name]}</extra>",
    )


def published_mix_rates(table: PublishedTable) -> go.Figure:
    """Rates relative to F16 from a published table, with its standard deviations."""
    base, names = table.rows["F16"], list(table.rows)
    text = "; ".join(
        f"{mix} decode {row['decode'] / base['decode']:.2f}, prefill {row['prefill'] / base['prefill']:.2f}"
        for mix, row in table.rows.items()
    )
    figure = blank(f"cited: {table.title}", f"Published rates relative to F16: {text}.", x="rate relative to F16")
    for phase, colour in (("decode", DECODE), ("prefill", PREFILL)):
        rates, errors = ([row[key] / base[phase] for row in table.rows.values()] for key in (phase, f"{phase}_sd"))
        error_x, marker = {"array": errors, "color": colour, "width": 8}, {"size": 7, "color": colour}
        figure.add_scatter(x=rates, y=names, name=phase, mode="markers", marker=marker, error_x=error_x)
    figure.add_scatter(
        x=[base["bits_per_weight"] / row["bits_per_weight"] for row in table.rows.values()],
        y=names,
        name="if only bytes counted",
        mode="markers",
        marker={"symbol": "line-ns-open", "size": 16, "color": DROPPED, "line": {"width": 2}},
    )
    figure.update_layout(showlegend=True)
    figure.update_xaxes(rangemode="tozero")
    return _a_row_each(figure, names)


def _a_row_each(figure: go.Figure, names: Sequence[str], height: int | None = None) -> go.Figure:
    """One row for each name, the first on top: a name is read at its row on a phone too."""
    figure.update_layout(height=height or figure.layout.height - 180 + ROW_PIXELS * len(names))
    figure.update_yaxes(type="category", categoryorder="array", categoryarray=names, autorange="reversed")
    return figure


def fidelity(losses: Losses) -> go.Figure:
    """Mean KL divergence in nats per token of each file or cache type; error bars if one exceeds its dot."""
    means = {name: file.kl_divergence for name, file in losses.by_name.items()}
    text = "; ".join(f"{name} {mean.value:.2g} ± {mean.standard_error:.1g}" for name, mean in means.items())
    largest = max(mean.standard_error / mean.value for mean in means.values())
    hidden = "" if largest > VISIBLE_ERROR else f"; standard errors of at most {100 * largest:.1f} %, inside the dots"
    figure = blank(losses.badge + hidden, f"KL divergence from F16: {text}.", x="KL divergence, nats a token")
    figure.add_scatter(
        x=[mean.value for mean in means.values()],
        y=list(means),
        mode="markers",
        name="mean",
        marker={"size": 11, "color": KEPT},
        error_x=None if hidden else {"array": [mean.standard_error for mean in means.values()], "color": KEPT},
        customdata=[
            (file.kl_divergence.standard_error, file.perplexity.value, 100 * file.same_top_share.value)
            for file in losses.by_name.values()
        ],
        hovertemplate="%{y}: %{x:.2g} ± %{customdata[0]:.1g} nats, perplexity %{customdata[1]:.3f}, "
        "same top token %{customdata[2]:.1f} %<extra></extra>",
    )
    figure.update_xaxes(POWERS)
    return _a_row_each(figure, list(means))


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
    figure.update_yaxes(POWERS)
    figure.update_layout(height=540, margin={"b": 190})
    return figure


def type_choices(made: Sequence[Choice], badge: str | None = None) -> go.Figure:
    """KL divergence against bytes of weights and cache, a point for each choice; 0 is drawn as 1e-6."""
    values = [(choice.n_bytes / MIB, max(choice.fidelity.kl_divergence.value, LEAST_SHOWN)) for choice in made]
    text = "; ".join(f"{choice.name} {x:.2f} MiB, KLD {y:.2g}" for choice, (x, y) in zip(made, values, strict=True))
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
        customdata=[choice.name for choice in made],
        hovertemplate="%{customdata}: %{x:.2f} MiB, KLD %{y:.2g}<extra>choice %{text}</extra>",
    )
    figure.update_yaxes(POWERS)
    return figure
