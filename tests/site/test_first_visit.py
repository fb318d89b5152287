"""What a first visit downloads before the reader touches anything, compressed, and that nothing moves meanwhile."""

from __future__ import annotations

import base64
import io
import re

import pytest
from first_visit import pages_of
from fontTools.ttLib import TTFont

from handbook.delivery import stylesheet

FRONT = "book/index.html"
FRONT_BYTES, PAGE_BYTES = 250_000, 700_000
MOVES_AT_MOST = 0.05
NOT_AT_ONCE = (
    *("fontawesome", "mathjax", "fa-solid", "fa-regular", "fa-brands", "thebe", "basic.css"),
    *("pyodide", "inferlab.zip"),
)
ONLY_TO_SEARCH = ("searchindex.js", "searchtools.js", "language_data.js")


@pytest.fixture
def first_visits(built_book, seen) -> dict[str, dict]:
    """What a first visit to each page brought, wide and dark, and in light on a phone."""
    return {page: seen[page] for page in pages_of(built_book)}


def weight(visit: dict) -> int:
    """Bytes of a first visit, without the figures' library, which is loaded when a figure is touched."""
    return sum(size for address, size in visit["sent"].items() if "plotly" not in address)


def test_the_front_page_is_light(first_visits):
    """The front page takes at most 250 KB."""
    assert weight(first_visits[FRONT]) <= FRONT_BYTES


def test_no_page_is_heavy(first_visits):
    """No page takes more than 700 KB before a figure is touched."""
    weights = {page: weight(visit) for page, visit in first_visits.items()}
    assert {page: size for page, size in weights.items() if size > PAGE_BYTES} == {}


def test_a_page_loads_nothing_that_it_does_not_use(first_visits):
    """No icons' scripts, mathematics, live kernels or Python are loaded, and the search's files only by the search."""
    loaded = {(page, address) for page, visit in first_visits.items() for address in visit["sent"]}
    unused = [(page, address) for page, address in loaded if any(name in address for name in NOT_AT_ONCE)]
    early = [load for load in loaded if load[0] != "search.html" and any(name in load[1] for name in ONLY_TO_SEARCH)]
    assert (unused, early) == ([], [])


def test_nothing_moves_while_a_page_loads(first_visits):
    """The layout of a page shifts by at most 0.05 on a first visit."""
    moved = {page: visit["moved"] for page, visit in first_visits.items() if visit["shift"] > MOVES_AT_MOST}
    assert moved == {}


def test_the_size_of_the_text_is_the_same_from_the_first_style_on(first_visits):
    """The root's font size, from which all others follow, has one value while a page loads."""
    sizes = {page: visit["root_sizes"] for page, visit in first_visits.items()}
    assert {page: values for page, values in sizes.items() if values != ["16px"]} == {}


def test_every_icon_is_in_the_small_fonts(built_book, first_visits):
    """The fonts of icons hold each icon that a page shows: none is an empty box."""
    sheet = (built_book / "_static" / stylesheet.SHEET).read_text(encoding="utf-8")
    fonts = [base64.b64decode(font) for font in re.findall(r"data:font/woff2;base64,([^\"]+)", sheet)]
    held = {chr(code) for font in fonts for code in TTFont(io.BytesIO(font)).getBestCmap()}
    shown = {icon: page for page, visit in first_visits.items() for icon in visit["icons"]}
    assert len(shown) > 5
    assert {icon: page for icon, page in shown.items() if icon not in held} == {}


def test_a_page_says_once_how_wide_it_is(built_book):
    """One line of a page's head tells a phone the width of the page."""
    heads = {
        path: (built_book / path).read_text(encoding="utf-8").count('name="viewport"') for path in pages_of(built_book)
    }
    assert {path: count for path, count in heads.items() if count != 1} == {}
