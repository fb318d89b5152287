"""A pass through the graph: which backend computes each part of each layer, and where tensors are copied."""

from __future__ import annotations

from collections.abc import Mapping

import plotly.graph_objects as go

from inferlab.figures.sliders import slider
from inferlab.figures.style import OLIVE, PURPLE, RED, TEAL, blank, heading
from inferlab.units import bytes_text, count_text
from studies.graph.study import EMBEDDING, OUTPUT, PARTS, GraphPass, GraphTrace, Placement, Step, placements

SIDES = {"host": OLIVE, "device": TEAL, "both": PURPLE}
ROW_PIXELS = 26
OFFSET = 0.5  # a copy is marked before the part that needs it


def graph_walk(trace: GraphTrace) -> go.Figure:
    """A decode step: one square for each part of each layer, coloured by where it is computed; diamonds are copies."""
    decode = trace.decode
    rows = [EMBEDDING, *(f"layer {i}" for i in range(trace.n_layer)), OUTPUT]
    figure = blank(trace.badge, f"{_finding(decode)} {_rows_text(decode, rows)}")
    heading(figure, _finding(decode))
    cells = _cells(decode)
    for side, colour in SIDES.items():
        shown = [(part, row, texts) for (part, row), (sides, texts) in cells.items() if _side(sides) == side]
        _squares(figure, shown, side, colour)
    _copies(figure, decode)
    more = figure.layout.margin.t + 40
    figure.update_layout(showlegend=True, legend={"y": 1.17}, margin_t=more, height=190 + more + ROW_PIXELS * len(rows))
    figure.update_xaxes(
        range=[-0.8, len(PARTS) - 0.3],
        tickvals=list(range(len(PARTS))),
        ticktext=PARTS,
        tickangle=-45,
        showgrid=False,
        zeroline=False,
    )
    figure.update_yaxes(categoryorder="array", categoryarray=rows[::-1], range=[-0.6, len(rows) - 0.4], showgrid=False)
    return figure


def walks(traces: Mapping[Placement, GraphTrace]) -> go.Figure:
    """The decode step of every placement, with controls; shown first is everything on the device but the cache."""
    over = placements()
    start = [*traces].index((over["n_gpu_layers"][-1], False, "on"))
    return slider(lambda **values: graph_walk(traces[tuple(values.values())]), over, start)


def _finding(decode: GraphPass) -> str:
    copied = f"{bytes_text(decode.copied_bytes)} copied" if decode.copied_bytes else "nothing copied"
    return f"1 token: {count_text(len(decode.splits), 'split')}, {copied}."


def _cells(decode: GraphPass) -> dict[tuple[float, str], tuple[set[bool], list[str]]]:
    """(column, row) -> whether host or device computes there, and the operations."""
    cells: dict[tuple[float, str], tuple[set[bool], list[str]]] = {}
    for step in decode.steps:
        sides, texts = cells.setdefault((_column(step), _row(step)), (set(), []))
        sides.add(step.on_host)
        texts.append(f"{step.node.op} {step.node.name}")
    return cells


def _side(sides: set[bool]) -> str:
    return "both" if len(sides) == 2 else "host" if True in sides else "device"


def _row(step: Step) -> str:
    return f"layer {step.layer}" if step.layer is not None else step.part


def _column(step: Step) -> float:
    return PARTS.index(step.part) if step.layer is not None else 0


def _squares(figure: go.Figure, shown: list, side: str, colour: str) -> None:
    names = {"host": "computed on the host", "device": "on the device", "both": "on both"}
    figure.add_scatter(
        x=[part for part, _, _ in shown],
        y=[row for _, row, _ in shown],
        name=names[side],
        mode="markers",
        marker={"symbol": "square", "size": 15, "color": colour},
        customdata=["<br>".join(t) for _, _, t in shown],
        hovertemplate="%{customdata}<extra>%{y}</extra>",
        visible=True,
        showlegend=bool(shown),
    )


def _copies(figure: go.Figure, decode: GraphPass) -> None:
    """A mark before the first operation of each split to which something is copied."""
    first = {step.split: step for step in reversed(decode.steps)}
    copied = [(first[index], split) for index, split in enumerate(decode.splits) if split.inputs and index in first]
    figure.add_scatter(
        x=[_column(step) - OFFSET for step, _ in copied],
        y=[_row(step) for step, _ in copied],
        name="copies before",
        mode="markers",
        marker={"symbol": "diamond", "size": 9, "color": RED},
        showlegend=bool(copied),
        customdata=[
            f"to the {'host' if split.on_host else 'device'}:<br>"
            + "<br>".join(f"{tensor.name}: {tensor.n_bytes:,} bytes" for tensor in split.inputs)
            for _, split in copied
        ],
        hovertemplate="%{customdata}<extra>%{y}</extra>",
    )


def _rows_text(decode: GraphPass, rows: list[str]) -> str:
    """Which rows are computed where, in words."""
    sides: dict[str, set[bool]] = {}
    for step in decode.steps:
        sides.setdefault(_row(step), set()).add(step.on_host)
    words = {"host": "the host", "device": "the device", "both": "both"}
    return "; ".join(f"{row}: {words[_side(sides[row])]}" for row in rows if row in sides) + "."
