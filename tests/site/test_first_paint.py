"""What a reader sees first comes soon and stays: the text, its font and the theme."""

from __future__ import annotations

import pytest
from first_visit import PHONE, SLOW_4G, first_visit

PAGES = ("book/index.html", "book/foundations/anatomy.html", "search.html")
SLOW_PAGES = (*PAGES[:2], "labs/03-follow-the-pipeline.html")
PAINTED_WITHIN_MS = 3000
LIGHTNESS = """() => {
  const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/[0-9.]+/g).map(Number);
  const canvas = getComputedStyle(document.documentElement).colorScheme;
  return { lightness: (red + green + blue) / 765, canvas };
}"""


@pytest.mark.parametrize("page", SLOW_PAGES)
def test_a_page_is_painted_within_three_seconds_on_slow_4g(compressed, browser, page):
    """On Lighthouse's slow 4G the first text stands within three seconds."""
    assert first_visit(browser, compressed, page, network=SLOW_4G).paint <= PAINTED_WITHIN_MS


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
def test_italics_are_of_the_books_own_font(built_book, compressed, open_page, where):
    """A page with a word in italics loads their font with the upright one, also where it may not be asked for early."""
    page = open_page((compressed if where == "from a server" else f"{built_book.as_uri()}/") + PAGES[1])
    page.evaluate("document.fonts.ready")
    faces = "[...document.fonts].filter(({ status }) => status === 'loaded').map(({ family, style }) => family + style)"
    loaded = {face.replace('"', "") for face in page.evaluate(faces)}
    assert {"Source Sans 3 Variablenormal", "Source Sans 3 Variableitalic"} <= loaded
