"""What leads a reader to a page: the search, the cards of terms, and what the site says of itself to others."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe import violations
from bs4 import BeautifulSoup
from playwright.sync_api import Page
from servers import Quiet, serving

LARGEST_INDEX_BYTES = 275_000
DIALOG = "#pst-search-dialog"
RESULTS = f"{DIALOG} .search-list a"
CHAPTER = "book/workflow/pipeline.html"


def content(soup: BeautifulSoup, name: str) -> str:
    tag = soup.find("meta", attrs={"name": name}) or soup.find("meta", attrs={"property": name})
    return tag["content"] if tag else ""


# --- what a page says of itself -----------------------------------------------------------------------


def test_every_page_is_described_in_its_own_words(soups):
    """Each page has one description, of at most 160 characters, that is no other page's and stands on the page."""
    about = {page: content(soup, "description") for page, soup in soups.items()}
    assert {page: text for page, text in about.items() if not 40 <= len(text) <= 160} == {}
    assert [text for text, n in Counter(about.values()).items() if n > 1] == []
    plain = {page: " ".join(soup.article.get_text().split()) for page, soup in soups.items()}
    assert {page: text for page, text in about.items() if text.rstrip("…")[:40] not in plain[page]} == {}


def test_every_page_has_a_title_of_its_own(soups):
    """In a row of tabs, or in a list of results, no two pages look alike; above the contents stands the book's."""
    titles = Counter(soup.title.get_text() for soup in soups.values())
    assert [title for title, n in titles.items() if n > 1] == []
    assert soups["book/index.html"].title.get_text() == "Local LLM Inference"
    assert {soup.select_one(".logo__title").get_text() for soup in soups.values()} == {"Local LLM Inference"}


def test_a_shared_link_shows_the_books_card(built_book, soups, browser):
    """Every page names the same picture, 1200 by 630 pixels, which lies in the site."""
    images = {page: content(soup, "og:image") for page, soup in soups.items()}
    places = {(built_book / page).parent.joinpath(image).resolve() for page, image in images.items()}
    assert len(places) == 1
    card = places.pop()
    assert card.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [int.from_bytes(card.read_bytes()[at : at + 4], "big") for at in (16, 20)] == [1200, 630]
    assert {content(soup, "og:title") for soup in soups.values()} >= {"Local LLM Inference", "Does it fit?"}


def test_a_site_without_an_address_claims_none(built_book, soups):
    """The pages of a copy on disk name no canonical address and come without a sitemap."""
    assert [page for page, soup in soups.items() if soup.find("link", rel="canonical") or content(soup, "og:url")] == []
    assert not (built_book / "sitemap.xml").exists()


def test_the_sites_own_address_is_a_page_that_leads_on(built_book, soups, open_page):
    """Without JavaScript too the root opens the front page, whose title, description and card it has."""
    root = BeautifulSoup((built_book / "index.html").read_text(encoding="utf-8"), "html.parser")
    front = soups["book/index.html"]
    for said in (lambda soup: soup.html["lang"], lambda soup: soup.title, lambda soup: content(soup, "description")):
        assert said(root) == said(front)
    assert (built_book / content(root, "og:image")).is_file()
    assert [link["href"] for link in root.find_all("a")] == ["book/index.html"]
    page = open_page("index.html", java_script_enabled=False)
    page.wait_for_url("**/book/index.html")


# --- an address without a page ------------------------------------------------------------------------


class SomewhereBelow(Quiet):
    """Serves the site under /some/folder/ and answers every unknown address with its 404 page."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix("/some/folder"))

    def do_GET(self) -> None:
        if not self.path.startswith("/some/folder/") or not Path(self.translate_path(self.path)).exists():
            body = (Path(self.directory) / "404.html").read_bytes()
            self.send_response(404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body)
        else:
            super().do_GET()

    def do_HEAD(self) -> None:
        if self.path.startswith("/some/folder/"):
            super().do_HEAD()
        else:
            self.send_error(404)


@pytest.fixture(scope="module")
def below(built_book) -> Iterator[str]:
    """Address of the site's root on a server that has it in a folder."""
    with serving(built_book, SomewhereBelow) as address:
        yield f"{address}some/folder/"


@pytest.mark.parametrize("address", ["gone.html", "book/workflow/gone/deeper/flash-attention.html"])
def test_an_unknown_address_leads_back_into_the_book(below, open_page, address):
    """At any depth the page for unknown addresses links to the front page, and searches for the address's words."""
    page = open_page(below + address)
    page.wait_for_function(f"document.baseURI === {json.dumps(below)}")
    assert page.get_by_role("link", name="the front page").evaluate("link => link.href") == f"{below}book/index.html"
    page.get_by_role("button", name="Search").click()
    page.wait_for_url(f"{below}search.html?q=*")
    if "flash" in address:
        page.wait_for_selector("#search-results a[href*='flash-attention']")


