"""An instrument's page in a browser that notes what is asked for and what fails, for the tests of each instrument."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

STARTING_MS = 90_000
"""How long Python may take to start in a page, in milliseconds."""
NEXT_ANSWER = """() => {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("no answer in time")), 60000));
  const answered = new Promise((resolve) => {
    document.querySelector(".instrument").addEventListener("answered", ({ detail }) => resolve(detail), { once: true });
  });
  window.told = Promise.race([answered, late]);
  return null;
}"""
DROP = """(files) => {
  const dataTransfer = new DataTransfer();
  for (const [name, text] of files) dataTransfer.items.add(new File([text], name));
  const put = (type) => new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer });
  for (const type of ["dragenter", "dragover", "drop"]) document.querySelector(".instrument").dispatchEvent(put(type));
}"""
"""Drops files, each a name and a text, on the instrument of a page."""


@contextmanager
def watched_page(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """A page with its controls on; `asked` has every address that it asks for, `errors` what fails in it."""
    context = browser.new_context(**options)
    page = context.new_page()
    page.asked, page.errors = [], []
    page.on("request", lambda request: page.asked.append(request.url))
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    page.on("console", lambda told: page.errors.append(told.text) if told.type == "error" else None)
    page.set_default_timeout(STARTING_MS)
    page.goto(address)
    page.wait_for_selector(".instrument fieldset:not([disabled])")
    yield page
    context.close()


def asked_elsewhere(page: Page) -> list[str]:
    """The addresses outside its site that a watched page asked for."""
    home = page.url.partition("/book/")[0]
    return [url for url in page.asked if not url.startswith((home, f"blob:{home}"))]


def told(page: Page, act: Callable[[], Any]) -> dict:
    """The answer that follows what a reader does."""
    page.evaluate(NEXT_ANSWER)
    act()
    return page.evaluate("() => window.told")


def drop(page: Page, files: dict[str, bytes]) -> dict:
    """The answer after these files were dropped."""
    return told(page, lambda: page.evaluate(DROP, [[name, data.decode()] for name, data in files.items()]))
