"""Conditions of data/log_findings/*.toml that need more than one line, arithmetic, or what followed.

Each takes the observed facts and returns the lines on which it rests, with the values for its sentence, or None. A
module has those of one table, or of one matter: of the devices there are discovery, placement and attention, and
`afterwards` says what followed a line.
"""

from __future__ import annotations

from collections.abc import Callable

from inferlab.log_reader.conditions import (
    attention,
    crashes,
    discovery,
    files,
    loads,
    memory,
    placement,
    requests,
    reuse,
    start,
)
from inferlab.log_reader.conditions.found import Found
from inferlab.log_reader.observed import Observed

__all__ = ["CONDITIONS", "Found"]

CONDITIONS: dict[str, Callable[[Observed], Found | None]] = {
    condition.__name__: condition
    for module in (files, memory, discovery, placement, attention, requests, reuse, loads, start, crashes)
    for condition in module.CONDITIONS
}
