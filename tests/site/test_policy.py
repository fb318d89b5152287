"""The site obeys the content security policy that `make serve` sends, on every page and whatever a reader presses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from readings import REFUSED

CHAPTER, QUESTIONS = "book/foundations/anatomy.html", "book/workflow/pipeline.html"
SLIDER, ATLAS = "book/appendix/compute-and-bandwidth.html", "book/appendix/hardware-atlas.html"


@pytest.fixture(scope="module")
def page(browser) -> Iterator[Page]:
    """One window that notes what the policy refuses and what its console calls an error."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.add_init_script(REFUSED)
    page.errors = []
    page.on("console", lambda told: page.errors.append(told.text) if told.type == "error" else None)
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    yield page
    page.close()


def complaints(page: Page) -> list[str]:
    """What was refused or failed since the last call."""
    found, page.errors[:] = [*page.evaluate("window.refused.splice(0)"), *page.errors], []
    return found


def test_every_page_obeys_the_policy(seen):
    """No page asks for, runs or styles what the policy forbids, and none writes an error to the console."""
    faults = {page: [*read["refused"], *read["complaints"]] for page, read in seen.items()}
    assert {page: told for page, told in faults.items() if told} == {}


def test_what_a_reader_presses_obeys_the_policy(site, page):
    """Theme, search, a figure made interactive and its tools, a term's card, a copied line and printing all work."""
    page.goto(f"{site}{CHAPTER}", wait_until="load")
    page.evaluate("window.print = () => { window.printed = true; }")
    theme = page.evaluate("document.documentElement.dataset.mode")
    page.locator(".theme-switch-button").first.click()
    assert page.evaluate("document.documentElement.dataset.mode") != theme
    page.evaluate("document.querySelector('.btn-download-pdf-button').click()")
    assert page.evaluate("window.printed")
    page.keyboard.press("Control+k")
    page.locator("#pst-search-dialog input").fill("flash attention")
    expect(page.locator("#pst-search-dialog .search-list a").first).to_be_visible()
    page.keyboard.press("Escape")
    box = page.locator(".lab-figure").first
    box.get_by_role("button", name="Explore").click()
    expect(box.locator(".modebar-btn").first).to_be_focused(timeout=20_000)
    box.locator("[data-title='Zoom in']").click()
    page.locator("article a[href*='glossary.html#term-']").first.hover()
    expect(page.locator("#term-card")).to_be_visible()
    assert complaints(page) == []


def test_what_a_reader_fills_in_obeys_the_policy(site, page):
    """A committed prediction, the choices above a table, a slider, tabs and the search of an unknown address work."""
    page.goto(f"{site}{QUESTIONS}")
    question = page.locator("fieldset.question").first
    question.get_by_role("radio").first.check()
    question.get_by_role("button", name="Commit").click()
    expect(page.locator("details.outcome[open]").first).to_be_visible()
    page.goto(f"{site}{ATLAS}")
    page.locator("details.atlas-fold:has(.public-filter) > summary").click()
    page.locator(".public-filter").get_by_label("Words").fill("rtx")
    expect(page.locator(".public-filter output")).to_contain_text("published results")
    page.goto(f"{site}{SLIDER}")
    page.get_by_role("slider").first.press("ArrowLeft")
    expect(page.locator(".lab-controlled .lab-figure").first).to_have_attribute("data-drawn", "yes", timeout=20_000)
    assert complaints(page) == []
    page.goto(f"{site}book/gone/flash-attention.html")
    page.wait_for_function(f"document.baseURI === {site!r}")
    page.get_by_role("button", name="Search").click()
    page.wait_for_selector("#search-results a[href*='flash-attention']")
    assert [text for text in complaints(page) if "404 (Not Found)" not in text] == []


def test_a_breach_is_noticed(site, page):
    """The checks above can fail: a script that was not in the page, and a request of another host, are refused."""
    page.goto(f"{site}search.html")
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { textContent: 'breach = 1' }))"
    )
    page.evaluate("fetch('http://localhost:9/').catch(() => {})")
    refused = "\n".join(complaints(page))
    assert "script-src" in refused
    assert "connect-src" in refused
    assert page.evaluate("typeof breach") == "undefined"
