"""What the search, the descriptions and the cards of terms take from a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from docutils import nodes
from docutils.utils import new_document
from sphinx.errors import ExtensionError

from handbook.delivery import findable, page_texts, search_index, term_cards
from handbook.delivery.page_texts import PageTexts, Section


def paragraph(text: str) -> nodes.paragraph:
    return nodes.paragraph(text, text)


def test_the_addresses_of_the_bibliography_are_not_searched():
    """An entry is found by its words; another link's words are read."""
    address = "https://example.org/a"
    entry = nodes.paragraph("", "", nodes.Text("1 A page. Somebody, 2026. URL: "))
    entry += [nodes.reference("", address, refuri=address), nodes.Text(". See ")]
    entry += nodes.reference("", "b", refuri="b.html")
    page = nodes.section("", nodes.title("", "Bibliography"), entry, ids=["bibliography"])
    document = new_document("a page")
    document += page
    assert page_texts.texts_of(document).sections[0].text == "1 A page. Somebody, 2026. See b"


@pytest.fixture
def doctree() -> nodes.document:
    """A page with a box, a section with code and a formula in it, an exercise without a title, and a term."""
    document = new_document("a page")
    page = nodes.section(ids=["cold-start"])
    page += nodes.title("", "Cold start")
    short = paragraph("The first answer waits for the disk and the loader.")
    page += nodes.admonition("", nodes.title("", "In short"), short)
    below = nodes.section(ids=["what-to-do"])
    below += nodes.title("", "What to do")
    formula = nodes.math(r"\frac{a}{b}", r"\frac{a}{b}")
    below += nodes.paragraph("", "", nodes.Text("Take "), formula, *map(nodes.Text, ("twice", " ,", " then go.")))
    below += nodes.container("", nodes.literal_block("x", "x = 1"), classes=["cell_input"])
    below += nodes.section("", paragraph("How long?"))
    entry = nodes.definition_list_item()
    entry += nodes.term("", "mmap", ids=["term-mmap"])
    entry += nodes.definition("", paragraph("A file mapped into memory."))
    below += nodes.definition_list("", entry)
    page += below
    document += page
    return document


def test_the_cells_of_a_table_stand_apart():
    """A result shows where cells end; one without words, or with a number alone, is left out."""
    cells = ("decode", "", "249", "25 ms")
    row = nodes.row("", *[nodes.entry("", *[paragraph(word)] if word else []) for word in cells])
    table = nodes.table("", nodes.title("", "Rates"), nodes.tgroup("", nodes.tbody("", row), cols=3))
    section = nodes.section("", nodes.title("", "Speed"), paragraph("It is slow."), table, ids=["speed"])
    alone = new_document("a page")
    alone += section
    assert page_texts.texts_of(alone).sections[0].text == "It is slow. · decode · 25 ms"
    section += paragraph("So wait.")
    assert page_texts.texts_of(alone).sections[0].text == "It is slow. · decode · 25 ms · So wait."


def test_a_page_is_found_by_its_sections_and_its_terms(doctree):
    """Text counts for the nearest heading above it; program code and TeX count for none; a term stands for itself."""
    assert page_texts.texts_of(doctree) == PageTexts(
        "Cold start",
        [
            Section("cold-start", "Cold start", "The first answer waits for the disk and the loader."),
            Section("what-to-do", "What to do", "Take twice, then go. How long?"),
            Section("term-mmap", "mmap", "A file mapped into memory."),
        ],
        {"term-mmap": ["mmap", "A file mapped into memory."]},
    )


def test_the_description_of_a_page_is_its_own_beginning(doctree):
    """A search engine shows the first paragraph of the page; nobody writes it twice."""
    assert findable.description(doctree) == "The first answer waits for the disk and the loader."


@pytest.mark.parametrize(
    ("text", "most", "short"),
    [
        ("One. Two.", 20, "One. Two."),
        ("One. Two is longer.", 12, "One."),
        ("A sentence of llama.cpp that does not fit", 25, "A sentence of llama.cpp…"),
        ("One, two, three", 10, "One, two…"),
    ],
)
def test_a_short_text_ends_where_a_sentence_or_a_word_ends(text, most, short):
    """A description or a card is never cut inside a word, and a dot inside a name ends no sentence."""
    assert page_texts.shortened(text, most) == short
    assert len(short) <= most


def unpacked(packed: dict) -> str:
    """What search.js makes of a packed text."""
    return re.sub("[\u00a1-\u0bff]", lambda sign: packed["words"][ord(sign[0]) - 0xA1], packed["text"])


