"""What a condition returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from inferlab.log_reader.text import Line

FEWEST_REQUESTS = 3
MOST_LINES = 4
MOST_READ = 1_000
"""Lines with one string that are looked at; of a message that repeats itself these are enough."""


@dataclass(frozen=True)
class Found:
    """Lines that show a condition, and values for its sentence.

    overcome  whether the program went on after it, so that it is worth a note and no fault
    resort    how little these lines know of the cause, where that differs from the rule's own number (Rule.resort)
    """

    lines: tuple[Line, ...]
    values: dict[str, Any] = field(default_factory=dict)
    overcome: bool = False
    resort: int | None = None
