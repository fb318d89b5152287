"""What two devices hold under each split mode: allocated bytes, with the plan as a mark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import plotly.graph_objects as go

from inferlab.figures.allocations import KINDS
from inferlab.figures.style import OLIVE, blank, from_zero, stacked
from inferlab.units import MIB, bytes_text
from studies.several_cards.study import KINDS as PLANNED_KINDS
from studies.several_cards.study import Case, SeveralCards

SUMS = "room for sums"


def bytes_by_split(record: SeveralCards, cases: Sequence[Case]) -> go.Figure:
    """Allocated bytes of both devices for some cases, stacked by kind; a mark where the plan ends.

    The plan has no room for sums, so its mark is before that part.
    """
    rows = [(f"{_name(case)}, device {i}", case, i) for case in cases for i in range(2)]
    names = [name for name, _, _ in rows]
    text = "; ".join(f"{name} {_row_text(case, i)}" for name, case, i in rows)
    figure = blank(record.badge, f"Allocated bytes by split mode and device: {text}.", x="MiB")
    for kind in PLANNED_KINDS:
        sizes = [getattr(case.use.devices[i], f"{kind}_bytes") / MIB for _, case, i in rows]
        _add_bars(figure, names, sizes, *KINDS[kind])
    _add_bars(figure, names, [case.use.devices[i].sums_bytes / MIB for _, case, i in rows], SUMS, OLIVE)
    planned = [sum(filter(None, case.planned[i])) / MIB for _, case, i in rows]
    figure.add_scatter(
        y=names,
        x=planned,
        name="planned",
        mode="markers",
        marker={"symbol": "line-ns", "size": 18, "line": {"width": 2, "color": "#d92d20"}},
        hovertemplate="planned %{x:.2f} MiB<extra>%{y}</extra>",
    )
    stacked(figure, len(names))
    figure.update_yaxes(autorange="reversed", categoryorder="array", categoryarray=names)
    figure.update_xaxes(from_zero(max(planned) * 1.05))
    return figure


def _add_bars(figure: go.Figure, names: list[str], sizes: list[float], name: str, colour: str) -> None:
    if any(sizes):
        figure.add_bar(
            y=names,
            x=sizes,
            name=name,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{name} %{{x:.2f}} MiB<extra>%{{y}}</extra>",
        )


def _name(case: Case) -> str:
    """`tensor 3:1`: the mode and the shares of a case."""
    shares = case.changes.get("tensor_split")
    return " ".join(filter(None, (str(case.changes["split_mode"]), shares and ":".join(f"{n:g}" for n in shares))))


def _row_text(case: Case, device: int) -> str:
    return f"{', '.join(_parts(case, device))}, planned {bytes_text(sum(filter(None, case.planned[device])))}"


def _parts(case: Case, device: int) -> Iterator[str]:
    held = case.use.devices[device]
    for kind in PLANNED_KINDS:
        yield f"{KINDS[kind][0]} {bytes_text(getattr(held, f'{kind}_bytes'))}"
    if held.sums_bytes:
        yield f"{SUMS} {bytes_text(held.sums_bytes)}"
