"""The gallery of diagrams: each stands in it once, and its files need nothing else."""

import re
import struct
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sphinx.errors import ExtensionError

from handbook.directives import drawings, gallery

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "book" / "diagrams"
FOUND = gallery.diagrams(FOLDER)
SVG = f"{{{gallery.SVG}}}"


def alone(name: str, **options: str) -> str:
    diagram = next(diagram for diagram in FOUND if diagram.name == name)
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    return gallery.standalone(svg, diagram.title, diagram.alt, ROOT, **options)


def test_every_diagram_is_in_the_gallery_once_with_its_alternative():
    """No source is forgotten, and each says what it shows."""
    assert [diagram.name for diagram in FOUND] == sorted(path.stem for path in FOLDER.glob("*.mmd"))
    assert all(diagram.title and len(diagram.alt) > len(diagram.title) for diagram in FOUND)


def test_every_diagram_is_explained_on_a_page():
    """The page and its label exist."""
    places = gallery.explained(ROOT)
    assert set(places) == {diagram.name for diagram in FOUND}
    for page, label in places.values():
        assert f":name: {label}\n" in (ROOT / f"{page}.md").read_text(encoding="utf-8")


def test_a_diagram_on_no_page_and_one_without_words_are_refused(tmp_path):
    """The build says which, and what to do."""
    folder = tmp_path / "book" / "diagrams"
    folder.mkdir(parents=True)
    (folder / "new.mmd").write_text("flowchart TD\n    accTitle: New\n")
    with pytest.raises(ExtensionError, match=r"new\.mmd has no accDescr"):
        gallery.diagrams(folder)
    (folder / "new.mmd").write_text("flowchart TD\n    accTitle: New\n    accDescr: All of it.\n")
    with pytest.raises(ExtensionError, match="No page includes new"):
        gallery.explained(tmp_path)


@pytest.mark.parametrize("diagram", FOUND, ids=lambda diagram: diagram.name)
def test_a_standalone_svg_needs_nothing_else(diagram):
    """It parses, has no variable of a page and no reference but to itself, and says title, description, license."""
    text = alone(diagram.name)
    root = ElementTree.fromstring(text)
    assert "var(" not in text
    assert all(to.strip("\"'").startswith("#") for to in re.findall(r"url\(([^)]*)\)", text))
    assert not re.search(r"@import|<image|<script", text)
    assert [root.findtext(f"{SVG}{tag}") for tag in ("title", "desc")] == [diagram.title, diagram.alt]
    assert gallery.LICENSE in text
    assert root.find(f"{SVG}rect").get("style") == "fill: #ffffff"


def test_a_color_variable_takes_its_light_value():
    """With a fallback beside it, or out of book.css."""
    path = '<path stroke="var(--diagram-ink, #1d2733)"/>'
    svg = f'<svg xmlns="{gallery.SVG}" viewBox="0 0 9.5 4">{path}</svg>'
    drawn = gallery.standalone(svg, "A & B", "Both <of> them.", ROOT)
    assert 'stroke="#1d2733"' in drawn
    assert gallery.size(drawn) == (10, 4)


def test_a_picture_without_files_has_no_links():
    """What the build could not draw is not offered; titles are escaped."""
    shown = gallery.entry_html(gallery.Diagram("x", "a < b", "c"), "_static/gallery", ["svg"])
    assert "x.svg" in shown
    assert ".png" not in shown
    assert "a &lt; b" in shown
    assert "href" not in gallery.entry_html(gallery.Diagram("x", "a", "c"), "_static/gallery", [])


def test_a_png_has_twice_the_size_of_its_svg(tmp_path):
    """Drawn with the book's font; the file begins as a PNG does."""
    svg, file = alone("three-clocks", face=drawings.font_face(ROOT)), tmp_path / "drawn.png"
    try:
        gallery.draw({file: svg})
    except gallery.NoBrowser as missing:
        pytest.skip(str(missing))
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == tuple(gallery.PIXELS * n for n in gallery.size(svg))


def test_without_a_browser_there_is_no_png_and_ci_fails(tmp_path, monkeypatch):
    """The rule of the figures: said on one machine, an error under CI."""

    def no_browser(svgs):
        raise gallery.NoBrowser("No Chromium.")

    monkeypatch.setattr(gallery, "draw", no_browser)
    monkeypatch.setattr(drawings, "is_ci", lambda environ: False)
    gallery._pngs({"x": "<svg/>"}, tmp_path / "kept", tmp_path)
    assert list(tmp_path.glob("*.png")) == []
    monkeypatch.setattr(drawings, "is_ci", lambda environ: True)
    with pytest.raises(ExtensionError, match="No diagram was drawn as PNG"):
        gallery._pngs({"x": "<svg/>"}, tmp_path / "kept", tmp_path)
