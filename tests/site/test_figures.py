"""Figures of the built site: there without JavaScript, interactive when a reader asks, in the way of nobody's thumb."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from first_visit import PHONE, WIDE
from playwright.sync_api import Locator, Page, expect
from readings import CUT, DRAWINGS

CHAPTER = "book/foundations/anatomy.html"
SMALLEST_TEXT = 9
SHIFTS = """() => {
  window.shifts = 0;
  new PerformanceObserver((list) => list.getEntries().forEach((one) => { window.shifts += one.value; }))
    .observe({ type: "layout-shift" });
}"""
TEXTS = "(svgs) => svgs.flatMap((svg) => [...svg.querySelectorAll('text')].map((one) => one.textContent)).sort()"
WITHOUT_DRAWINGS = """addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".figure-drawing svg").forEach((svg) => svg.remove());
})"""


@pytest.fixture(scope="session")
def controlled(built_book) -> list[Path]:
    """The pages that have a figure with controls."""
    pages = [*built_book.glob("book/**/*.html"), *built_book.glob("labs/*.html")]
    return sorted(path for path in pages if 'class="figure-controls"' in path.read_text(encoding="utf-8"))


@pytest.fixture
def page(browser) -> Page:
    """A window on a desk with a mouse, in light colours."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield page
    page.close()


def first_figure(page: Page, address: Path | str) -> Locator:
    """The first figure of a page, scrolled into view."""
    page.goto(address if isinstance(address, str) else address.as_uri())
    box = page.locator(".lab-figure").first
    box.scroll_into_view_if_needed()
    return box


@pytest.fixture(params=[str(size["width"]) for size in (WIDE, PHONE)])
def drawn(request, unscripted) -> dict[str, dict[str, list]]:
    """The drawings of each page without JavaScript in a wide and a narrow window, and the texts that are cut."""
    return {page: seen["drawn"][request.param] for page, seen in unscripted.items()}


def test_every_figure_is_there_without_javascript(drawn):
    """One drawing for the width of the window, legible, with a text alternative and without buttons."""
    figures = [(page, drawing) for page, seen in drawn.items() for drawing in seen["drawings"]]
    assert figures
    wrong = [
        (page, drawing["alt"][:60], min(drawing["sizes"], default=0))
        for page, drawing in figures
        if not is_readable(drawing)
    ]
    assert wrong == []


def is_readable(drawing: dict) -> bool:
    legible = min(drawing["sizes"], default=0) >= SMALLEST_TEXT
    return bool(drawing["shown"] == 1 and legible and drawing["alt"] and not drawing["asks"])


@pytest.mark.parametrize("text", ['<svg><text font-size="8">8</text><path d="M0 0h9"/></svg>', "", "<svg></svg>"])
def test_a_figure_that_is_not_readable_is_noticed(page, text):
    """The check above can fail: on small text, on a figure without a drawing, on an empty one."""
    page.set_content(f'<div><div class="lab-figure"><div role="img" aria-label="alt">{text}</div></div></div>')
    assert [is_readable(drawing) for drawing in page.evaluate(DRAWINGS)] == [False]


def test_no_text_of_a_figure_is_cut(drawn):
    """Headings, names and the sizes beside bars end within the figure, on a phone too."""
    assert [(page, text) for page, seen in drawn.items() for text in seen["cut"]] == []


@pytest.mark.parametrize(("x", "cut"), [(0, []), (70, ["as planned"]), (-20, ["as planned"])])
def test_a_text_that_is_cut_is_noticed(page, x, cut):
    """The check above can fail: on a text that ends beyond its figure, or begins before it."""
    svg = f'<svg width="100" height="30" style="overflow: visible"><text x="{x}" y="20">as planned</text></svg>'
    page.set_content(f'<div class="lab-figure">{svg}</div>')
    assert page.evaluate(CUT) == cut


def test_a_drawing_has_the_colours_of_the_page(built_book, page):
    """Its text has the page's colour in light and, once the reader changes the theme, in dark."""
    box = first_figure(page, built_book / CHAPTER)
    inks = set()
    for theme in ("light", "dark"):
        page.evaluate("theme => { document.documentElement.dataset.theme = theme; }", theme)
        ink = box.locator("svg.is-wide text").first.evaluate("text => getComputedStyle(text).fill")
        assert ink == page.evaluate("getComputedStyle(document.body).color")
        inks.add(ink)
    assert len(inks) == 2


