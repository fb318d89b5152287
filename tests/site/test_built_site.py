"""The built site as a reader's browser meets it: from disk and from a local server, without a network."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

import pytest
from crawl import visit
from playwright.sync_api import Page

from handbook import claims
from handbook.directives.trials import MISLEADING

ALL_DRAWN = '() => document.readyState === "complete"'
CHAPTER, INSTRUMENT = "book/foundations/anatomy.html", "book/planner.html"
REGISTER = "book/appendix/claims-on-trial.html"
FROM_DISK = ("404.html", "genindex.html", "index.html", "search.html", CHAPTER, INSTRUMENT, REGISTER)
"""Pages that differ in kind, each opened from disk too; `test_links` has the addresses of all others."""


@pytest.fixture(scope="session", params=["from disk", "from a server"])
def visits(request, built_book, browser) -> dict[str, dict]:
    """What a phone shows of every page from a server, and of some from disk."""
    if request.param == "from a server":
        return request.getfixturevalue("phone")
    return {page: visit(browser, f"{built_book.as_uri()}/", page, "phone") for page in FROM_DISK}


@pytest.fixture
def contents(visits) -> dict[str, dict]:
    """The figures and formulas of each page."""
    return {page: seen["content"] for page, seen in visits.items()}


def test_no_page_asks_another_host_for_anything(visits):
    """The book reads without a network: each request of each page stays inside the site's folder."""
    assert {page: seen["foreign"] for page, seen in visits.items() if seen["foreign"]} == {}


def test_no_page_complains_on_the_console(visits):
    """No script fails, no file is missing: the browser's console stays free of errors and warnings."""
    assert {page: seen["complaints"] for page, seen in visits.items() if seen["complaints"]} == {}


def test_every_captioned_figure_is_drawn_and_described(contents):
    """Whoever reads a caption finds its picture above it, and a text alternative for it."""
    figures = [(page, figure) for page, content in contents.items() for figure in content["figures"]]
    assert any(figure["plot"] for _, figure in figures)
    assert [place for place in figures if not all(place[1][key] for key in ("drawn", "caption", "alt"))] == []


def test_every_formula_is_typeset(contents):
    """A formula reaches the reader as mathematics, not as its source."""
    assert sum(content["math"] for content in contents.values()) > 0
    assert {page: seen for page, seen in contents.items() if seen["math"] != seen["typeset"] or seen["sources"]} == {}


def test_no_page_scrolls_sideways_on_a_phone(contents):
    """At 390 pixels width the page fits; wide tables, code and diagrams scroll within their own frames."""
    assert {page: content["overflow"] for page, content in contents.items() if content["overflow"] > 0} == {}


FOR_OTHER_PROGRAMS = {"objects.inv", "searchindex.js", ".buildinfo"}
"""What Sphinx reads at its next build, or at the build of another book."""


def test_every_file_of_the_site_is_asked_for(built_book):
    """No script, font or picture lies in the site that no page, sheet or script names; figures are named by digest."""
    files = {path.relative_to(built_book).as_posix(): path for path in built_book.rglob("*") if path.is_file()}
    wanted = {name for name in files if name.endswith(".html") and not name.startswith(("_static", "_sources"))}
    texts = list(wanted)
    while texts:
        text = files[texts.pop()].read_text(encoding="utf-8")
        named = {name for name in files.keys() - wanted if is_named(handle(name), text)}
        texts += [name for name in named if name.endswith((".html", ".css", ".js", ".mjs"))]
        wanted |= named
    assert sorted(files.keys() - wanted - FOR_OTHER_PROGRAMS) == []


def is_named(handle: str, text: str) -> bool:
    """Whether a text has a name that is not the end of a longer one."""
    return handle in text and re.search(rf"(?<![\w.-]){re.escape(handle)}", text) is not None


def handle(name: str) -> str:
    """What a page, sheet or script calls a file: a figure has its digest, a licence the name of what it is for.

    Pyodide's package has its licence in package.json.
    """
    path = PurePosixPath(name)
    if path.name in ("LICENSE", "package.json"):
        return path.parent.name
    return path.stem if path.parent.name == "figures" else path.name.removesuffix(".LICENSE.txt")


