"""What the log reader shows of a load that was planned again: log and plan side by side, and what would fit."""

from __future__ import annotations

from typing import Any

from inferlab.instruments.log_view import MOST, coded, cut
from inferlab.instruments.views import element, paragraph, table
from inferlab.results.log_memory import DerivedMemory, Row, tried_text

HEADS = ["Device", "Term", "Log, MiB", "Plan, MiB", "Difference"]


def memory_view(derived: DerivedMemory) -> list[Any]:
    """Each term of log and plan, of a load that could be planned, and the sentences that go with them."""
    more = len(derived.rows) - MOST
    return element(
        "section",
        {"class": "instrument-derived"},
        element("h2", {}, "The same load, planned again"),
        paragraph(
            "The plan follows from the header and the settings in the log, and from the bytes of no buffer. "
            "The file's printed size only confirms which tensors it has."
        ),
        table(HEADS, [_cells(row) for row in derived.rows[:MOST]]),
        paragraph(f"And {more:,} more terms.") if more > 0 else None,
        element("ul", {}, *(element("li", {}, *coded(sentence)) for sentence in derived.sentences)),
        paragraph(tried_text()),
    )


def _cells(row: Row) -> list[str]:
    return [
        cut(row.device),
        row.name,
        row.log_text or "not in the log",
        row.plan_text,
        row.difference_text or row.state,
    ]
