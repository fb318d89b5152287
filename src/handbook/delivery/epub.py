"""Binds the built site as an ePub, `_build/handbook.epub`.

    python -m handbook.delivery.epub

Each page is a file of XHTML with the same drawings and formulas as in the site, in light colours, without a script or
a control, and with its answers at its end. It is made from the built site and not by a second build, so it says what
the site says; Chromium turns the site's HTML into XHTML.
"""

from __future__ import annotations

import json
import mimetypes
import posixpath
import re
import sys
import uuid
from collections.abc import Iterable
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import yaml

from handbook.chromium import blank_page, in_own_thread
from handbook.delivery.built_site import Entry, Site, bind, page_script
from handbook.directives.drawings import in_light

FILE = "handbook.epub"
STYLE = "book.css"
XHTML = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops" lang="en" xml:lang="en">
<head><title>{title}</title><link rel="stylesheet" href="{up}{style}"/></head>
<body>{body}</body>
</html>
"""
CONTAINER = """<?xml version="1.0" encoding="utf-8"?>
<container version="1.0" xmlns="urn:oasis:names:tc:opendocument:xmlns:container">
<rootfiles><rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles>
</container>
"""
PACKAGE = """<?xml version="1.0" encoding="utf-8"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="id" xml:lang="en">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:identifier id="id">urn:uuid:{identifier}</dc:identifier>
<dc:title>{title}</dc:title>
<dc:language>en</dc:language>
<dc:creator>{author}</dc:creator>
<meta property="dcterms:modified">{modified}</meta>
</metadata>
<manifest>
<item id="nav" href="nav.xhtml" media-type="application/xhtml+xml" properties="nav"/>
<item id="style" href="{style}" media-type="text/css"/>
{items}
</manifest>
<spine>
{spine}
</spine>
</package>
"""


def write(site: Site, target: Path) -> None:
    """Bind the site into a file. Raises NoBrowser."""
    pages = {xhtml_name(path): article for path, article in articles(site).items()}
    settings = yaml.safe_load((site.root / "_config.yml").read_text(encoding="utf-8"))
    pictures = {picture for name, article in pages.items() for picture in pictures_of(name, article)}
    titles = {xhtml_name(entry.path): entry.title for entry in site.contents if entry.path}
    named = {
        "META-INF/container.xml": CONTAINER,
        "book.opf": package(site.title, settings.get("author", ""), pages, sorted(pictures)),
        "nav.xhtml": document(site.title, navigation(site.contents), "nav.xhtml"),
        STYLE: (files("handbook") / "data" / "epub.css").read_text(encoding="utf-8"),
        **{name: document(titles[name], article, name) for name, article in pages.items()},
    }
    with ZipFile(target, "w", ZIP_DEFLATED) as book:
        book.writestr(ZipInfo("mimetype"), "application/epub+zip", ZIP_STORED)  # the first entry, not compressed
        for name, text in named.items():
            book.writestr(name, text)
        for name in sorted(pictures):
            book.writestr(name, picture(site.folder / name))


@in_own_thread
def articles(site: Site) -> dict[str, str]:
    """The article of each page as XHTML, by the page's path. Raises NoBrowser."""
    script = page_script("epub-page.js")
    with blank_page() as tab:
        written = {path: tab.evaluate(script, [path, site.html(path), site.pages]) for path in site.pages}
    return {path: strict(in_light(article, site.root)) for path, article in written.items()}


def xhtml_name(path: str) -> str:
    """The name in the ePub of a page of the site."""
    return re.sub(r"\.html$", ".xhtml", path)


def pictures_of(name: str, article: str) -> set[str]:
    """The files of the site that a page shows, named as in the site and in the ePub."""
    named = re.findall(r'<img [^>]*\bsrc="(?!data:)([^"]+)"', article)
    return {posixpath.normpath(posixpath.join(posixpath.dirname(name), picture)) for picture in named}


def picture(file: Path) -> bytes:
    """The content of a picture's file, as an ePub may hold it."""
    return strict(file.read_text(encoding="utf-8")).encode() if file.suffix == ".svg" else file.read_bytes()


def strict(svg: str) -> str:
    """SVG, or XHTML with SVG in it, without what Mermaid writes and the schema of ePubs refuses."""
    svg = re.sub(r"<rect(?![^>]*\swidth=)[^>]*/>", "", svg)
    svg = re.sub(r'(<(?:g|line|rect)\b[^>]*) name="[^"]*"', r"\1", svg)
    return svg.replace('role="graphics-document document"', 'role="img"')


def document(title: str, body: str, name: str) -> str:
    """A whole file of XHTML; `name` is its own, from which the stylesheet is found."""
    return XHTML.format(title=escape(title), body=body, style=STYLE, up="../" * name.count("/"))


def package(title: str, author: str, pages: dict[str, str], pictures: list[str]) -> str:
    """The package document: what the book is, its files, and their order."""
    contents = json.dumps([title, pages])
    items = [
        f'<item id="page-{n}" href="{escape(name)}" media-type="application/xhtml+xml"{_properties(article)}/>'
        for n, (name, article) in enumerate(pages.items(), 1)
    ]
    items += [
        f'<item id="picture-{n}" href="{escape(name)}" media-type="{mimetypes.guess_type(name)[0]}"/>'
        for n, name in enumerate(pictures, 1)
    ]
    return PACKAGE.format(
        identifier=uuid.uuid5(uuid.NAMESPACE_URL, contents),
        title=escape(title),
        author=escape(author),
        modified=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        style=STYLE,
        items="\n".join(items),
        spine="\n".join(f'<itemref idref="page-{n}"/>' for n in range(1, len(pages) + 1)),
    )


def _properties(article: str) -> str:
    """What a page holds beside text, which the package must say."""
    held = " ".join(name for name, tag in (("mathml", "<math"), ("svg", "<svg")) if tag in article)
    return f' properties="{held}"' if held else ""


def navigation(contents: Iterable[Entry]) -> str:
    """The table of contents, nested as in the site's sidebar."""
    parts, level = ['<nav epub:type="toc" id="toc"><h1>Contents</h1>'], 0
    for entry in contents:
        if entry.level > level:
            parts += ["<ol>"] * (entry.level - level)
        else:
            parts += ["</li>", *(["</ol>", "</li>"] * (level - entry.level))]
        level = entry.level
        title = escape(entry.title)
        name = f'<a href="{escape(xhtml_name(entry.path))}">{title}</a>' if entry.path else f"<span>{title}</span>"
        parts.append(f"<li>{name}")
    return "".join([*parts, "</li>", *["</ol></li>"] * (level - 1), "</ol></nav>"])


def main() -> int:
    """Command line of this module."""
    return bind(write, FILE, "ePub")


if __name__ == "__main__":
    sys.exit(main())
