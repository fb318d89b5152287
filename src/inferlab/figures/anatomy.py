"""What a model is made of, and how its work grows: bytes and operations by part, with a cache and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from textwrap import wrap

import plotly.graph_objects as go

from inferlab.figures.style import DECODE, PREFILL, blank, line, points, stacked
from inferlab.measurement.run import Run
from inferlab.model.gguf import Model
from inferlab.prediction import cost
from inferlab.units import GIB, MIB, bytes_text

BYTES, OPERATIONS = "#6b7280", "#a855c7"
TYPE_COLOURS = ("#3b82c4", "#d97706", "#0f9d8a", "#a855c7", "#c0563c", "#8a7415", "#6b7280")
NARROW_COLUMNS = 34  # what fits beside long names of parts on a phone
WRONG, RIGHT = "#c0563c", "#0f9d8a"


def block(model: Model, n_cells: int) -> go.Figure:
    """Each part's share of what one token of the answer costs: of the bytes read, and of the operations done.

    The token sees `n_cells` tokens, itself included; the KV cache is in 16 bits.
    """
    parts = cost.parts(model, n_cells)
    read, done = sum(part.read_bytes for part in parts), sum(part.operations for part in parts)
    bytes_share = [100 * part.read_bytes / read for part in parts]
    operations_share = [100 * part.operations / done for part in parts]
    told = "; ".join(
        f"{part.name} {a:.1f} % of the bytes, {b:.1f} % of the operations"
        for part, a, b in zip(parts, bytes_share, operations_share, strict=True)
    )
    figure = blank(
        f"computed from the shape of {model.name}: {bytes_text(read)} and {done / 1e6:,.0f} million operations "
        f"for a token with {n_cells:,} in the cache",
        f"Shares of one token of {model.name} with {n_cells} in the cache: {told}.",
        x="% of one token",
    )
    names = [part.name for part in parts]
    for name, shares, colour in (("bytes", bytes_share, BYTES), ("operations", operations_share, OPERATIONS)):
        figure.add_bar(
            y=names, x=shares, name=name, orientation="h", marker_color=colour,
            hovertemplate=f"%{{y}}: %{{x:.1f}} % of the {name}<extra></extra>",
        )  # fmt: skip
    stacked(figure, len(names))
    figure.update_layout(barmode="group", height=240 + 30 * len(names))
    return _narrowed(figure)


def tensor_bytes(model: Model) -> go.Figure:
    """Bytes of a file by part, each part's bar divided by ggml type."""
    told = cost.type_bytes(model.tensors)
    types = sorted({kind for kinds in told.values() for kind in kinds}, key=lambda kind: -_of_type(told, kind))
    unit, name = (GIB, "GiB") if model.tensor_bytes >= GIB else (MIB, "MiB")
    sentences = (
        f"{part} {', '.join(f'{bytes_text(size)} in {kind}' for kind, size in kinds.items())}"
        for part, kinds in told.items()
    )
    figure = blank(
        f"read from the header of {model.name}: {bytes_text(model.tensor_bytes)} in {len(model.tensors)} tensors",
        f"Bytes of {model.name} by part and type: {'; '.join(sentences)}.",
        x=name,
    )
    for index, kind in enumerate(types):
        figure.add_bar(
            y=list(told), x=[kinds.get(kind, 0) / unit for kinds in told.values()], name=kind, orientation="h",
            marker_color=TYPE_COLOURS[index % len(TYPE_COLOURS)],
            hovertemplate=f"%{{y}}: %{{x:.4g}} {name} in {kind}<extra></extra>",
        )  # fmt: skip
    stacked(figure, len(told))
    figure.update_layout(height=240 + 26 * len(told))
    return _narrowed(figure)


def recomputed(runs: Sequence[Run]) -> go.Figure:
    """The engine's time for the next token against the tokens before it: all of them again, or only the last.

    Again: the prefill of the whole text. Only the last: one decode at that depth. Medians over the passes.
    """
    lengths = [run.n_prompt for run in runs]
    again = [1e3 * run.prefill_seconds for run in runs]
    last = [1e3 * median(seconds for one in run.passes for seconds in one.decode_seconds) for run in runs]
    told = "; ".join(
        f"{n} tokens: {a:.2f} ms without, {b:.2f} ms with" for n, a, b in zip(lengths, again, last, strict=True)
    )
    figure = blank(
        runs[0].badge,
        f"Time for the next token, without a cache and with it. {told}.",
        x="tokens before it",
        y="engine time, ms",
    )
    every = [(run.n_prompt, 1e3 * one.prefill_seconds) for run in runs for one in run.passes]
    points(figure, every, "one pass", PREFILL)
    line(figure, list(zip(lengths, again, strict=True)), "all computed again", PREFILL)
    line(figure, list(zip(lengths, last, strict=True)), "keys and values kept", DECODE)
    figure.update_traces(selector={"name": "one pass"}, showlegend=False)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(rangemode="tozero")
    return figure


def growth(model: Model, lengths: Sequence[int]) -> go.Figure:
    """Operations to generate a text of each length, with a cache and without, on axes where a power is a line."""
    kept = [cost.total_operations(model, n) / 1e12 for n in lengths]
    again = [cost.total_operations(model, n, cached=False) / 1e12 for n in lengths]
    told = "; ".join(f"{n} tokens {a:.3g} with, {b:.3g} without" for n, a, b in zip(lengths, kept, again, strict=True))
    figure = blank(
        f"computed from the shape of {model.name}",
        f"Trillions of operations to generate a text with {model.name}, with a cache and without: {told}.",
        x="tokens generated",
        y="trillions of operations",
    )
    line(figure, list(zip(lengths, again, strict=True)), "all computed again", PREFILL)
    line(figure, list(zip(lengths, kept, strict=True)), "keys and values kept", DECODE)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(type="log", dtick=1)
    figure.update_yaxes(type="log", dtick=1, exponentformat="power")
    return figure


def kv_readings(readings: Mapping[str, int], engine_bytes: int, badge: str) -> go.Figure:
    """The KV cache by several formulas, and a line at what the engine reserved."""
    told = "; ".join(f"{name} {bytes_text(n_bytes)}" for name, n_bytes in readings.items())
    figure = blank(badge, f"KV cache by formula: {told}. The engine reserved {bytes_text(engine_bytes)}.", x="MiB")
    colours = [RIGHT if name == "right" else WRONG for name in readings]
    figure.add_bar(
        y=list(readings), x=[n_bytes / MIB for n_bytes in readings.values()], orientation="h", marker_color=colours,
        text=[f"{n_bytes / engine_bytes:.2f} times" for n_bytes in readings.values()], textposition="outside",
        cliponaxis=False, hovertemplate="%{y}: %{x:.2f} MiB<extra></extra>",
    )  # fmt: skip
    figure.add_vline(engine_bytes / MIB, line={"color": RIGHT, "dash": "dash", "width": 2}, layer="below")
    figure.update_layout(height=220 + 34 * len(readings))
    figure.update_xaxes(range=[0, 1.18 * max(readings.values()) / MIB])
    figure.update_yaxes(autorange="reversed", type="category")
    return figure


def _narrowed(figure: go.Figure) -> go.Figure:
    """Break the badge into shorter lines, because long names leave the axis little width."""
    for note in figure.layout.annotations:
        note.text = "<br>".join(wrap(note.text.replace("<br>", " "), NARROW_COLUMNS, break_on_hyphens=False))
    return figure


def _of_type(told: Mapping[str, Mapping[str, int]], kind: str) -> int:
    return sum(kinds.get(kind, 0) for kinds in told.values())
