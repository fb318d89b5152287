"""Every page serves a screen reader and a keyboard: axe-core finds nothing in a wide window, and the focus is seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from axe import STILL, violations
from crawl import N_PARTS
from first_visit import PHONE, WIDE
from playwright.sync_api import Page

FOCUS = """(name) => {
  const element = [...document.querySelectorAll(name)].find((each) => each.checkVisibility());
  element.focus();
  const { outlineStyle, outlineColor, outlineWidth } = getComputedStyle(element);
  const ground = getComputedStyle(document.body).backgroundColor;
  return { style: outlineStyle, colour: outlineColor, width: parseFloat(outlineWidth), ground };
}"""
FOCUSED = (".bd-article p a", ".bd-article summary", ".bd-sidebar-primary li a", ".theme-switch-button", ".bd-toc li a")
WITHOUT_ARTICLE = ("404.html", "search.html", "genindex.html")


@pytest.fixture(params=[WIDE, PHONE], ids=["wide", "phone"])
def tab(request, browser) -> Iterator[Page]:
    """An empty tab, wide or as narrow as a phone."""
    tab = browser.new_page(viewport=request.param)
    yield tab
    tab.close()


@pytest.mark.parametrize("part", range(N_PARTS))
def test_axe_finds_no_violation(crawl, part):
    """Names, roles, landmarks, contrast and other rules hold on every page in a wide window, light and dark."""
    assert crawl.barriers("wide", part) == {}


BARRIERS = """<html lang=en><title>x</title><style>
  main { background: #fff } p, em, .dark { color: #111 }
  [data-theme=dark] main { background: #333 } [data-theme=dark] em { color: #fff }
  @media (max-width: 600px) { [data-theme=dark] p { color: #fff } [data-theme=dark] em { color: #111 } }
</style><main><h1>x</h1><p>text</p><em>text</em><details><summary></summary></details>
<svg aria-hidden="true"><a href="#" tabindex="0"><text y="9">x</text></a></svg>
<pre><span class="dark">some</span><span class="dark">code</span><span class="dark" id="x">named</span></pre></main>"""


def test_a_barrier_is_noticed(tab):
    """What is wrong everywhere is found once; pale text on dark paper only in dark, and at the width that has it."""
    tab.set_content(BARRIERS)
    barriers = violations(tab)
    width = tab.viewport_size["width"]
    named = [each.partition(" (")[0] for each in barriers]
    faults = ("light, {}: aria-hidden-focus", "light, {}: summary-name", "dark, {}: color-contrast")
    assert named == [fault.format(width) for fault in faults]
    assert "(4)" in barriers[2]  # the text, the code, its first word, and the named one
    assert ("<p>" in barriers[2]) is (width == WIDE["width"])


def test_the_first_tab_offers_the_way_to_the_article(wide):
    """Tab, Enter, Tab: the focus is on the first link of the article; where there is no sidebar, one Tab is enough."""
    assert {page: seen["focus"]["html"] for page, seen in wide.items() if not is_inside(page, seen["focus"])} == {}


def is_inside(page: str, focus: dict) -> bool:
    return focus["main" if page in WITHOUT_ARTICLE else "article"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_focus_is_seen(open_page, scheme):
    """A line of two pixels or more, with a contrast of three to one against the page."""
    page = open_page("book/foundations/kv-cache.html", viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    page.add_style_tag(content=STILL)
    page.keyboard.press("Tab")
    rings = {name: page.evaluate(FOCUS, name) for name in FOCUSED}
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
