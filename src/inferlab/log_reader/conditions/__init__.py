"""Conditions of data/log_findings/*.toml that need more than one line, or arithmetic; a module for each table.

Each takes the observed facts and returns the lines on which it rests, with the values for its sentence, or None.
"""

from __future__ import annotations

from collections.abc import Callable

from inferlab.log_reader.conditions import crashes, files, memory, placement, requests
from inferlab.log_reader.conditions.found import Found
from inferlab.log_reader.observed import Observed

__all__ = ["CONDITIONS", "Found"]

CONDITIONS: dict[str, Callable[[Observed], Found | None]] = {
    condition.__name__: condition
    for module in (files, memory, placement, requests, crashes)
    for condition in module.CONDITIONS
}
