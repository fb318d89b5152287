"""A progress line for work that lasts longer than a second, where somebody is watching."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

Step = TypeVar("Step")
PATIENCE_SECONDS = 1.0


def somebody_watches() -> bool:
    """True in a terminal and in a live notebook; False in pipes, tests and page builds."""
    if os.environ.get("INFERLAB_PAGE") or os.environ.get("PYTEST_CURRENT_TEST"):
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def track(steps: Iterable[Step], total: int, label: str, shown: bool | None = None) -> Iterator[Step]:
    """Yield `steps`, drawing a bar once a second has passed; it vanishes at the end."""
    if not (somebody_watches() if shown is None else shown):
        yield from steps
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    bar, began = Progress(console=Console(stderr=True), transient=True), time.monotonic()
    task = bar.add_task(escape(label), total=total)
    started = False
    try:
        for step in steps:
            yield step
            bar.advance(task)
            if not started and time.monotonic() - began > PATIENCE_SECONDS:
                bar.start()
                started = True
    finally:
        if started:
            bar.stop()
