"""The four instruments one after another in one window: each answers, one reads another's file, nothing leaves.

Two of them share a page, one of them in a fold.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from instrument_page import STARTING_MS, told, watched_page
from playwright.sync_api import Page, expect

LOG = Path(__file__).parents[1] / "data" / "logs" / "server-slots.log"
SMALL_RUN = {"depths": "0, 48", "n_prompt": "8", "n_gen": "4", "repeats": "2", "n_threads": "1"}
PAGES = {"browser-bench": "your-numbers"}
"""Instrument -> its page, where that has another name."""
OPEN_FOLDS = "document.querySelectorAll('.instrument-fold').forEach((fold) => (fold.open = true))"
KEPT = "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])"


@pytest.fixture
def window(browser, site) -> Iterator[Page]:
    """A window that notes every address that its pages ask for, also in their workers, and every error."""
    with watched_page(browser, f"{site}book/planner.html", accept_downloads=True) as page:
        yield page


def opened(page: Page, site: str, name: str) -> None:
    """Open another instrument in the same window, and wait for its controls."""
    page.goto(f"{site}book/{name}.html")
    page.wait_for_selector(".instrument fieldset:not([disabled])")


def measured(page: Page, folder: Path) -> Path:
    """The file that is saved after a small run."""
    page.locator(".instrument-fold > summary").click()
    for name, value in SMALL_RUN.items():
        page.locator(f"[name={name}]").fill(value)
    page.get_by_role("button", name="Start").click()
    with page.expect_download() as saved:
        page.locator("[data-instrument=browser-bench]").get_by_role("button", name="Save").click()
    path = folder / saved.value.suggested_filename
    saved.value.save_as(path)
    return path


def test_nothing_leaves_the_pages(window, site, tmp_path):
    """A plan, a report, a run and its file beside the atlas: only the site is asked, and nothing of it is stored."""
    assert told(window, lambda: window.locator("[name=n_ctx]").fill("4096"))["state"] == "yes"
    opened(window, site, "log-reader")
    log = LOG.read_text(encoding="utf-8")
    assert told(window, lambda: window.locator("[name=log]").fill(log))["data"]["findings"]
    opened(window, site, "your-numbers")
    path = measured(window, tmp_path)
    results = told(window, lambda: window.locator("[type=file]").set_input_files([path]))["data"]["read"]["results"]
    assert len(results) == len(("prefill", "decode")) * len(SMALL_RUN["depths"].split(","))
    assert [url for url in window.asked if not url.startswith((site, f"blob:{site}"))] == []
    assert window.errors == []
    kept = window.evaluate(KEPT)
    assert "llama" not in kept


def test_a_link_holds_the_questions_of_both_instruments_of_a_page(window, site):
    """One does not take away what the other asked; whoever opens the link finds both, and the fold open."""
    opened(window, site, "your-numbers")
    window.locator(".instrument-fold > summary").click()
    window.locator("[name=depths]").fill("0, 48")
    plan = window.locator("[data-instrument=browser-bench] .instrument-answer")
    expect(plan).to_contain_text("48 tokens", timeout=STARTING_MS)
    told(window, lambda: window.locator("select[name=card]").select_option("rtx-4090"))
    assert "depths=0%2C+48" in window.url
    assert "card=rtx-4090" in window.url
    window.goto(window.url.replace("+48", "+32"))
    expect(plan).to_contain_text("32 tokens", timeout=STARTING_MS)
    expect(window.locator("[name=depths]")).to_be_visible()
    assert window.locator("select[name=card]").input_value() == "rtx-4090"
    assert window.errors == []


@pytest.mark.parametrize("name", ["planner", "log-reader", "your-numbers"])
def test_what_a_page_shows_at_first_can_be_saved(window, site, name):
    """Without another touch: the press of the button asks the question of the form before it saves."""
    opened(window, site, name)
    window.evaluate("document.querySelectorAll('.instrument details').forEach((fold) => (fold.open = true))")
    with window.expect_download() as saved:
        window.get_by_role("button", name="Save").first.click()
    assert json.loads(saved.value.path().read_text(encoding="utf-8"))
    assert window.errors == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("planner", "-c 8192"),
        ("log-reader", "It is slow: 3 of 7 layers"),
        ("browser-bench", "A run takes 30 samples on the CPU"),
        ("your-numbers", "xeon-2c/tune-n_threads"),
    ],
)
def test_from_disk_a_page_says_what_it_needs(open_page, name, shown):
    """It names `make serve` above the answer to its default question, and has no control that would do nothing."""
    page = open_page(f"book/{PAGES.get(name, name)}.html")
    page.evaluate(OPEN_FOLDS)
    expect(page.locator(f"[data-instrument={name}] .instrument-status")).to_contain_text("make serve")
    assert shown in page.locator(f"[data-instrument={name}] .instrument-answer").inner_text()
    assert page.locator(".instrument fieldset:not([disabled])").count() == 0
    assert page.locator(".instrument :is(button, input, select, textarea):enabled").count() == 0
