"""Every page serves a screen reader and a keyboard: axe-core finds nothing, light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe import STILL, violations

WIDTHS = (1280, 390)
N_PARTS = 8
"""How many tests share the pages: one for all of them would take minutes, and on a slow machine be taken as hung."""
FOCUS = """(name) => {
  const element = [...document.querySelectorAll(name)].find((each) => each.checkVisibility());
  element.focus();
  const { outlineStyle, outlineColor, outlineWidth } = getComputedStyle(element);
  const ground = getComputedStyle(document.body).backgroundColor;
  return { style: outlineStyle, colour: outlineColor, width: parseFloat(outlineWidth), ground };
}"""
FOCUSED = (".bd-article p a", ".bd-article summary", ".bd-sidebar-primary li a", ".theme-switch-button", ".bd-toc li a")


@pytest.fixture(scope="module")
def pages(built_book) -> list[str]:
    """Every page, those for searching too, but for redirects."""
    paths = [path for path in sorted(built_book.rglob("*.html")) if "_static" not in path.parts]
    return [path.relative_to(built_book).as_posix() for path in paths if "<main" in path.read_text(encoding="utf-8")]


@pytest.fixture
def tabs(browser) -> Iterator[list]:
    """A wide tab and a narrow one, each with a process of its own, so that both are checked at the same time."""
    sizes = [{"width": width, "height": 900} for width in WIDTHS]
    contexts = [browser.new_context(viewport=size, color_scheme="light") for size in sizes]
    yield [context.new_page() for context in contexts]
    for context in contexts:
        context.close()


@pytest.mark.parametrize("part", range(N_PARTS))
def test_axe_finds_no_violation(built_book, pages, tabs, part):
    """Names, roles, landmarks, contrast and other rules hold on every page, light and dark, wide and narrow."""
    assert len(pages) > N_PARTS
    found = {}
    for path in pages[part::N_PARTS]:
        for tab in tabs:
            tab.goto((built_book / path).as_uri())
        if wrong := violations(tabs):
            found[path] = wrong
    assert found == {}


BARRIERS = """<html lang=en><title>x</title><style>
  main { background: #fff } p, em { color: #111 }
  [data-theme=dark] main { background: #333 } [data-theme=dark] em { color: #fff }
  @media (max-width: 600px) { [data-theme=dark] p { color: #fff } [data-theme=dark] em { color: #111 } }
</style><main><h1>x</h1><p>text</p><em>text</em><details><summary></summary></details></main>"""


def test_a_barrier_is_noticed(tabs):
    """A fold without a name fails everywhere; pale text on dark paper only in dark, and at the width that has it."""
    for tab in tabs:
        tab.set_content(BARRIERS)
    found = violations(tabs)
    named = ["light, 1280: summary-name", "light, 390: summary-name"]
    pale = ["dark, 1280: color-contrast", "dark, 390: color-contrast"]
    assert [each.partition(" (")[0] for each in found] == [*named, *pale]
    assert ["<p>" in each for each in found[2:]] == [True, False]


def test_the_first_tab_offers_the_way_to_the_article(built_book, pages, browser):
    """Tab, Enter, Tab: the focus is on the first link of the article; where there is no sidebar, one Tab is enough."""
    page, astray = browser.new_page(viewport={"width": 1280, "height": 900}), {}
    for path in pages:
        page.goto((built_book / path).as_uri())
        for key in ("Tab",) if path == "404.html" else ("Tab", "Enter", "Tab"):
            page.keyboard.press(key)
        inside = "main" if path in ("404.html", "search.html", "genindex.html") else "article"
        if not page.evaluate("name => Boolean(document.activeElement.closest(name))", inside):
            astray[path] = page.evaluate("document.activeElement.outerHTML.slice(0, 160)")
    page.close()
    assert astray == {}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_focus_is_seen(built_book, browser, scheme):
    """A line of two pixels or more, with a contrast of three to one against the page."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page.goto((built_book / "book/foundations/kv-cache.html").as_uri())
    page.add_style_tag(content=STILL)
    page.keyboard.press("Tab")
    rings = {name: page.evaluate(FOCUS, name) for name in FOCUSED}
    page.close()
    pale = {name: ring for name, ring in rings.items() if not is_seen(ring)}
    assert pale == {}


def is_seen(ring: dict) -> bool:
    brighter, darker = sorted((luminance(ring["colour"]), luminance(ring["ground"])), reverse=True)
    return ring["style"] != "none" and ring["width"] >= 2 and (brighter + 0.05) / (darker + 0.05) >= 3


def luminance(colour: str) -> float:
    """Relative luminance of `rgb(31, 95, 153)`, as WCAG 2 defines it."""
    parts = [float(part) / 255 for part in colour.partition("(")[2].rstrip(")").split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_pale_focus_is_noticed():
    """Grey on white and a line of one pixel fail; black on white passes."""
    ring = {"style": "solid", "colour": "rgb(0, 0, 0)", "width": 3, "ground": "rgb(255, 255, 255)"}
    assert is_seen(ring)
    assert not is_seen({**ring, "width": 1})
    assert not is_seen({**ring, "colour": "rgb(200, 200, 200)"})
