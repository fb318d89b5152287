"""The recorded load test of a room on one server: what `make hubload` wrote, for the page that reports it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from inferlab.units import GB


@cache
def summary() -> Mapping[str, Any]:
    """The recorded summary; times in seconds, memory in bytes. hub/load_test.py says what each value counts."""
    return json.loads((files("handbook") / "data" / "room-test.json").read_text(encoding="utf-8"))["summary"]


def rows() -> list[tuple[str, str]]:
    """For a table: what was counted, and how much or how long it was."""
    found = summary()
    return [
        ("participants, on so many cores", f"{found['students']}, on {found['cores']}"),
        ("memory that the room took at most, GB", f"{found['memory_bytes'] / GB:.1f}"),
        ("until the server of a participant was ready, s (median)", f"{found['ready_seconds_median']:.0f}"),
        ("until lab 3 was finished, minutes (median)", f"{found['finished_seconds_median'] / 60:.1f}"),
        ("until a measurement had its turn, s (median, longest)",
         f"{found['waited_seconds_median']:.0f}, {found['waited_seconds_most']:.0f}"),
        ("engines killed meanwhile", str(found["kills"])),
        ("measurements that were queued again", str(found["queued_again"])),
        ("participants who finished", f"{found['finished']} of {found['students']}"),
        ("cells that were run, and saved", f"{found['cells_run']}, {found['cells_saved']}"),
        ("measurements, quiet and disturbed", f"{found['quiet']}, {found['disturbed']}"),
        ("processors that others used during a turn (median)", f"{found['others_median']:.2f}"),
    ]  # fmt: skip


def badge() -> str:
    """Where and when it was measured."""
    found = summary()
    return f"{found['cpu']}, {found['cores']} cores, {found['ram_bytes'] / GB:.0f} GB of RAM, {found['date']}"