def test_nothing_of_plotly_is_loaded_before_a_figure_is_touched(built_book, page):
    """A page costs what it shows: library and data come when a reader points at a figure."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    box = first_figure(page, built_book / CHAPTER)
    page.wait_for_timeout(300)
    assert [url for url in asked if "plotly" in url or "/_static/figures/" in url] == []
    box.hover()
    expect(box).to_have_attribute("data-drawn", "yes", timeout=20_000)
    assert len([url for url in asked if "plotly" in url or "/_static/figures/" in url]) == 2


def test_pointing_at_a_figure_makes_it_interactive_in_its_place(built_book, page):
    """Nothing moves, the same words stand in it, and no control is added that the reader did not ask for."""
    box = first_figure(page, built_book / CHAPTER)
    page.wait_for_timeout(500)
    page.evaluate(SHIFTS)
    drawn = box.locator("svg.is-wide").evaluate_all(TEXTS)
    box.hover()
    expect(box).to_have_attribute("data-drawn", "yes", timeout=20_000)
    expect(box.locator(".figure-drawing svg").first).to_be_hidden()
    assert box.locator(".main-svg").evaluate_all(TEXTS) == drawn
    assert page.locator(".modebar-btn").count() == 0
    assert page.evaluate("window.shifts") == 0
    ink = box.locator(".xtick text").first
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    expect(ink).to_have_css("fill", page.evaluate("getComputedStyle(document.body).color"))


def test_a_press_gives_tools_by_keyboard_and_none_that_sends_anything(built_book, page):
    """Explore, pressed by keyboard, leads to the tools; no tool shares, uploads or opens another host."""
    box = first_figure(page, built_book / CHAPTER)
    box.get_by_role("button", name="Explore").focus()
    page.keyboard.press("Enter")
    tools = box.locator(".modebar-btn")
    expect(tools.first).to_be_focused(timeout=20_000)
    titles = [tool.get_attribute("data-title") for tool in tools.all()]
    assert "Zoom" in titles
    assert [title for title in titles if re.search("share|cloud|send|upload|edit|studio", title, re.IGNORECASE)] == []
    assert box.locator("a[href]").count() == 0
    expect(box.get_by_role("button", name="Explore")).to_have_count(0)


def test_a_swipe_on_a_figure_scrolls_the_page(built_book, browser):
    """A thumb that starts on a figure moves the page, on the drawing and on the interactive figure alike."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    page = context.new_page()
    box = first_figure(page, built_book / CHAPTER)
    assert swipe(page, box) > 80
    box.get_by_role("button", name="Explore").tap()
    expect(box).to_have_attribute("data-drawn", "yes", timeout=20_000)
    assert swipe(page, box) > 80
    assert box.locator(".modebar-btn").count() == 0
    context.close()


def swipe(page: Page, box: Locator) -> float:
    """Pixels that the page scrolls when a finger moves up by 150 over a figure."""
    place = box.bounding_box()
    before, fingers = page.evaluate("scrollY"), page.context.new_cdp_session(page)
    x, y = place["x"] + 0.6 * place["width"], place["y"] + 0.5 * place["height"]
    fingers.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
    for step in range(1, 11):
        moved = [{"x": x, "y": y - 15 * step}]
        fingers.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": moved})
        page.wait_for_timeout(16)
    fingers.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    page.wait_for_timeout(300)
    return page.evaluate("scrollY") - before


def test_a_figure_that_the_build_did_not_draw_is_drawn_when_it_is_seen(built_book, page):
    """Without a browser at build the reader's browser draws, one figure after the other as they come into view."""
    page.add_init_script(WITHOUT_DRAWINGS)
    page.goto((built_book / CHAPTER).as_uri())
    boxes = page.locator(".lab-figure")
    assert boxes.count() > 2
    boxes.first.scroll_into_view_if_needed()
    expect(boxes.first).to_have_attribute("data-drawn", "yes", timeout=20_000)
    assert boxes.last.get_attribute("data-drawn") is None


# --- controls ---------------------------------------------------------------------------------------


def test_a_control_works_by_keyboard_and_says_its_value(controlled, page):
    """An arrow key moves one setting; its value is said with what it means, the figure and the address follow."""
    assert controlled
    for path in controlled:
        page.goto(path.as_uri())
        box = page.locator(".lab-controlled .lab-figure").first
        for control in page.get_by_role("slider").all():
            told = move(page, control)
            expect(box).to_have_attribute("data-drawn", "yes", timeout=20_000)
            assert re.search(r"[a-z]{2}", told), told
            kept = parse_qs(urlparse(page.url).query)
            assert [value in told for key, [value] in kept.items() if key.endswith(control.get_attribute("name"))]
    assert page.locator(".rangeslider-container, .slider-container").count() == 0


def move(page: Page, control: Locator) -> str:
    """Move a control by one value, by keyboard; what a screen reader says then."""
    before = control.get_attribute("aria-valuetext")
    control.focus()
    key = "ArrowLeft" if control.input_value() == control.get_attribute("max") else "ArrowRight"
    page.keyboard.press(key)
    expect(control).not_to_have_attribute("aria-valuetext", before)
    return control.get_attribute("aria-valuetext")


def test_a_moved_control_changes_the_figure_and_its_text(controlled, page):
    """What is seen and what is read aloud are those of the new value."""
    page.goto(controlled[0].as_uri())
    box = page.locator(".lab-controlled .lab-figure").first
    start = box.locator("svg.is-wide").evaluate_all(TEXTS)
    move(page, page.get_by_role("slider").first)
    expect(box).to_have_attribute("data-drawn", "yes", timeout=20_000)
    plot = box.locator(".lab-plot")
    assert box.locator(".main-svg").evaluate_all(TEXTS) != start
    first = plot.get_attribute("aria-label")
    move(page, page.get_by_role("slider").first)
    expect(plot).not_to_have_attribute("aria-label", first)


def test_a_shared_address_shows_the_same_view(controlled, open_page, page):
    """Whoever opens the address sees the settings of whoever sent it, and the figure drawn for them."""
    page.goto(controlled[0].as_uri())
    told = move(page, page.get_by_role("slider").first)
    box = page.locator(".lab-controlled .lab-figure").first
    expect(box).to_have_attribute("data-drawn", "yes", timeout=20_000)
    other = open_page(page.url, viewport={"width": 1280, "height": 900})
    expect(other.get_by_role("slider").first).to_have_attribute("aria-valuetext", told)
    same = other.locator(".lab-controlled .lab-figure").first
    expect(same).to_have_attribute("data-drawn", "yes", timeout=20_000)
    assert same.locator(".main-svg").evaluate_all(TEXTS) == box.locator(".main-svg").evaluate_all(TEXTS)


def test_without_javascript_there_is_nothing_to_move(controlled, open_page):
    """The drawing of the first position stays, and no control stands above it that would do nothing."""
    page = open_page(controlled[0].as_uri(), java_script_enabled=False)
    assert page.locator(".figure-controls").count() > 0
    assert not page.locator(".figure-controls").first.is_visible()
    assert page.locator(".lab-controlled svg.is-wide").first.is_visible()
