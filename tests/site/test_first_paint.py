"""What a reader sees first stays: the theme, the size of the text and its place on the page."""

from __future__ import annotations

import pytest
from first_visit import PHONE

PAGES = ("book/index.html", "book/foundations/anatomy.html", "search.html")
MOVES_AT_MOST = 0.05
LIGHTNESS = """() => {
  const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
  const canvas = getComputedStyle(document.documentElement).colorScheme;
  return { lightness: (red + green + blue) / 765, canvas };
}"""


def test_nothing_moves_while_a_page_loads(first_visits):
    """The layout of a page shifts by at most 0.05 on a first visit, in light and in dark, wide and on a phone."""
    moved = {
        page: [visit.moved for visit in visits if visit.shift > MOVES_AT_MOST] for page, visits in first_visits.items()
    }
    assert {page: found for page, found in moved.items() if found} == {}


def test_the_size_of_the_text_is_the_same_from_the_first_style_on(first_visits):
    """The root's font size, from which all others follow, has one value while a page loads."""
    sizes = {page: {tuple(visit.root_sizes) for visit in visits} for page, visits in first_visits.items()}
    assert {page: found for page, found in sizes.items() if found != {("16px",)}} == {}


def lightness_at_first(browser, address, scheme, *, javascript, stored=None):
    """How light the page is, from 0 to 1, when only the head of the page has run: its later scripts are held back."""
    context = browser.new_context(color_scheme=scheme, viewport=PHONE, java_script_enabled=javascript)
    page = context.new_page()
    if stored:
        page.add_init_script(f"localStorage.setItem('mode', '{stored}')")
    page.route("**/*.js*", lambda route: route.abort())
    page.goto(address)
    seen = page.evaluate(LIGHTNESS)
    context.close()
    return seen


@pytest.mark.parametrize("javascript", [True, False], ids=["with scripts", "without JavaScript"])
@pytest.mark.parametrize("path", PAGES)
def test_the_first_paint_has_the_scheme_of_the_system(compressed, browser, path, javascript):
    """Who reads in the dark never sees a white page, and who reads in the light never a black one."""
    dark = lightness_at_first(browser, compressed + path, "dark", javascript=javascript)
    light = lightness_at_first(browser, compressed + path, "light", javascript=javascript)
    assert dark["lightness"] < 0.15
    assert light["lightness"] > 0.9
    assert (dark["canvas"], light["canvas"]) == ("dark", "light")


@pytest.mark.parametrize(("scheme", "stored"), [("dark", "light"), ("light", "dark")])
def test_the_reader_s_own_choice_comes_before_the_system_s(compressed, browser, scheme, stored):
    """A page is painted at once in the theme that the reader chose on another."""
    seen = lightness_at_first(browser, compressed + PAGES[1], scheme, javascript=True, stored=stored)
    assert (seen["lightness"] < 0.15) is (stored == "dark")


def test_without_javascript_code_and_boxes_have_the_colours_of_dark(compressed, browser):
    """Without a script the dark page is the same dark page: text, code and the boxes of notes."""
    look = """() => [".highlight span.n", ".admonition", ".bd-article p"].map((name) => {
      const element = document.querySelector(name);
      const style = getComputedStyle(element);
      return element && [style.color, style.backgroundColor, style.borderColor];
    })"""
    seen = []
    for javascript in (True, False):
        context = browser.new_context(color_scheme="dark", java_script_enabled=javascript)
        page = context.new_page()
        page.goto(compressed + PAGES[1])
        seen.append(page.evaluate(look))
        context.close()
    assert seen[0] == seen[1]


@pytest.mark.parametrize("where", ["from a server", "from disk"])
def test_italics_are_of_the_books_own_font(built_book, compressed, browser, where):
    """A page with a word in italics loads their font with the upright one, also where it may not be asked for early."""
    page = browser.new_page()
    page.goto((compressed if where == "from a server" else f"{built_book.as_uri()}/") + PAGES[1])
    page.evaluate("document.fonts.ready")
    faces = "[...document.fonts].filter(({ status }) => status === 'loaded').map(({ family, style }) => family + style)"
    loaded = {face.replace('"', "") for face in page.evaluate(faces)}
    page.close()
    assert {"Source Sans 3 Variablenormal", "Source Sans 3 Variableitalic"} <= loaded
