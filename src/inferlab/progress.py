"""A progress line for work that lasts longer than a second, where somebody is watching."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

Step = TypeVar("Step")
PATIENCE_SECONDS = 1.0


def somebody_watches() -> bool:
    """True in a terminal and in a live notebook; False in pipes, tests and page builds."""
    if os.environ.get("INFERLAB_PAGE") or os.environ.get("PYTEST_CURRENT_TEST"):
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def bar(total: int, label: str, shown: bool | None = None) -> Iterator[Callable[[int], None]]:
    """A function to call with how much of `total` is done; it draws a bar once a second has passed, gone at the end."""
    if not (somebody_watches() if shown is None else shown):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    drawn, began = Progress(console=Console(stderr=True), transient=True), time.monotonic()
    task = drawn.add_task(escape(label), total=total)

    def reached(done: int) -> None:
        drawn.update(task, completed=done)
        if not drawn.live.is_started and time.monotonic() - began > PATIENCE_SECONDS:
            drawn.start()

    try:
        yield reached
    finally:
        if drawn.live.is_started:
            drawn.stop()


def track(steps: Iterable[Step], total: int, label: str, shown: bool | None = None) -> Iterator[Step]:
    """Yield `steps`, drawing a bar once a second has passed; it vanishes at the end."""
    with bar(total, label, shown) as reached:
        for done, step in enumerate(steps, 1):
            yield step
            reached(done)