def test_no_cell_left_an_error_or_a_warning_on_a_page(parsed):
    """What a cell wrote to stderr is a fault in the book, and no reader meets one."""
    assert [page for page, soup in parsed.items() if soup.select(".stderr, .traceback")] == []


def test_no_result_is_a_bare_python_value(parsed):
    """A cell prints a sentence, or shows a table or a figure; a tuple or an object's name is no result."""
    assert [page for page, soup in parsed.items() if soup.select(".output.text_plain")] == []


def test_switching_to_dark_redraws_the_figures(home, open_page):
    """Text in a figure takes the colour of the page's text at once when the reader changes the theme."""
    page = open_page(home + CHAPTER, color_scheme="light")
    page.wait_for_function(ALL_DRAWN)
    ink = "() => getComputedStyle(document.querySelector('.figure-drawing svg text')).fill"
    light = page.evaluate(ink)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(f"before => ({ink})() !== before", arg=light)
    assert page.evaluate(ink) == page.evaluate("getComputedStyle(document.body).color")


def test_diagrams_are_visible_without_javascript(unscripted):
    """A reader who runs no scripts still sees every diagram."""
    places = [(page, place) for page, seen in unscripted.items() for place in seen["diagrams"]]
    assert places
    assert [(page, (width, height)) for page, (width, height) in places if width <= 100 or height <= 30] == []


@pytest.mark.parametrize("word", ["prefill", "quantization", "quantisation"])
def test_search_finds_a_word_of_the_book(home, open_page, word):
    """The search page works, also from disk, and in either spelling."""
    open_page(f"{home}search.html?q={word}").wait_for_selector("#search-results li a")


# --- the register of claims -----------------------------------------------------------------------


@pytest.fixture
def register(home, open_page) -> Page:
    """The register of claims, open in a tab."""
    page = open_page(home + REGISTER)
    page.wait_for_selector(".claims-filter:not([hidden])")
    return page


def shown_claims(page: Page) -> list[str]:
    return page.locator(".claim:visible .claim-side strong").all_inner_texts()


def test_every_claim_is_shown_without_javascript(home, open_page):
    """A reader who runs no scripts sees all rows, and no controls that would do nothing."""
    page = open_page(home + REGISTER, java_script_enabled=False)
    assert shown_claims(page) == [claim.id for claim in claims.claims()]
    assert not page.locator(".claims-filter").is_visible()


def test_choices_narrow_the_claims_down(register):
    """Verdict and section together leave the rows that have both, and no heading without a row."""
    register.get_by_label("Verdict").select_option("outdated")
    register.get_by_label("Section").select_option(label="D: Engines and frameworks")
    expected = [claim.id for claim in claims.claims("D") if claim.verdict == "outdated"]
    assert shown_claims(register) == expected
    assert register.get_by_role("status").inner_text() == f"{len(expected)} of {len(claims.claims())} claims"
    assert [text[:1] for text in register.locator("section:has(.claim) > h2:visible").all_inner_texts()] == ["D"]
    register.get_by_role("button", name="Show all").click()
    register.wait_for_function(f"document.querySelectorAll('.claim:not([hidden])').length === {len(claims.claims())}")


def test_the_choices_work_by_keyboard(register):
    """From the first choice, Tab reaches the words, and what is typed there narrows the rows."""
    register.get_by_label("Verdict").focus()
    for _ in range(4):
        register.keyboard.press("Tab")
    register.keyboard.type("k-means")
    assert shown_claims(register) == ["C01"]


def test_a_link_finds_its_claim_whatever_was_chosen(register):
    """Following a link to a row that was hidden shows it again, unfolded."""
    register.get_by_label("Verdict").select_option("holds")
    assert "A01" not in shown_claims(register)
    register.evaluate("location.hash = '#claim-a01'")
    register.wait_for_function("!document.getElementById('claim-a01').closest('.claim').hidden")
    assert register.locator("#claim-a01").is_visible()
    assert register.locator("#claim-a01 .claim-facts").is_visible()


