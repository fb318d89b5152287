"""A progress bar for work that lasts longer than a second, and a line for waiting, in a terminal or a live notebook."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Step = TypeVar("Step")
DELAY_SECONDS = 1.0
_SHOWN_BY: ContextVar[Callable[[str], None] | None] = ContextVar("shown_by", default=None)


def is_interactive() -> bool:
    """True in a terminal and in a live notebook; False in pipes, tests and page builds."""
    if os.environ.get("INFERLAB_PAGE") or os.environ.get("PYTEST_CURRENT_TEST"):
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules


@contextmanager
def bar(total: int, label: str, shown: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with how much of `total` is done; the bar appears after a second and goes at the end.

    `shown` forces the bar on or off (None: where `is_interactive`).
    """
    if not (is_interactive() if shown is None else shown):
        yield lambda done: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    progress, began = Progress(console=Console(stderr=True), transient=True), time.monotonic()
    task = progress.add_task(escape(label), total=total)

    def update(done: int) -> None:
        progress.update(task, completed=done)
        if not progress.live.is_started and time.monotonic() - began > DELAY_SECONDS:
            progress.start()

    try:
        yield update
    finally:
        if progress.live.is_started:
            progress.console.quiet = progress.console.is_jupyter  # the cursor's codes would leave an empty output
            progress.stop()


def track(steps: Iterable[Step], total: int, label: str, shown: bool | None = None) -> Iterator[Step]:
    """Yield `steps` unchanged, with the bar of `bar` beside them."""
    with bar(total, label, shown) as update:
        for done, step in enumerate(steps, 1):
            yield step
            update(done)


@contextmanager
def status(shown: bool | None = None) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with a line that says what is waited for; the line goes at the end.

    `shown` forces the line on or off (None: where `is_interactive`); inside `shown_by` it goes there instead.
    """
    if (show := _SHOWN_BY.get()) is not None:
        try:
            yield show
        finally:
            show("")
    elif is_interactive() if shown is None else shown:
        with _line() as show:
            yield show
    else:
        yield lambda line: None


@contextmanager
def _line() -> Iterator[Callable[[str], None]]:
    """A line that is drawn only when it changes: who waits must not disturb what others measure."""
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield lambda line: live.update(Text(line), refresh=True)
        live.console.quiet = live.console.is_jupyter  # as in `bar`


@contextmanager
def shown_by(show: Callable[[str], None]) -> Iterator[None]:
    """In this block and thread, `show` gets the lines of `status`, and an empty one when a wait is over."""
    token = _SHOWN_BY.set(show)
    try:
        yield
    finally:
        _SHOWN_BY.reset(token)


def note(line: str) -> None:
    """Write a line that stays: where a person watches through `shown_by`, there; else to standard error."""
    show = _SHOWN_BY.get()
    if show is None:
        print(line, file=sys.stderr)
    else:
        show(line)
