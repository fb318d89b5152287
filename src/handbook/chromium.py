"""The browser that draws figures, diagrams and the social card, and that makes the ePub and the PDF."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import wraps
from typing import Any

from inferlab.doctor.host import CHROMIUM_NAMES


class NoBrowser(Exception):
    """No browser could be started; the message says why, and how to get one."""


def find_chromium() -> str | None:
    """Path of a Chromium on this machine: CHROMIUM if set, else the first known name on PATH, else None."""
    names = [os.environ.get("CHROMIUM", ""), *CHROMIUM_NAMES]
    return next((path for name in names if name and (path := shutil.which(name))), None)


def in_own_thread(draw: Callable) -> Callable:
    """Decorator: run `draw` in a thread of its own, because playwright refuses one in which an event loop runs."""

    @wraps(draw)
    def drawn(*args: Any, **options: Any) -> Any:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(draw, *args, **options).result()

    return drawn


@contextmanager
def blank_page(**options: Any) -> Iterator:
    """An empty page of a headless Chromium, with playwright's options of `new_page`.

    Raises NoBrowser. To be used inside a function that runs `in_own_thread`.
    """
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        raise NoBrowser(_advice("the Python package playwright is missing")) from None
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"])
        except Error as failed:
            raise NoBrowser(_advice(str(failed).splitlines()[0])) from None
        yield browser.new_page(**options)
        browser.close()


def _advice(reason: str) -> str:
    return (
        f"No Chromium could be started: {reason.rstrip('.')}. Install it (on Debian `apt-get install chromium`), "
        "name one with CHROMIUM=path, or run `playwright install chromium`."
    )
