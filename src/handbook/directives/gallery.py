"""The gallery: every diagram of the book once, with the page that explains it, as SVG and PNG to take along.

```{gallery}
:figure: memory-timeline fig-gallery-memory     also the first plotly figure of this page, by file and label
```

A standalone SVG has light colours on white, title, description and license, and asks for no other file. It is written
into `_static/gallery/` at each build. A PNG is drawn from it with Chromium and kept in `_build/.drawn` until the SVG
changes. Where no browser starts there is no PNG and no link to one, and the build says so; under CI it fails.
"""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.errors import ExtensionError
from sphinx.util.docutils import SphinxDirective

from handbook.chromium import NoBrowser, blank_page, in_own_thread
from handbook.directives import drawings

SVG, RDF = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
CC, DC = "http://creativecommons.org/ns#", "http://purl.org/dc/elements/1.1/"
LICENSE = "https://creativecommons.org/licenses/by/4.0/"
CREATOR = "The authors of this handbook"
FAMILY = "'Source Sans 3 Variable', 'Source Sans 3', Arial, sans-serif"
STAND_IN = (
    '@font-face { font-family: "Source Sans 3 Variable"; font-weight: 200 900; size-adjust: 94.2%; '
    'src: local("Arial"), local("Liberation Sans"), local("Helvetica"); }'
)
"""Arial in the measures of the book's font: texts fit their boxes without the font's file, as in book.css."""
PIXELS = 2
"""Pixels of a PNG for each unit of the SVG."""
FOLDER = "_static/gallery"
INCLUDED = re.compile(r"^```\{mermaid\} \S*?([\w-]+)\.mmd\n:name: (\S+)", re.MULTILINE)

for prefix, space in {"": SVG, "rdf": RDF, "cc": CC, "dc": DC}.items():
    ElementTree.register_namespace(prefix, space)


@dataclass(frozen=True)
class Diagram:
    """One picture of the gallery: the name of its files, its title and its text alternative."""

    name: str
    title: str
    alt: str


class Picture(nodes.General, nodes.Element):
    """Place of one picture with its downloads; filled when all pages are read and the files are written."""


class Gallery(SphinxDirective):
    """Every diagram of book/diagrams, in a grid."""

    option_spec = {"figure": directives.unchanged}  # noqa: RUF012 (docutils has it so)

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir)
        places = explained(root)
        grid = nodes.container(classes=["gallery"])
        for diagram in diagrams(root / "book" / "diagrams"):
            grid += self.entry(diagram, places[diagram.name][1])
        if "figure" in self.options:
            name, label = self.options["figure"].split()
            grid += self.entry(Diagram(name, "", ""), label)
        for path in [*(root / "book" / "diagrams").glob("*.*"), *(root / f"{page}.md" for page, _ in places.values())]:
            self.env.note_dependency(str(path))
        return [grid]

    def entry(self, diagram: Diagram, label: str) -> nodes.Element:
        """The picture, and below it where it is explained."""
        entry = nodes.container(classes=["gallery-entry"])
        entry += Picture(name=diagram.name, title=diagram.title, alt=diagram.alt)
        text = f"Explained at {{numref}}`{label}`."
        self.state.nested_parse(StringList([text], source=self.get_source_info()[0]), self.content_offset, entry)
        return entry


def setup(app: Any) -> None:
    """Make the directive known; write the files when all pages are read, and the links when a page is written."""
    app.add_node(Picture)
    app.add_directive("gallery", Gallery)
    app.connect("doctree-read", _note_figure)
    app.connect("env-purge-doc", lambda app, env, name: _galleries(env).pop(name, None))
    app.connect("env-updated", _write, priority=600)  # after the figures are drawn
    app.connect("doctree-resolved", _fill)


def diagrams(folder: Path) -> list[Diagram]:
    """The diagrams of a folder by name. A source says its title and description as accTitle and accDescr."""
    sources = sorted(folder.glob("*.mmd"), key=lambda path: path.stem)
    return [Diagram(path.stem, _said(path, "accTitle"), _said(path, "accDescr")) for path in sources]


