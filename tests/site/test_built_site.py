"""The built site as a reader's browser meets it: from disk and from a local server, without a network."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import pytest
from bs4 import BeautifulSoup
from playwright.sync_api import TimeoutError

from handbook import claims

READ = """
async () => {
  const wide = innerWidth;
  const isTypeset = (formula) => {
    const ink = formula.querySelector("svg[aria-hidden] path")?.getBoundingClientRect();
    const closed = formula.checkVisibility() === false;
    return (closed || ink?.width > 0) && formula.querySelector("math")?.textContent.trim() !== "";
  };
  const texts = () => {
    const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
    const found = [];
    while (walker.nextNode()) {
      const node = walker.currentNode;
      if (!node.parentElement.closest("pre, code, script, style")) found.push(node.data);
    }
    return found;
  };
  const figures = [...document.querySelectorAll("main figure")].map((figure) => {
    const plot = figure.querySelector(".lab-figure");
    const image = figure.querySelector("img");
    return {
      id: figure.id,
      caption: figure.querySelector("figcaption")?.textContent.trim() ?? "",
      drawn: plot ? plot.querySelectorAll(".figure-drawing svg:has(text)").length === 2
           : image ? image.complete && image.naturalWidth > 0
           : !!figure.querySelector(".diagram svg, table, pre"),
      plot: !!plot,
      alt: !!figure.querySelector("[role=img], [role=group], svg[aria-labelledby], img[alt]:not([alt='']), table"),
    };
  });
  return {
    figures,
    overflow: document.documentElement.scrollWidth - wide,
    math: document.querySelectorAll("main .math").length,
    typeset: [...document.querySelectorAll("main .math")].filter(isTypeset).length,
    sources: texts().filter((text) => /\\\\(\\(|\\[|[a-z]+\\{|frac|sum|text|cdot|times)/.test(text)),
  };
}
"""
ALL_DRAWN = '() => document.readyState === "complete"'


@dataclass
class Visit:
    """What happened when one page was opened, and what then stood on it."""

    page: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    figures: list[dict] = field(default_factory=list)
    overflow: int = 0
    math: int = 0
    typeset: int = 0
    sources: list[str] = field(default_factory=list)


@pytest.fixture(scope="session")
def pages(built_book) -> list[str]:
    """Every page of the site, as paths relative to its root."""
    paths = (path.relative_to(built_book) for path in built_book.rglob("*.html"))
    return sorted(path.as_posix() for path in paths if path.parts[0] not in ("_static", "_sources"))


@pytest.fixture(scope="session")
def visits(home, pages, browser) -> list[Visit]:
    """One visit to each page on a phone's narrow screen, with every request and complaint noted."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    visits = [visit(context, home, page) for page in pages]
    context.close()
    return visits


def visit(context, home: str, path: str) -> Visit:
    result, pending = Visit(path), set()
    page = context.new_page()
    page.route(lambda url: is_foreign(url, home), lambda route: route.abort())
    page.on("request", lambda request: result.requests.append(request.url))
    page.on("request", lambda request: pending.add(request))
    page.on("requestfinished", lambda request: pending.discard(request))
    page.on("requestfailed", lambda request: pending.discard(request))
    page.on("requestfailed", lambda request: result.complaints.append(f"failed: {request.url}"))
    page.on("console", lambda note: note.type in ("error", "warning") and result.complaints.append(note.text))
    page.on("pageerror", lambda error: result.complaints.append(str(error)))
    page.goto(home + path)
    try:
        page.wait_for_function(ALL_DRAWN, timeout=15_000)
    except TimeoutError:
        result.complaints.append("a formula was not drawn within 15 seconds")
    for key, value in page.evaluate(READ).items():
        setattr(result, key, value)
    result.complaints += [f"unanswered: {request.url}" for request in still_pending(page, pending)]
    page.close()
    return result


def still_pending(page, requests: set, seconds: float = 15) -> set:
    """The requests of a page that have no answer after so long; most pages have theirs when they are read."""
    end = time.monotonic() + seconds
    while requests and time.monotonic() < end:
        page.wait_for_timeout(20)
    return requests


def is_foreign(url: str, home: str) -> bool:
    return not url.startswith((home, "data:", "blob:", "about:"))


def test_no_page_asks_another_host_for_anything(visits, home):
    """The book reads without a network: each request of each page stays inside the site's folder."""
    assert {v.page: foreign for v in visits if (foreign := [u for u in v.requests if is_foreign(u, home)])} == {}


def test_no_page_complains_on_the_console(visits):
    """No script fails, no file is missing: the browser's console stays free of errors and warnings."""
    assert {v.page: v.complaints for v in visits if v.complaints} == {}


def test_every_captioned_figure_is_drawn_and_described(visits):
    """Whoever reads a caption finds its picture above it, and a text alternative for it."""
    figures = [(v.page, figure) for v in visits for figure in v.figures]
    assert any(figure["plot"] for _, figure in figures)
    assert [(p, f) for p, f in figures if not (f["drawn"] and f["caption"] and f["alt"])] == []


def test_every_formula_is_typeset(visits):
    """A formula reaches the reader as mathematics, not as its source."""
    assert sum(v.math for v in visits) > 0
    assert [(v.page, v.math, v.typeset) for v in visits if v.math != v.typeset] == []
    assert {v.page: v.sources for v in visits if v.sources} == {}


def test_no_page_scrolls_sideways_on_a_phone(visits):
    """At 390 pixels width the page fits; wide tables, code and diagrams scroll within their own frames."""
    assert {v.page: v.overflow for v in visits if v.overflow > 0} == {}


FOR_OTHER_PROGRAMS = {"objects.inv", "searchindex.js", ".buildinfo"}
"""What Sphinx reads at its next build, or at the build of another book."""


def test_every_file_of_the_site_is_asked_for(built_book, pages):
    """No script, font or picture lies in the site that no page, sheet or script names; figures are named by digest."""
    files = {path.relative_to(built_book).as_posix(): path for path in built_book.rglob("*") if path.is_file()}
    texts, wanted = [*pages], set(pages)
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


def test_no_cell_left_an_error_or_a_warning_on_a_page(built_book, pages):
    """What a cell wrote to stderr is a fault in the book, and no reader meets one."""
    stained = [
        page
        for page in pages
        if BeautifulSoup((built_book / page).read_text(encoding="utf-8"), "html.parser").select(".stderr, .traceback")
    ]
    assert stained == []


def test_no_result_is_a_bare_python_value(built_book, pages):
    """A cell prints a sentence, or shows a table or a figure; a tuple or an object's name is no result."""
    bare = [
        page
        for page in pages
        if BeautifulSoup((built_book / page).read_text(encoding="utf-8"), "html.parser").select(".output.text_plain")
    ]
    assert bare == []


def test_switching_to_dark_redraws_the_figures(home, visits, browser):
    """Text in a figure takes the colour of the page's text at once when the reader changes the theme."""
    page = browser.new_page(color_scheme="light")
    page.goto(home + next(v.page for v in visits if any(f["plot"] for f in v.figures)))
    page.wait_for_function(ALL_DRAWN)
    ink = "() => getComputedStyle(document.querySelector('.figure-drawing svg text')).fill"
    light = page.evaluate(ink)
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(f"before => ({ink})() !== before", arg=light)
    assert page.evaluate(ink) == page.evaluate("getComputedStyle(document.body).color")
    page.close()


def test_diagrams_are_visible_without_javascript(home, visits, browser):
    """A reader who runs no scripts still sees every diagram."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    for name in [v.page for v in visits if v.figures and v.page != "index.html"]:  # which leads on to the first page
        page.goto(home + name)
        boxes = [diagram.bounding_box() for diagram in page.locator(".diagram svg").all()]
        assert all(box and box["width"] > 100 and box["height"] > 30 for box in boxes), name
    context.close()


@pytest.mark.parametrize("word", ["prefill", "quantization", "quantisation"])
def test_search_finds_a_word_of_the_book(home, browser, word):
    """The search page works, also from disk, and in either spelling."""
    page = browser.new_page()
    complaints: list[str] = []
    page.on("console", lambda note: note.type == "error" and complaints.append(note.text))
    page.goto(f"{home}search.html?q={word}")
    page.wait_for_selector("#search-results li a")
    assert complaints == []
    page.close()


# --- the register of claims -----------------------------------------------------------------------

REGISTER = "book/appendix/claims-on-trial.html"


@pytest.fixture
def register(home, browser) -> Iterator:
    """The register of claims, open in a tab; a script that fails fails the test."""
    page = browser.new_page()
    failures: list[str] = []
    page.on("pageerror", lambda error: failures.append(str(error)))
    page.goto(home + REGISTER)
    page.wait_for_selector(".claims-filter:not([hidden])")
    yield page
    assert failures == []
    page.close()


def shown_claims(page) -> list[str]:
    rows = page.locator(".claim:visible .claim-side strong")
    return rows.all_inner_texts()


def test_every_claim_is_shown_without_javascript(home, browser):
    """A reader who runs no scripts sees all rows, and no controls that would do nothing."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(home + REGISTER)
    assert shown_claims(page) == [one.id for one in claims.claims()]
    assert not page.locator(".claims-filter").is_visible()
    context.close()


def test_choices_narrow_the_claims_down(register):
    """Verdict and section together leave the rows that have both, and no heading without a row."""
    register.get_by_label("Verdict").select_option("outdated")
    register.get_by_label("Section").select_option(label="D: Engines and frameworks")
    expected = [one.id for one in claims.claims("D") if one.verdict == "outdated"]
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
    """Following a link to a row that was hidden shows it again."""
    register.get_by_label("Verdict").select_option("holds")
    assert "A01" not in shown_claims(register)
    register.evaluate("location.hash = '#claim-a01'")
    register.wait_for_function("!document.getElementById('claim-a01').closest('.claim').hidden")
    assert register.locator("#claim-a01").is_visible()


def test_a_line_on_a_page_links_to_the_row_of_its_claim(built_book):
    """The line says claim, verdict and correction; unfolded, it names what decided and leads to the register."""
    page = BeautifulSoup((built_book / "book/workflow/pipeline.html").read_text(encoding="utf-8"), "html.parser")
    fold = next(fold for fold in page.select("details.on-trial") if fold.summary.strong.get_text() == "B09")
    assert fold.select_one("summary .verdict").get_text() == "holds under conditions"
    assert claims.claim("B09").text in fold.select_one("summary .claim-text").get_text()
    assert not fold.summary.find("a")
    assert fold.find("a", href="../appendix/claims-on-trial.html#claim-b09")


# --- the hardware atlas ---------------------------------------------------------------------------

ATLAS = "book/community/hardware-atlas.html"
ROWS = ".atlas-filter + .atlas-frame tbody tr"


def test_every_measurement_of_the_atlas_is_shown_without_javascript(home, browser):
    """A reader who runs no scripts sees all rows, and no controls that would do nothing."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(home + ATLAS)
    assert page.locator(f"{ROWS}:visible").count() == page.locator(ROWS).count() > 0
    assert not page.locator(".atlas-filter").is_visible()
    context.close()


def test_choices_narrow_the_atlas_down(home, browser):
    """What is chosen stays, the line beneath says how many remain and how far off they are, and all come back."""
    page = browser.new_page()
    page.goto(home + ATLAS)
    page.wait_for_selector(".atlas-filter:not([hidden])")
    n_rows = page.locator(ROWS).count()
    page.locator(".atlas-filter").get_by_label("Device").select_option("loopback device")
    shown = page.locator(f"{ROWS}:visible")
    assert {row.get_attribute("data-device") for row in shown.all()} == {"loopback device"}
    status = page.locator(".atlas-filter").get_by_role("status").inner_text()
    assert status.startswith(f"{shown.count()} of {n_rows} measurements; median error")
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function(f"!document.querySelector('{ROWS}[hidden]')")
    page.get_by_label("Words").fill('speed-points "flash_attn off"')
    assert shown.count() > 0
    assert all("flash_attn off" in row.inner_text() and "speed-points" in row.inner_text() for row in shown.all())
    page.get_by_role("button", name="Show all").click()
    page.wait_for_function(f"!document.querySelector('{ROWS}[hidden]')")
    page.close()