# --- the search ---------------------------------------------------------------------------------------


def test_what_a_search_loads_is_small(built_book):
    """The index is loaded by whoever searches, and stays below 275 KB as a server sends it."""
    index = (built_book / "_static" / "search-index.js").read_bytes()
    assert len(gzip.compress(index)) < LARGEST_INDEX_BYTES


@pytest.fixture
def dialog(open_page) -> Page:
    """A chapter opened from disk, its search dialog open."""
    page = open_page(CHAPTER)
    assert page.evaluate("window.handbookSearchIndex") is None
    page.keyboard.press("Control+k")
    page.wait_for_selector(f"{DIALOG}[open]")
    return page


def results_for(page, words: str) -> list[str]:
    """The addresses of the results, best first, from the site's root."""
    page.locator(f"{DIALOG} input").fill("")
    page.locator(f"{DIALOG} input").press_sequentially(words)
    page.wait_for_selector(RESULTS)
    page.wait_for_function("words => document.querySelector('.search-list').dataset.query === words", arg=words)
    return [link.get_attribute("href").removeprefix("../../") for link in page.locator(RESULTS).all()]


@pytest.mark.parametrize(
    ("words", "first"),
    [
        ("does it fit 8 GB", "book/workflow/does-it-fit.html"),
        ("quantisation", "book/optimization/quantization.html"),
        ("flash attention", "book/optimization/flash-attention.html"),
        ("why is it slow", "book/why-is-it-slow.html"),
        ("prefill", "book/appendix/glossary.html#term-prefill"),
        ("n_ctx", "book/optimization/parameter-guide.html#n-ctx"),
    ],
)
def test_the_page_that_answers_comes_among_the_first_two(dialog, words, first):
    """While one types, also from disk, the page or the term that has the words in its name leads the list."""
    places = results_for(dialog, words)
    assert first in places[:2]
    assert first == places[0] or words in ("quantisation", "flash attention", "n_ctx")


ANSWERS = {
    # what readers typed, and the page that answers them
    "out of memory": ("it-does-not-fit", "log-reader"),
    "n_gpu_layers": ("parameter-guide", "does-it-fit", "planner"),
    "kv cache quantization": ("flash-attention",),
    "moe": ("experts-in-ram",),
    "temperature": ("sampling-cost",),
    "context too long": ("it-does-not-fit", "log-reader"),
    "tokens per second rtx 4060": ("why-is-it-slow", "eight-gb-card", "planner", "which-model"),
    "speculative decoding": ("speculation",),
    "docker": ("one-request",),
    "vram calculator": ("planner",),
    "7900 xtx": ("planner",),
    "crash": ("log-reader",),
    # ten more
    "rtx 3060": ("planner", "which-model"),
    "best model": ("which-model",),
    "llama 3.1 8b": ("planner", "does-it-fit"),
    "lm studio": ("ollama",),
    "num_ctx": ("ollama",),
    "llama-bench": ("your-numbers",),
    "two gpus": ("several-cards",),
    "imatrix": ("quantized-files",),
    "cudaMalloc failed": ("log-reader", "it-does-not-fit"),
    "draft model": ("speculation",),
    "sliding window": ("windows-and-states",),
    "coding agent": ("coding-agents",),
}
"""Words -> the pages, without their folder, of which one stands among the first three places."""


def test_what_readers_type_leads_to_a_page_that_answers(dialog):
    """Tools and answers come first: among three places is one that helps, and the first is never the bibliography."""
    results = {words: results_for(dialog, words) for words in ANSWERS}
    pages = {words: [place.partition("#")[0] for place in places] for words, places in results.items()}
    first = {words: [Path(page).stem for page in listed[:3]] for words, listed in pages.items()}
    assert {words: names for words, names in first.items() if not set(names) & set(ANSWERS[words])} == {}
    last = "book/appendix/bibliography.html"
    assert {words: names for words, names in pages.items() if names != sorted(names, key=last.__eq__)} == {}


def test_a_short_word_is_found_whole(dialog):
    """Three letters are a word of their own, and no beginning of others: `mac` does not mean `machine`."""
    results_for(dialog, "mac")
    marked = dialog.locator(f"{RESULTS} mark").all_inner_texts()
    assert marked
    assert {text.lower() for text in marked} <= {"mac", "macs"}


