"""The memory of a log, derived again: the load is planned from its header and settings, and compared with the log.

    derive_memory("server.log")    # a file, or the text of a log

`logged` reads what the lines print, `header` makes the model's header of them, `asked` the settings; `planned` has the
library's formulas for these, `derived` both side by side, `too_much` the term without room and what would fit.
No bytes of a buffer become part of the plan; the file's printed size only chooses among its possible tensors.
"""

from __future__ import annotations

from pathlib import Path

from inferlab.log_reader import LogReport, report_of
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import read
from inferlab.results.log_memory.derived import DerivedMemory, Row, derived, tried_text
from inferlab.results.log_memory.too_much import Change, TooMuch

__all__ = ["Change", "DerivedMemory", "Row", "TooMuch", "derive_memory", "explain_and_derive", "tried_text"]


def derive_memory(log: str | bytes | Path) -> DerivedMemory:
    """The last load of a log planned again, beside what the log prints; `notes` say what could not be derived.

    log  as `explain` takes it; raises UnreadableLog for a file that cannot be read and an empty text
    """
    return derived(Observed(read(log)))


def explain_and_derive(log: str | bytes | Path) -> tuple[LogReport, DerivedMemory | None]:
    """`explain` and `derive_memory` of a log that is read once; None for a log without buffers to compare."""
    seen = Observed(read(log))
    report = report_of(seen)
    return report, derived(seen) if report.buffers else None
