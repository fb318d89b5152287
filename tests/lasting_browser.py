"""A browser for many tests: one that stalls is ended with a word about it, and the next test gets a new one.

Playwright waits without end for a script of a page, so one browser that answers no more would hold up all tests.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chrom", "headless_shell")
"""What the names of Chromium's processes begin with, the last one in playwright's own build."""


class LastingBrowser:
    """A playwright Browser, started again where it has ended."""

    def __init__(self, start: Callable[[], Browser]) -> None:
        self._start = start
        self._browser = start()

    def __getattr__(self, name: str) -> Any:
        if not self._browser.is_connected():
            self._browser = self._start()
        return getattr(self._browser, name)


@contextmanager
def browsers_ended_after(seconds: float, test: str) -> Iterator[None]:
    """End the Chromium processes below this one when the block takes longer: what waits for them fails then."""

    def end() -> None:
        print(f"{test}: the browser was ended after {seconds:g} s.", file=sys.stderr)
        for process in chromium_processes():
            process.kill()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def chromium_processes() -> list[psutil.Process]:
    """The running Chromium processes that this one started, directly or through another."""
    below = psutil.Process().children(recursive=True)
    return [process for process in below if name_of(process).startswith(NAMES)]


def name_of(process: psutil.Process) -> str:
    """Its name in small letters; empty for one that has ended meanwhile."""
    try:
        return process.name().lower()
    except psutil.NoSuchProcess:
        return ""
