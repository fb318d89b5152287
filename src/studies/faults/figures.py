"""Diagnosis of faults: symptoms of each case, and the confusion matrix of the diagnoses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from textwrap import wrap

import plotly.graph_objects as go

from inferlab.figures.style import BADGE_SHIFT, EDGE, RED, TEAL, badge_lines, badge_margin, blank
from inferlab.prediction.diagnosis import RelativeSigns
from inferlab.units import MIB

NAME_COLUMNS = 14
"""Characters in a line of a row's name, so that the columns fit on a phone."""
SYMPTOMS = {
    "disk_bytes": ("MiB from disk", lambda value: f"{max(0, value) / MIB:.0f}"),
    "load": ("load", lambda value: f"{value:.1f}x"),
    "prefill": ("prefill", lambda value: f"{value:.1f}x"),
    "token": ("token", lambda value: f"{value:.1f}x"),
    "step": ("256 cells", lambda value: f"{value:+.2f}"),
    "jitter": ("jitter", lambda value: f"{100 * value:.0f} %"),
    "busy": ("busy cores", lambda value: f"{value:.2f}x"),
}


def symptoms(cases: Mapping[str, RelativeSigns], badge: str) -> go.Figure:
    """Table of the symptoms, one row for each case; the causes are not named."""
    rows = {name: [_value_text(case, sign) for sign in SYMPTOMS] for name, case in cases.items()}
    titles = [title for title, _ in SYMPTOMS.values()]
    text = "; ".join(
        f"{name}: {', '.join(f'{t} {v}' for t, v in zip(titles, row, strict=True))}" for name, row in rows.items()
    )
    return _table(rows, titles, f"Signs of each case. {text}.", badge, EDGE)


def _value_text(case: RelativeSigns, sign: str) -> str:
    value = getattr(case, sign)
    return "unknown" if value is None else SYMPTOMS[sign][1](value)


def confusion_matrix(table: Mapping[str, Counter[str]], badge: str) -> go.Figure:
    """How often each cause (row) was diagnosed as each cause (column); mistakes have a colour of their own."""
    columns = list(dict.fromkeys([*table, *(name for row in table.values() for name in row)]))
    right = sum(row[name] for name, row in table.items())
    total = sum(sum(row.values()) for row in table.values())
    wrong = [f"{name} taken for {other}" for name, row in table.items() for other in row if other != name]
    rows = {name: [str(row[other] or "") for other in columns] for name, row in table.items()}
    alt = f"{right} of {total} diagnoses were right. Mistaken: {', '.join(wrong) or 'none'}."
    figure = _table(rows, columns, alt, badge, RED, same=TEAL)
    figure.update_layout(margin={"t": 150}, height=figure.layout.height + 110)
    figure.update_xaxes(tickangle=-55)
    return figure


def _table(
    rows: Mapping[str, Sequence[str]], columns: Sequence[str], alt: str, badge: str, colour: str, same: str = EDGE
) -> go.Figure:
    """A table of texts with names of rows and columns; a cell with text is tinted in `colour`.

    same  the colour where row and column have one name
    """
    figure = blank(badge, alt)
    names = list(rows)
    figure.add_heatmap(
        x=list(columns),
        y=names,
        z=[
            [bool(text) + bool(text and name == other) for other, text in zip(columns, rows[name], strict=True)]
            for name in names
        ],
        showscale=False,
        xgap=2,
        ygap=2,
        hoverinfo="skip",
        zmin=0,
        zmax=2,
        colorscale=[[0, "rgba(128,128,128,0.08)"], [0.5, _tint(colour)], [1, _tint(same)]],
    )
    figure.add_scatter(  # text of the heatmap itself would be coloured for a white page
        x=list(columns) * len(names),
        y=[name for name in names for _ in columns],
        mode="text",
        text=[text for name in names for text in rows[name]],
        textfont={"size": 11},
        hovertemplate="%{y}: %{x} %{text}<extra></extra>",
    )
    below = badge_margin(len(badge_lines(badge))) + BADGE_SHIFT + 24  # the axis is above, so the badge comes at once
    told = [wrap(name, NAME_COLUMNS) for name in names]
    row = max(34, 10 + 14 * max(map(len, told), default=0))
    figure.update_layout(height=150 + row * len(names) + below, margin={"l": 60, "t": 96, "b": below})
    figure.update_xaxes(side="top", type="category", tickangle=-40, showgrid=False, ticks="outside")
    figure.update_yaxes(
        autorange="reversed",
        type="category",
        showgrid=False,
        ticks="",
        tickvals=names,
        ticktext=["<br>".join(lines) for lines in told],
    )
    figure.update_annotations(yshift=-8)
    return figure


def _tint(colour: str) -> str:
    """A colour pale enough for text on either theme."""
    if not colour.startswith("#"):
        return "rgba(128,128,128,0.16)"
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.28)"