def test_a_row_is_a_line_until_it_is_opened(register):
    """Folded, a row has the claim, and its correction where the claim alone would mislead; a click shows the rest."""
    for claim in (claims.claim("A01"), claims.claim("A04")):
        row = register.locator(f"#claim-{claim.id.lower()}")
        assert claim.text in row.inner_text()
        assert (claim.short in row.inner_text()) is (claim.verdict in MISLEADING)
        assert not row.locator(".claim-facts").is_visible()
        row.locator("summary").click()
        assert claim.short in row.inner_text()
        assert row.locator(".claim-facts").is_visible()


def test_a_line_on_a_page_links_to_the_row_of_its_claim(parsed):
    """The line says claim, verdict and correction; unfolded, it names what decided and leads to the register."""
    page = parsed["book/workflow/pipeline.html"]
    fold = next(fold for fold in page.select("details.on-trial") if fold.summary.strong.get_text() == "B09")
    assert fold.select_one("summary .verdict").get_text() == "holds under conditions"
    assert claims.claim("B09").text in fold.select_one("summary .claim-text").get_text()
    assert not fold.summary.find("a")
    assert fold.find("a", href="../appendix/claims-on-trial.html#claim-b09")


# --- the hardware atlas ---------------------------------------------------------------------------

ATLAS = "book/appendix/hardware-atlas.html"
CHOICES, PUBLIC = ".atlas-filter:not(.public-filter)", ".public-filter"
ROWS = f"{CHOICES} + .atlas-frame tbody tr"
FOLD = "details.atlas-fold:has({}) > summary"


def test_every_measurement_of_the_atlas_is_shown_without_javascript(home, open_page):
    """A reader who runs no scripts opens the fold and sees all rows, and no controls that would do nothing."""
    page = open_page(home + ATLAS, java_script_enabled=False)
    assert page.locator(f"{ROWS}:visible").count() == 0
    page.locator(FOLD.format(CHOICES)).click()
    assert page.locator(f"{ROWS}:visible").count() == page.locator(ROWS).count() > 0
    assert not page.locator(".atlas-filter:visible").count()


def test_choices_narrow_the_atlas_down(home, open_page):
    """What is chosen stays, the line beneath says how many remain and how far off they are, and all come back."""
    page = open_page(home + ATLAS)
    page.locator(FOLD.format(CHOICES)).click()
    page.wait_for_selector(f"{CHOICES}:not([hidden])")
    form = page.locator(CHOICES)
    n_rows = page.locator(ROWS).count()
    form.get_by_label("Device").select_option("loopback device")
    shown = page.locator(f"{ROWS}:visible")
    assert {row.get_attribute("data-device") for row in shown.all()} == {"loopback device"}
    status = form.get_by_role("status").inner_text()
    assert status.startswith(f"{shown.count()} of {n_rows} measurements; median error")
    form.get_by_role("button", name="Show all").click()
    page.wait_for_function(f"!document.querySelector('{ROWS}[hidden]')")
    form.get_by_label("Words").fill('speed-points "flash_attn off"')
    assert shown.count() > 0
    assert all("flash_attn off" in row.inner_text() and "speed-points" in row.inner_text() for row in shown.all())
    form.get_by_role("button", name="Show all").click()
    page.wait_for_function(f"!document.querySelector('{ROWS}[hidden]')")


def test_published_rates_are_chosen_by_what_was_measured(home, open_page):
    """A line has several kinds of rates; the line beneath the choices says how many results stand behind the rest."""
    page = open_page(home + ATLAS)
    page.locator(FOLD.format(PUBLIC)).click()
    form, rows = page.locator(PUBLIC), page.locator(f"{PUBLIC} + .atlas-frame tbody tr")
    form.get_by_label("Measured").select_option("deep decode")
    form.get_by_label("Weights").select_option("part in RAM")
    shown = page.locator(f"{PUBLIC} + .atlas-frame tbody tr:visible")
    assert 0 < shown.count() < rows.count()
    assert all("@ d" in row.locator("td").nth(4).inner_text() for row in shown.all())
    behind = sum(int(row.get_attribute("data-results")) for row in shown.all())
    status = f"{shown.count()} of {rows.count()} combinations; published results: {behind}"
    assert form.get_by_role("status").inner_text() == status
    assert page.locator(f"{ROWS}[hidden]").count() == 0
