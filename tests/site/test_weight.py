"""How much a reader downloads before touching anything, compressed, and how soon a page is painted on slow 4G."""

from __future__ import annotations

import base64
import io
import re

import pytest
from first_visit import SLOW_4G, first_visit, pages_of
from fontTools.ttLib import TTFont

from handbook import stylesheet

FRONT, SLOW_PAGES = (
    "book/index.html",
    ("book/index.html", "book/foundations/anatomy.html", "labs/03-follow-the-pipeline.html"),
)
FRONT_BYTES, PAGE_BYTES = 250_000, 700_000
PAINTED_WITHIN_MS = 3000
NOT_AT_ONCE = ("fontawesome", "mathjax", "fa-solid", "fa-regular", "fa-brands", "thebe", "basic.css")
ONLY_TO_SEARCH = ("searchindex.js", "searchtools.js", "language_data.js")
ICONS_SHOWN = """() => {
  const shown = new Set();
  for (const element of document.querySelectorAll("body *")) {
    for (const part of [null, "::before", "::after"]) {
      const style = getComputedStyle(element, part);
      if (!/Font ?Awesome/.test(style.fontFamily)) continue;
      const text = part ? style.content.replaceAll('"', "") : element.innerText;
      if (part && ["none", "normal"].includes(style.content)) continue;
      for (const sign of text ?? "") shown.add(sign);
    }
    if (/\\bfa-(?!solid|lg)/.test(element.getAttribute("class") ?? "")) {
      const { content } = getComputedStyle(element, "::before");
      if (["none", "normal"].includes(content)) shown.add(element.className);
    }
  }
  return [...shown];
}"""


def weight(visit) -> int:
    """Bytes of a first visit, without the figures' library, which is loaded when a figure is touched."""
    return sum(size for address, size in visit.sent.items() if "plotly" not in address)


def test_the_front_page_is_light(first_visits):
    """The front page takes at most 250 KB."""
    assert max(weight(visit) for visit in first_visits[FRONT]) <= FRONT_BYTES


def test_no_page_is_heavy(first_visits):
    """No page takes more than 700 KB before a figure is touched."""
    heaviest = {page: max(map(weight, visits)) for page, visits in first_visits.items()}
    assert {page: size for page, size in heaviest.items() if size > PAGE_BYTES} == {}


def test_a_page_loads_nothing_that_it_does_not_use(first_visits):
    """No script of icons, of mathematics or of live kernels is loaded, and the search's files only by the search."""
    loaded = {(page, address) for page, visits in first_visits.items() for visit in visits for address in visit.sent}
    unused = [(page, address) for page, address in loaded if any(name in address for name in NOT_AT_ONCE)]
    early = [one for one in loaded if one[0] != "search.html" and any(name in one[1] for name in ONLY_TO_SEARCH)]
    assert (unused, early) == ([], [])


@pytest.mark.parametrize("page", SLOW_PAGES)
def test_a_page_is_painted_within_three_seconds_on_slow_4g(compressed, browser, page):
    """On Lighthouse's slow 4G the first text stands within three seconds."""
    assert first_visit(browser, compressed, page, network=SLOW_4G).paint <= PAINTED_WITHIN_MS


def test_every_icon_is_in_the_small_fonts(built_book, browser):
    """The fonts of icons hold each icon that a page shows: none is an empty box."""
    sheet = (built_book / "_static" / stylesheet.SHEET).read_text(encoding="utf-8")
    fonts = [base64.b64decode(font) for font in re.findall(r"data:font/woff2;base64,([^\"]+)", sheet)]
    held = {chr(code) for font in fonts for code in TTFont(io.BytesIO(font)).getBestCmap()}
    page = browser.new_page()
    shown = {}
    for path in pages_of(built_book):
        page.goto(f"{built_book.as_uri()}/{path}", wait_until="domcontentloaded")
        for icon in page.evaluate(ICONS_SHOWN):
            shown.setdefault(icon, path)
    page.close()
    assert len(shown) > 5
    assert {icon: path for icon, path in shown.items() if icon not in held} == {}


def test_a_page_says_once_how_wide_it_is(built_book):
    """One line of a page's head tells a phone the width of the page."""
    heads = {
        path: (built_book / path).read_text(encoding="utf-8").count('name="viewport"') for path in pages_of(built_book)
    }
    assert {path: count for path, count in heads.items() if count != 1} == {}
