"""What two devices hold under each split mode: allocated bytes, with the plan as a mark."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from inferlab.figures.allocations import KINDS
from inferlab.figures.style import OLIVE, blank, from_zero, stacked
from inferlab.units import MIB, bytes_text
from studies.several_cards.study import KINDS as PLANNED_KINDS
from studies.several_cards.study import Case, DeviceUse, SeveralCards

PARTS = {**{f"{kind}_bytes": KINDS[kind] for kind in PLANNED_KINDS}, "sums_bytes": ("room for sums", OLIVE)}
"""Field of a `DeviceUse` -> name and colour of its part."""


def bytes_by_split(record: SeveralCards, cases: Sequence[Case]) -> go.Figure:
    """Allocated bytes of both devices for some cases, stacked by kind; a mark where the plan ends.

    The plan has no space for sums, so its mark is before that part.
    """
    rows = {f"{_name(case)}, device {i}": (case.use.devices[i], case.planned[i]) for case in cases for i in range(2)}
    names = list(rows)
    text = "; ".join(f"{name} {_text(*row)}" for name, row in rows.items())
    figure = blank(record.badge, f"Allocated bytes by split mode and device: {text}.", x="MiB")
    for field, (part, colour) in PARTS.items():
        sizes = [getattr(held, field) / MIB for held, _ in rows.values()]
        if any(sizes):
            figure.add_bar(
                y=names,
                x=sizes,
                name=part,
                orientation="h",
                marker_color=colour,
                hovertemplate=f"{part} %{{x:.2f}} MiB<extra>%{{y}}</extra>",
            )
    ends = [sum(filter(None, planned)) / MIB for _, planned in rows.values()]
    figure.add_scatter(
        y=names,
        x=ends,
        name="planned",
        mode="markers",
        marker={"symbol": "line-ns", "size": 18, "line": {"width": 2, "color": "#d92d20"}},
        hovertemplate="planned %{x:.2f} MiB<extra>%{y}</extra>",
    )
    stacked(figure, len(names))
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names)
    figure.update_xaxes(from_zero(max(ends) * 1.05))
    return figure


def _name(case: Case) -> str:
    """`tensor 3:1`: the mode and the shares of a case."""
    shares = case.changes.get("tensor_split")
    text = ":".join(f"{n:g}" for n in shares) if isinstance(shares, tuple) else ""
    return f"{case.changes['split_mode']} {text}".rstrip()


def _text(held: DeviceUse, planned: Sequence[int | None]) -> str:
    sizes = {part: getattr(held, field) for field, (part, _) in PARTS.items()}
    parts = [f"{part} {bytes_text(n)}" for part, n in sizes.items() if n or part != "room for sums"]
    return f"{', '.join(parts)}, planned {bytes_text(sum(filter(None, planned)))}"
