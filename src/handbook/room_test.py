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
        ("participants", f"{found['students']}, on {found['cores']} cores"),
        (
            "who finished lab 3",
            f"{found['finished']}; half of them within {found['finished_seconds_median'] / 60:.1f} minutes",
        ),
        ("login to open lab, median", f"{found['ready_seconds_median']:.0f} s"),
        ("measurements", f"{found['measurements']}, in {found['turns']} turns of one or several"),
        ("wait for a turn, median", f"{found['waited_seconds_median']:.0f} s"),
        ("wait for a turn, longest", f"{found['waited_seconds_most']:.0f} s"),
        ("memory of the whole room, at most", f"{found['memory_bytes'] / GB:.1f} GB"),
        ("engines killed", str(found["kills"])),
        ("of these while measuring, and queued again", str(found["queued_again"])),
        ("cells that were run and saved", f"{found['cells_saved']} of {found['cells_run']}"),
        ("quiet measurements", f"{found['quiet']} of {found['measurements_labelled']}"),
        ("processor time of other programs, median of turns", f"{found['others_median']:.2f} of one processor"),
    ]


def badge() -> str:
    """Where and when it was measured."""
    found = summary()
    return f"{found['cpu']}, {found['cores']} cores, {found['ram_bytes'] / GB:.0f} GB of RAM, {found['date']}"
