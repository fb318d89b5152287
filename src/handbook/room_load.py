"""The recorded load of a room on one server: what `make hubload` wrote, for the page that reports it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from inferlab.units import GB


@cache
def summary() -> Mapping[str, Any]:
    """The recorded summary in seconds and bytes; hub/simulated_students.py says what each value counts."""
    return json.loads((files("handbook") / "data" / "room-test.json").read_text(encoding="utf-8"))["summary"]


def badge() -> str:
    """Where and when it was measured."""
    run = summary()
    return f"{run['cpu']}, {run['cores']} cores, {run['ram_bytes'] / GB:.0f} GB of RAM, {run['date']}"