def test_the_index_and_the_cards_are_scripts(doctree):
    """A page opened from disk can load both; in the index a section has an anchor where its heading does not say it."""
    pages = {"book/cold": page_texts.texts_of(doctree)}
    name, _, value = search_index.script(pages).partition(" = ")
    assert name == "window.handbookSearchIndex"
    address, title, sections = json.loads(unpacked(json.loads(value.rstrip(";\n"))))["pages"][0]
    assert (address, title) == ("book/cold.html", "Cold start")
    assert sections[1:] == [
        ["What to do", "Take twice, then go. How long?"],
        ["mmap", "A file mapped into memory.", "term-mmap"],
    ]
    assert term_cards.definitions(pages) == {"term-mmap": ["mmap", "A file mapped into memory."]}


def test_a_common_word_is_one_sign_and_no_letter_is_lost():
    """The text comes back whole, also where it has letters that are signs, and more words than there are signs."""
    rare = " ".join(f"word{number}" for number in range(3000))
    text = f"Müller writes the cache, the cache·s size, ¡ ߿ and the cache-size: {rare}."
    packed = search_index.packed(text)
    assert unpacked(packed) == text
    assert " cache" in packed["words"]
    assert " the" not in packed["text"]
    assert len(packed["text"].encode()) < len(text.encode()) / 2
    assert unpacked(search_index.packed("é")) == "é"


# --- what is said of a page to others -----------------------------------------------------------------


def test_the_site_names_an_address_only_where_book_url_gives_one():
    """A copy on somebody's disk claims no address; a published one names it with one slash at the end."""
    assert findable.site_address({}) == ""
    assert findable.site_address({"BOOK_URL": "https://example.org/book"}) == "https://example.org/book/"
    with pytest.raises(ExtensionError, match=r"BOOK_URL is 'example\.org'"):
        findable.site_address({"BOOK_URL": "example.org"})


def test_a_page_without_picture_or_address_names_none():
    """Where no browser drew the card, and no address is known, no tag pretends there is one."""
    tags = findable.tags('A "title"', "About.", "Book", image="", address="")
    assert "og:image" not in tags
    assert "og:url" not in tags
    assert '<meta property="og:title" content="A &quot;title&quot;" />' in tags
    assert 'content="summary_large_image"' in findable.tags("T", "A", "Book", image="card.png")


def test_the_sitemap_lists_every_page_at_the_sites_address():
    """A search engine finds each page by its full address."""
    text = findable.sitemap("https://example.org/b/", ["book/index.html"])
    assert "<url><loc>https://example.org/b/book/index.html</loc></url>" in text


def test_the_page_for_unknown_addresses_knows_the_root_or_looks_for_it():
    """With BOOK_URL its links start there; without, its script climbs from the address that was asked for."""
    known = findable.not_found("Book", "book/index.html", "https://example.org/b/")
    assert '<base href="/b/">' in known
    assert "if (true) return" in known
    unknown = findable.not_found("Book", "book/index.html", "")
    assert '<base href="/">' in unknown
    assert "if (false) return" in unknown
    assert "@" not in known.replace("@media", "")


def test_the_root_says_what_the_site_is_and_leads_on():
    """Whoever follows no redirect has a title and a link; a shared link has its card, and its address where known."""
    page = findable.root("A & B", "What it is.", "book/index.html", "_static/card.png", "A figure.", "")
    parts = (
        '<html lang="en">',
        "<title>A &amp; B</title>",
        '<a href="book/index.html">',
        '<meta name="description" content="What it is." />',
        '<meta property="og:image" content="_static/card.png" />',
        '<meta property="og:image:alt" content="A figure." />',
    )
    assert [part for part in parts if part not in page] == []
    assert [word for word in ("canonical", "@") if word in page] == []
    known = findable.root("A & B", "What it is.", "book/index.html", "", "", "https://example.org/b/")
    assert '<link rel="canonical" href="https://example.org/b/book/index.html">' in known


def test_sections_that_only_point_are_not_searched():
    """A search finds the page that `What's next` or `References` would only name."""
    sections = [
        Section("a", "Measure", "It is fast."),
        Section("b", "What\u2019s next", "See it."),
        Section("c", "References", "It."),
    ]
    (page,) = search_index.index({"book/page": PageTexts("A page", sections)})["pages"]
    assert page == ["book/page.html", "A page", [["Measure", "It is fast.", "a"]]]


def test_every_name_that_readers_use_leads_to_a_page():
    """What a subject is also called stands in the index of a page that is in the contents."""
    contents = (Path(__file__).parents[2] / "_toc.yml").read_text(encoding="utf-8")
    assert [page for page in (*search_index.ALSO, search_index.PLANNED) if f"file: {page}\n" not in contents] == []
    (planner,) = search_index.index({search_index.PLANNED: PageTexts("Planner", [])})["pages"]
    assert {"VRAM calculator", "Llama 3.1 8B", "GeForce RTX 4060"} <= set(planner[3])
