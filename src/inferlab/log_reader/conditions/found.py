"""What a condition returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from inferlab.log_reader.text import Line

FEWEST_REQUESTS = 3
MOST_LINES = 4


@dataclass(frozen=True)
class Found:
    """Lines that show a condition, and values for its sentence."""

    lines: tuple[Line, ...]
    values: dict[str, Any] = field(default_factory=dict)
