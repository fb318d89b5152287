"""The site as one PDF, or one page of it: all articles in order, links inside the file, answers at a page's end."""

from __future__ import annotations

import re

import pytest
import small_site

from handbook.chromium import blank_page, in_own_thread
from handbook.delivery import pdf
from handbook.delivery.built_site import NotBuilt, built_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A small built site."""
    return built_site(small_site.build(tmp_path_factory.mktemp("book")))


@in_own_thread
def laid_out(site, script: str):
    """What a script finds in the page that is printed."""
    with blank_page(java_script_enabled=False) as page:
        pdf.lay_out(page, site)
        return page.evaluate(script)


@pytest.mark.usefixtures("browser")
def test_the_file_has_every_page_and_an_outline(site, tmp_path):
    """Two articles on two sheets, and their headings to choose from; no link leads to this machine."""
    pdf.write(site, tmp_path / pdf.FILE)
    data = (tmp_path / pdf.FILE).read_bytes()
    assert data.startswith(b"%PDF")
    assert re.search(rb"/Type /Pages\s.*?/Count 2\b", data, re.DOTALL)
    assert b"/Outlines" in data
    assert b"(Chapter)" in data
    assert b"file:" not in data
    assert b"https://example.org/" in data


@pytest.mark.usefixtures("browser")
def test_a_long_heading_keeps_its_spaces_in_the_outline(tmp_path):
    """Wherever its lines end, in the source and on paper, and whatever stands in it."""
    site = built_site(small_site.build(tmp_path))
    chapter, words = site.folder / "part" / "chapter.html", ["many", "<em>words</em>", "<code>in</code>\n", "a heading"]
    titled = chapter.read_text(encoding="utf-8").replace("<h1>Chapter</h1>", f"<h1>{' '.join(words * 5)}</h1>")
    chapter.write_text(titled, encoding="utf-8")
    pdf.write(site, tmp_path / pdf.FILE)
    outline = re.findall(rb"/Title \(([^)]*)\)", (tmp_path / pdf.FILE).read_bytes())
    assert b" ".join([b"many words in a heading"] * 5) in outline


@pytest.mark.usefixtures("browser")
def test_links_lead_to_their_place_in_the_file(site):
    """To a section or to a whole page; a file that only the site has is plain text; ids are unique."""
    links, ids, clip, theme, n_open = laid_out(
        site,
        """() => [[...document.querySelectorAll("article p:not([class]) > a")].map((a) => a.getAttribute("href")),
          [...document.querySelectorAll("article, article [id]")].map((e) => e.id),
          document.querySelector("svg g").getAttribute("clip-path"),
          document.documentElement.dataset.theme, document.querySelectorAll("details[open]").length]""",
    )
    assert links == ["#page-2-here", "https://example.org/", "#page-1"]
    assert {"page-1", "page-2", "page-1-a-book", "page-2-here", "page-2-clip"} <= set(ids)
    assert clip == "url(#page-2-clip)"
    assert (theme, n_open) == ("light", 2)


ANSWERS = """() => {
  const text = (element) => element.textContent.replace(/\\s+/g, " ").trim();
  const led = (link) => [text(link), link.getAttribute("href")];
  return {
    places: [...document.querySelectorAll(".to-answer > a")].map(led),
    titles: [...document.querySelectorAll("#page-2-answers > .answer .answer-title")].map(text),
    back: [...document.querySelectorAll(".answer-title a")].map(led),
    broken: [...document.querySelectorAll("article a[href^='#']")].filter((a) => !document.querySelector(a.hash)),
    moved: [...document.querySelectorAll("#page-2-answers > .answer")].map((answer) => answer.id),
    figure: text(document.querySelector("#page-2-answer-2 > figure > figcaption")),
    last: document.querySelector("article.bound:last-of-type > section > :last-child").id,
    controls: document.querySelectorAll("article.bound :is(fieldset, .question, .commit)").length,
  };
}"""


@pytest.mark.usefixtures("browser")
def test_the_answers_of_a_page_stand_at_its_end(site):
    """Each leads back to its question, or to where it stood; from there and from the question a link leads to it."""
    seen = laid_out(site, ANSWERS)
    assert seen["titles"] == [
        "Answer: Which (back to the question)",
        "Outcome (back to the question)",
        "Solution to Exercise 1",
        "Answers (back to the question)",
    ]
    assert seen["moved"] == [f"page-2-answer-{n}" for n in (1, 2, 3, 4)]
    assert seen["places"] == [
        ["See the answer", "#page-2-answer-1"],
        ["Answer: Which", "#page-2-answer-1"],
        ["Outcome", "#page-2-answer-2"],
        ["Solution to Exercise 1", "#page-2-answer-3"],
        ["Answers", "#page-2-answer-4"],
    ]
    assert [href for _, href in seen["back"]] == [
        "#page-2-prediction-1",
        "#page-2-place-of-answer-2",
        "#page-2-ex",
        "#page-2-place-of-answer-4",
    ]
    assert (seen["broken"], seen["figure"]) == ([], "Its caption")
    assert (seen["last"], seen["controls"]) == ("page-2-answers", 0)


@pytest.mark.usefixtures("browser")
def test_one_page_alone_is_a_file_of_its_own(tmp_path, monkeypatch, capsys):
    """It is named after its page, and a link to another page of the book is plain text."""
    small_site.build(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert pdf.main("part/chapter") == 0
    written = tmp_path / "_build" / "chapter.pdf"
    assert str(written) in capsys.readouterr().out
    assert re.search(rb"/Type /Pages\s.*?/Count 1\b", written.read_bytes(), re.DOTALL)
    assert b"(Chapter)" in written.read_bytes()
    assert b"/URI" not in written.read_bytes()


@pytest.mark.usefixtures("browser")
def test_a_page_alone_leads_to_the_site_that_knows_its_address(tmp_path):
    """Where the site was built with BOOK_URL, a link to another page opens it there."""
    site = built_site(small_site.build(tmp_path)).only("part/chapter.md")
    chapter = site.folder / "part" / "chapter.html"
    address = '<head><link rel="canonical" href="https://example.org/book/part/chapter.html"></head>'
    chapter.write_text(chapter.read_text(encoding="utf-8").replace("<body>", f"{address}<body>"), encoding="utf-8")
    links = "() => [...document.querySelectorAll('article p:not([class]) > a')].map((a) => a.getAttribute('href'))"
    assert laid_out(site, links) == ["https://example.org/book/index.html"]


@pytest.mark.usefixtures("browser")
def test_a_page_has_its_pictures_and_its_own_sheets(site):
    """A picture is found from its own page, loaded before all is printed; what one page loads colours it here, too."""
    seen = """() => [[...document.querySelectorAll('article img')].map((image) => [image.complete, image.naturalWidth]),
      getComputedStyle(document.querySelector('article .legend')).color]"""
    assert laid_out(site, seen) == [[[True, 9]], "rgb(1, 2, 3)"]


def test_an_unknown_page_is_refused_with_a_near_one(tmp_path, monkeypatch, capsys):
    """The message names what is like it, or where the names stand; no file is left."""
    site = built_site(small_site.build(tmp_path))
    with pytest.raises(NotBuilt, match=r"Name it as in _toc\.yml"):
        site.only("xyz")
    monkeypatch.chdir(tmp_path)
    assert pdf.main("part/chaptre") == 1
    assert "no page 'part/chaptre'. Did you mean part/chapter?" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.pdf"))