def explained(root: Path) -> dict[str, tuple[str, str]]:
    """For each diagram the page that includes it and its label there. Raises ExtensionError where none does."""
    places: dict[str, tuple[str, str]] = {}
    for path in sorted((root / "book").rglob("*.md")):
        page = path.relative_to(root).with_suffix("").as_posix()
        for name, label in INCLUDED.findall(path.read_text(encoding="utf-8")):
            places.setdefault(name, (page, label))
    if missing := [diagram.name for diagram in diagrams(root / "book" / "diagrams") if diagram.name not in places]:
        raise ExtensionError(f"No page includes {', '.join(missing)} of book/diagrams. Include it, or remove it.")
    return places


def standalone(svg: str, title: str, alt: str, root: Path, face: str = STAND_IN) -> str:
    """A picture for use outside the page: its own size, light colours on white, title, description, license.

    `face` is the @font-face rule of the text's font.
    """
    picture = ElementTree.fromstring(drawings.in_light(svg, root).replace("&nbsp;", "\u00a0"))
    x, y, width, height = map(float, picture.attrib["viewBox"].split())
    picture.attrib.pop("data-digest", None)
    width, height = ceil(width), ceil(height)
    picture.attrib |= {"width": f"{width}", "height": f"{height}", "viewBox": f"{x:g} {y:g} {width} {height}"}
    picture.attrib |= {"style": "background: #ffffff", "font-family": FAMILY, "role": "img"}
    for tag in ("title", "desc"):
        for old in picture.findall(f"{{{SVG}}}{tag}"):
            picture.remove(old)
    head = [_text("title", title), _text("desc", alt), _metadata(title), _text("style", face)]
    ground = {"x": f"{x:g}", "y": f"{y:g}", "width": f"{width}", "height": f"{height}", "style": "fill: #ffffff"}
    for i, element in enumerate([*head, ElementTree.Element(f"{{{SVG}}}rect", ground)]):
        picture.insert(i, element)
    for name in ("aria-labelledby", "aria-describedby", "class"):
        picture.attrib.pop(name, None)
    return ElementTree.tostring(picture, encoding="unicode") + "\n"


def size(svg: str) -> tuple[int, int]:
    """Width and height of a standalone SVG."""
    picture = ElementTree.fromstring(svg)
    return int(picture.attrib["width"]), int(picture.attrib["height"])