def test_a_result_shows_words_of_the_article_only(dialog, soups):
    """What stands under a result is in that page's article: no word of the sidebar, the buttons or the footer."""
    results_for(dialog, "memory bandwidth")
    for link in dialog.locator(RESULTS).all()[:6]:
        page = link.get_attribute("href").removeprefix("../../").partition("#")[0]
        article = "".join(soups[page].article.get_text().replace("·", " ").split())
        snippet = link.locator(".search-snippet").inner_text().replace("·", " ").strip("… ")
        assert "".join(snippet.split()[1:4]) in article


def test_a_result_leads_to_a_place_on_its_page(dialog, soups):
    """Each link names a section, a term or a claim that is there, although most anchors are not in the index."""
    places = [
        place for words in ("n_ctx", "prefill", "claim A01", "what to do") for place in results_for(dialog, words)
    ]
    places = [place.partition("#") for place in places]
    assert [anchor for page, _, anchor in places if anchor and not soups[page].find(id=anchor)] == []
    assert {"n-ctx", "term-prefill", "claim-a01", "what-to-do"} <= {anchor for _, _, anchor in places}


def test_the_search_works_by_keyboard(dialog):
    """The arrows go to the results and back, the number of results is announced, Enter follows one, Escape closes."""
    results_for(dialog, "flash attention")
    assert dialog.get_by_role("status").filter(has_text="best first").count() == 1
    press(dialog, "ArrowDown", "ArrowDown")
    focused = "document.activeElement === document.querySelectorAll('.search-list a')[1]"
    assert dialog.evaluate(focused)
    press(dialog, "ArrowUp", "ArrowUp")
    assert dialog.evaluate("document.activeElement.matches('#pst-search-dialog input')")
    press(dialog, "ArrowDown", "Escape")
    dialog.wait_for_selector(f"{DIALOG}:not([open])", state="attached")
    dialog.keyboard.press("Control+k")
    results_for(dialog, "does it fit")
    dialog.keyboard.press("Enter")
    dialog.wait_for_url("**/does-it-fit.html")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_a_search_for_nothing_known_says_so(dialog):
    """A reader learns that the book has no such word, instead of an empty list."""
    dialog.locator(f"{DIALOG} input").fill("xyzzyx")
    dialog.wait_for_function("document.querySelector('.search-status').textContent === 'Nothing found for “xyzzyx”.'")
    assert dialog.locator(RESULTS).count() == 0


def test_the_open_search_has_no_barrier(dialog):
    """axe-core finds nothing to complain about in the open dialog with results, light and dark."""
    results_for(dialog, "KV cache")
    assert violations(dialog) == []


# --- cards of terms -----------------------------------------------------------------------------------

TERM = "article a[href*='#term-prefill']"
CARD = "#term-card"


@pytest.fixture
def chapter(open_page) -> Page:
    """A chapter opened from disk, in which terms are linked."""
    return open_page(CHAPTER)


def test_the_mouse_on_a_term_shows_its_definition(chapter, soups):
    """The card says what the glossary says, stays while the mouse is on it, and goes when the mouse leaves."""
    link = chapter.locator(TERM).first
    link.scroll_into_view_if_needed()
    link.hover()
    chapter.wait_for_selector(f"{CARD}:visible")
    entry = soups["book/appendix/glossary.html"].select_one("#term-prefill").find_next("dd")
    definition = " ".join(entry.get_text().split())
    text = chapter.locator(f"{CARD} p").inner_text()
    assert text
    assert definition.startswith(text.rstrip("…"))
    chapter.locator(CARD).hover()
    chapter.wait_for_timeout(400)
    assert chapter.locator(CARD).is_visible()
    chapter.mouse.move(2, 2)
    chapter.wait_for_selector(CARD, state="hidden")


def test_the_keyboard_reaches_the_card_and_escape_closes_it(chapter):
    """Focus shows the card and names it as the link's description; Escape closes it and the focus stays."""
    chapter.keyboard.press("Tab")
    chapter.locator(TERM).first.focus()
    chapter.wait_for_selector(f"{CARD}:visible")
    assert chapter.evaluate("document.activeElement.getAttribute('aria-describedby')") == "term-card"
    assert violations(chapter) == []
    chapter.keyboard.press("Escape")
    assert not chapter.locator(CARD).is_visible()
    assert chapter.evaluate("document.activeElement.matches(\"a[href*='#term-']\")")


def test_a_tap_follows_the_link(open_page):
    """On a touch screen a term is a link as ever; no card is in the way."""
    page = open_page(CHAPTER, has_touch=True, viewport={"width": 390, "height": 844})
    page.locator(TERM).first.tap()
    page.wait_for_url("**/glossary.html#term-prefill*")
