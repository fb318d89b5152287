"""The site as an ePub: valid XHTML, the site's own figures, nothing that an e-reader cannot use."""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from zipfile import ZIP_STORED, ZipFile

import pytest
import small_site

from handbook.delivery import epub
from handbook.delivery.built_site import Entry, NotBuilt, built_site

CHAPTER = "part/chapter.xhtml"


@pytest.fixture(scope="module")
def book(tmp_path_factory, browser) -> ZipFile:
    """The ePub of a small site."""
    root = small_site.build(tmp_path_factory.mktemp("book"))
    epub.write(built_site(root), root / epub.FILE)
    with ZipFile(root / epub.FILE) as opened:
        yield opened


def text(book: ZipFile, name: str) -> str:
    return book.read(name).decode()


def test_the_contents_are_those_of_the_sidebar(tmp_path):
    """The front page, then each part with its pages."""
    site = built_site(small_site.build(tmp_path))
    assert site.contents == [
        Entry(1, "A book", "index.html"),
        Entry(1, "Part & one", None),
        Entry(2, "1. Chapter", "part/chapter.html"),
    ]
    assert (site.title, site.pages) == ("A book", ["index.html", "part/chapter.html"])


def test_without_a_site_the_command_says_so(tmp_path, monkeypatch, capsys):
    """It names the command that builds one, and leaves no file."""
    (tmp_path / "_toc.yml").write_text("root: index\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotBuilt, match="make book"):
        built_site(tmp_path)
    assert epub.main() == 1
    assert "make book" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.epub"))


def test_without_a_browser_the_command_says_so(tmp_path, monkeypatch, capsys):
    """It says how to get one."""
    small_site.build(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    assert epub.main() == 1
    assert "playwright is missing" in capsys.readouterr().err


def test_every_file_is_well_formed_and_in_the_package(book):
    """What the package lists is there, what is there is listed, and the type of the file comes first."""
    names = book.namelist()
    for name in names[1:]:
        if name.endswith((".xml", ".opf", ".xhtml")):
            ElementTree.fromstring(book.read(name))
    listed = re.findall(r'<item [^>]*href="([^"]+)"', text(book, "book.opf"))
    assert sorted(listed) == sorted(set(names) - {"mimetype", "META-INF/container.xml", "book.opf"})
    assert (names[0], book.infolist()[0].compress_type) == ("mimetype", ZIP_STORED)
    assert "<dc:creator>B &amp; C</dc:creator>" in text(book, "book.opf")
    assert 'href="part/chapter.xhtml" media-type="application/xhtml+xml" properties="svg"' in text(book, "book.opf")


def test_a_picture_of_the_site_is_in_the_book(book):
    """Its file lies where the page names it, and the package says its type."""
    assert 'src="../picture.svg"' in text(book, CHAPTER)
    assert text(book, "picture.svg") == small_site.PICTURE
    assert 'href="picture.svg" media-type="image/svg+xml"' in text(book, "book.opf")


def test_a_figure_is_the_sites_drawing_in_light_colours(book):
    """One of its two widths, with its text alternative, and no colour that only the site knows."""
    chapter = text(book, CHAPTER)
    assert 'aria-label="A line."' in chapter
    assert "narrow</text>" in chapter
    assert "wide</text>" not in chapter
    assert 'viewBox="0 0 9 9"' in chapter
    assert "var(--" not in chapter
    assert "fill:#1d2733" in chapter


def test_a_diagram_keeps_to_the_schema_of_epubs(book):
    """Rectangles without a size, and names and roles that EPUBCheck refuses, are left out or written in its words."""
    diagram = r'<svg [^>]*role="img" viewBox="0 0 9 9"><rect width="9" height="9"/></svg>'
    assert re.search(diagram, text(book, CHAPTER))
    assert epub.strict('<g class="a" name="D"/><line name="V" x1="1"/><rect class="b"/>') == (
        '<g class="a"/><line x1="1"/>'
    )


def test_nothing_is_left_of_scripts_and_controls(book):
    """A question is its text and its choices; what is no answer stays a plain fold."""
    chapter = text(book, CHAPTER)
    assert re.findall(r"<(script|input|button|fieldset|label|form)\b", chapter) == []
    assert '<p class="legend">Which?</p>' in chapter
    assert "<li><span>this one</span></li>" in chapter
    assert re.findall(r"<details[^>]*><summary>(.*?)</summary>", chapter) == [
        '<span class="title">In words</span>',
        "measured",
    ]
    assert chapter.count('id="twice"') == 1
    assert 'id="prediction-1"' in chapter


def test_links_lead_to_pages_of_the_book_or_out_of_it(book):
    """A link to a file that only the site has is plain text."""
    front = text(book, "index.xhtml")
    assert re.findall(r'<a href="([^"]+)"', front) == ["part/chapter.xhtml#here", "https://example.org/"]
    assert 'href="../index.xhtml"' in text(book, CHAPTER)


def test_the_navigation_is_nested_as_in_the_sidebar():
    """A part is a name without a link; after a deep page the list comes up again."""
    contents = [
        Entry(1, "A", "a.html"),
        Entry(1, "P", None),
        Entry(2, "B", "b.html"),
        Entry(3, "C", "c.html"),
        Entry(1, "Q", None),
    ]
    written = epub.navigation(contents)
    ElementTree.fromstring(written.replace("epub:type", "type"))
    assert re.sub(r"<h1>.*?</h1>|<(nav|a)\b[^>]*>|</(nav|a)>", "", written) == (
        "<ol><li>A</li><li><span>P</span><ol><li>B<ol><li>C</li></ol></li></ol></li><li><span>Q</span></li></ol>"
    )