def _said(path: Path, key: str) -> str:
    line = re.search(rf"^\s*{key}: *(.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    if not line:
        raise ExtensionError(f"{path.name} has no {key}. Write one: the gallery shows it, and screen readers read it.")
    return line[1].strip()


def _text(tag: str, text: str) -> ElementTree.Element:
    element = ElementTree.Element(f"{{{SVG}}}{tag}")
    element.text = text
    return element


def _metadata(title: str) -> ElementTree.Element:
    """Title, creator and license, as programs that draw read them."""
    metadata = ElementTree.Element(f"{{{SVG}}}metadata")
    work = ElementTree.SubElement(ElementTree.SubElement(metadata, f"{{{RDF}}}RDF"), f"{{{CC}}}Work")
    for tag, text in (("title", title), ("creator", CREATOR), ("rights", "CC BY 4.0")):
        ElementTree.SubElement(work, f"{{{DC}}}{tag}").text = text
    ElementTree.SubElement(work, f"{{{CC}}}license", {f"{{{RDF}}}resource": LICENSE})
    return metadata


# --- files --------------------------------------------------------------------------------------------


def _galleries(env: Any) -> dict[str, str]:
    """The pages with a gallery, and the name of the figure that each adds, or nothing."""
    return vars(env).setdefault("handbook_galleries", {})


def _note_figure(app: Any, doctree: nodes.document) -> None:
    if pictures := list(doctree.findall(Picture)):
        _galleries(app.env)[app.env.docname] = next(
            (picture["name"] for picture in pictures if not picture["title"]), ""
        )


def pictures(app: Any) -> Iterator[tuple[Diagram, str]]:
    """Each picture of the galleries with its SVG as the page has it; a figure that was not drawn is left out."""
    root = Path(app.srcdir)
    for page, figure in _galleries(app.env).items():
        for diagram in diagrams(root / "book" / "diagrams"):
            yield diagram, (root / "book" / "diagrams" / f"{diagram.name}.svg").read_text(encoding="utf-8")
        drawn = drawings.first_drawing(app, page, "wide") if figure else None
        if drawn:
            yield _figure(app, page, figure), drawn


def _figure(app: Any, page: str, name: str) -> Diagram:
    """The figure of a page: the first sentence of its text alternative is its title."""
    alt = drawings.first_text(app, page)
    return Diagram(name, alt.partition(". ")[0], alt)


def _write(app: Any, env: Any) -> list[str]:
    """Write every SVG and PNG; the pages to write again."""
    if app.builder.format != "html" or not _galleries(env):
        return []
    root, folder = Path(app.srcdir), Path(app.outdir) / FOLDER
    face = drawings.font_face(root)
    before = {path.name: path.read_bytes() for path in folder.glob("*.svg")}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    to_draw = {}
    for diagram, svg in pictures(app):
        (folder / f"{diagram.name}.svg").write_text(standalone(svg, diagram.title, diagram.alt, root), encoding="utf-8")
        to_draw[diagram.name] = standalone(svg, diagram.title, diagram.alt, root, face)
    _pngs(to_draw, Path(app.doctreedir).parent / ".drawn", folder)
    after = {path.name: path.read_bytes() for path in folder.glob("*.svg")}
    return sorted(_galleries(env)) if before != after else []


def _pngs(svgs: Mapping[str, str], kept: Path, folder: Path) -> None:
    """Draw the PNGs that no earlier build has drawn, and copy all into `folder`."""
    files = {name: kept / f"gallery-{drawings.digest(svg, f'{PIXELS}')}.png" for name, svg in svgs.items()}
    kept.mkdir(parents=True, exist_ok=True)
    for old in set(kept.glob("gallery-*.png")) - set(files.values()):
        old.unlink()
    try:
        draw({files[name]: svg for name, svg in svgs.items() if not files[name].exists()})
    except NoBrowser as missing:
        drawings.not_drawn(missing, "No diagram was drawn as PNG.", "Until then the gallery offers SVG alone.")
    for name, file in files.items():
        if file.exists():
            shutil.copyfile(file, folder / f"{name}.png")


@in_own_thread
def draw(svgs: Mapping[Path, str]) -> None:
    """Draw each standalone SVG as a PNG of PIXELS times its size. Raises NoBrowser."""
    if not svgs:
        return
    with blank_page(device_scale_factor=PIXELS) as page:
        for file, svg in svgs.items():
            width, height = size(svg)
            page.set_viewport_size({"width": width, "height": height})
            page.set_content(f"<!doctype html><style>body {{ margin: 0 }} svg {{ display: block }}</style>{svg}")
            page.evaluate("""() => document.fonts.load("16px 'Source Sans 3 Variable'")""")
            page.screenshot(path=file)


# --- links --------------------------------------------------------------------------------------------


def _fill(app: Any, doctree: nodes.document, docname: str) -> None:
    """Put pictures and links of the files that exist into one page."""
    folder = Path(app.outdir) / FOLDER
    for place in list(doctree.findall(Picture)):
        diagram = Diagram(place["name"], place["title"], place["alt"])
        if not diagram.title:
            diagram = _figure(app, docname, diagram.name)
        kinds = [kind for kind in ("svg", "png") if (folder / f"{diagram.name}.{kind}").exists()]
        shown = entry_html(diagram, "../" * docname.count("/") + FOLDER, kinds)
        place.replace_self(nodes.raw("", shown, format="html"))


def entry_html(diagram: Diagram, folder: str, kinds: list[str]) -> str:
    """Picture (as it is in a dark theme too: `dark-light`), title, downloads by kind, text alternative in a fold."""
    file, title, alt = f"{folder}/{diagram.name}", html.escape(diagram.title), html.escape(diagram.alt)
    image = f'<img class="dark-light" src="{file}.svg" alt="{alt}" loading="lazy">' if "svg" in kinds else ""
    links = ", ".join(
        f'<a href="{file}.{kind}" download aria-label="{title}, {kind.upper()}">{kind.upper()}</a>' for kind in kinds
    )
    return (
        f'<div class="gallery-picture">{image}</div><p class="gallery-title" id="gallery-{diagram.name}">{title}</p>'
        f"<p>{links}</p>"
        f"<details><summary>In words</summary><p>{alt}</p></details>"
    )
