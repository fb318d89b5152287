"""Every page of the built site, opened once in each window: what was read there, for `tests/site` to judge.

A page is visited when a test first asks for it. What was read is kept in a folder that all processes of a test run
share, so that none visits what another has visited.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import readings
from axe import violations
from filelock import FileLock, Timeout
from first_visit import PHONE, WIDE, opened, pages_of
from playwright.sync_api import Browser, Page, Request

from inferlab.records import write_whole

WINDOWS = {"wide": {"size": WIDE, "scheme": "dark"}, "phone": {"size": PHONE, "scheme": "light"}}
UNSCRIPTED = "unscripted"
"""The window of a reader without JavaScript, first wide and then as narrow as a phone."""
WITHOUT_SIDEBAR = "404.html"
N_PARTS = 8
"""In how many parts axe-core checks the pages: at once they would take minutes, and on a slow machine look hung."""


class Crawl:
    """The visits to the pages of a site, each made when it is first asked for.

    pages  paths of all pages, from the site's root
    """

    def __init__(self, site: Path, folder: Path, visit: Callable[..., dict]) -> None:
        self.pages, self._leading_nowhere = html_of(site), pages_of(site)
        self._folder, self._visit = folder, visit
        folder.mkdir(exist_ok=True)

    def visited(self, window: str, pages: Sequence[str] | None = None, *, with_axe: bool = False) -> dict[str, dict]:
        """What was read on these pages, all unless named; `barriers`, what axe-core found, only if asked for."""
        pages = self.pages if pages is None else pages
        elsewhere = [page for page in pages if not self._is_visited(page, window, with_axe, wait=False)]
        for page in elsewhere:
            self._is_visited(page, window, with_axe, wait=True)
        return {page: self._kept(page, window) for page in pages}

    def barriers(self, window: str, part: int) -> dict[str, list[str]]:
        """What axe-core finds on the pages of one part, in light and in dark, by page."""
        seen = self.visited(window, self._leading_nowhere[part::N_PARTS], with_axe=True)
        return {page: read["barriers"] for page, read in seen.items() if read["barriers"]}

    def _is_visited(self, page: str, window: str, with_axe: bool, wait: bool) -> bool:
        """Visit a page unless it was; False where another process is at it, and this one does not wait."""
        try:
            with FileLock(f"{self._file(page, window)}.lock", timeout=-1 if wait else 0):
                kept = self._kept(page, window)
                if kept is None or (with_axe and "barriers" not in kept):
                    seen = self._visit(page, window, with_axe=with_axe)
                    write_whole(self._file(page, window), json.dumps(seen))
                return True
        except Timeout:
            return False

    def _kept(self, page: str, window: str) -> dict | None:
        file = self._file(page, window)
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None

    def _file(self, page: str, window: str) -> Path:
        return self._folder / f"{window} {page.replace('/', ' ')}.json"


def html_of(site: Path) -> list[str]:
    """Every page of a built site, as paths relative to its root, and the root's own; old addresses are left out."""
    return sorted({*pages_of(site), *(path.name for path in site.glob("*.html"))})


def visit(browser: Browser, home: str, page: str, window: str, *, with_axe: bool = False) -> dict:
    """Open a page as somebody who never was there, and read what stands on it; then let axe-core in, and press keys."""
    if window == UNSCRIPTED:
        return unscripted_visit(browser, home, page)
    heard = Heard()
    with opened(browser, home, page, listen=heard.listen, **WINDOWS[window]) as (tab, first):
        unanswered = heard.unanswered(tab)
        seen = {
            **asdict(first),
            "icons": tab.evaluate(readings.ICONS_SHOWN),
            "content": tab.evaluate(readings.CONTENT),
            "form": tab.evaluate(readings.MEASURE),
            "broken": tab.evaluate(readings.BROKEN_CODE),
            "questions": tab.locator("fieldset.question").count(),
            "buttons": tab.evaluate(readings.COMMIT_ELSEWHERE),
            "refused": tab.evaluate("window.refused"),
            "foreign": [url for url in heard.requests if is_foreign(url, home)],
            "complaints": [*heard.complaints, *unanswered],
        }
        if window == "phone":
            seen["signs"] = tab.evaluate(readings.SIGNS_ELSEWHERE)
            seen["names"] = tab.evaluate(readings.CUT_NAMES)
            seen["tables"] = readings.unshaded(tab)
        if with_axe:
            seen["barriers"] = violations(tab)
        if window == "wide":
            seen["focus"] = focus_by_keyboard(tab, ("Tab",) if page == WITHOUT_SIDEBAR else ("Tab", "Enter", "Tab"))
    return seen


def unscripted_visit(browser: Browser, home: str, page: str) -> dict:
    """Open a page without JavaScript, and read its diagrams, and its figures in both widths of the window."""
    context = browser.new_context(java_script_enabled=False, viewport=WIDE)
    try:
        tab = context.new_page()
        tab.goto(home + page)
        seen = {"diagrams": tab.evaluate(readings.DIAGRAMS), "drawn": {}}
        for size in (WIDE, PHONE):
            tab.set_viewport_size(size)
            drawn = {"drawings": tab.evaluate(readings.DRAWINGS), "cut": tab.evaluate(readings.CUT)}
            seen["drawn"][str(size["width"])] = drawn
        return seen
    finally:
        context.close()


def focus_by_keyboard(tab: Page, keys: Sequence[str]) -> dict:
    """What has the focus after some keys: its beginning, and whether it lies in the main part and in the article."""
    for key in keys:
        tab.keyboard.press(key)
    return tab.evaluate("""() => {
      const inside = (name) => Boolean(document.activeElement.closest(name));
      return { html: document.activeElement.outerHTML.slice(0, 160), main: inside("main"), article: inside("article") };
    }""")


@dataclass
class Heard:
    """What a tab asks for, and what fails or is complained of in it."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    pending: set[Request] = field(default_factory=set)

    def listen(self, tab: Page) -> None:
        """Listen from now on, before the tab opens an address."""
        tab.add_init_script(readings.REFUSED)
        tab.on("request", self._asked)
        tab.on("requestfinished", self._answered)
        tab.on("requestfailed", self._answered)
        tab.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        tab.on("console", lambda note: note.type in ("error", "warning") and self.complaints.append(note.text))
        tab.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)
        self.pending.add(request)

    def _answered(self, request: Request) -> None:
        self.pending.discard(request)

    def unanswered(self, tab: Page, seconds: float = 15) -> list[str]:
        """The requests that have no answer after so long; those of most pages have theirs when they are read."""
        end = time.monotonic() + seconds
        while self.pending and time.monotonic() < end:
            tab.wait_for_timeout(20)
        return [f"unanswered: {request.url}" for request in self.pending]


def is_foreign(url: str, home: str) -> bool:
    return not url.startswith((home, "data:", "blob:", "about:"))
