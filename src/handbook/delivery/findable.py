"""Says what a page is about to whom a link is shown: search engines, chats, and a reader with an outdated address.

Each page gets a description, which is the beginning of its own text, and the tags of a shared link. Where the
environment variable BOOK_URL gives the site's address, the pages name their own, and the site has a sitemap.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from html import escape, unescape
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from docutils import nodes

from handbook.delivery import page_texts, search_index, social_card, term_cards

LONGEST = 160
"""Characters of a description that search engines show."""

PAGES_WITHOUT_TEXT = {
    "search": "Search the handbook: every section, every term of the glossary and every claim.",
    "genindex": "The index of the handbook.",
}
DATA = Path(str(files("handbook"))) / "data"


def setup(app) -> None:
    """Set up the search, the cards of terms and of shared links; give each page its tags; write the other files."""
    for part in (page_texts, search_index, term_cards, social_card):
        part.setup(app)
    app.connect("config-inited", _know_the_address)
    app.connect("html-page-context", _describe)
    app.connect("build-finished", _write_files)


def site_address(environment: Mapping[str, str]) -> str:
    """BOOK_URL with a slash at its end; empty where it is not set. Raises ExtensionError if it is no web address."""
    from sphinx.errors import ExtensionError

    address = environment.get("BOOK_URL", "").strip()
    if address and (urlsplit(address).scheme not in ("http", "https") or not urlsplit(address).netloc):
        raise ExtensionError(f"BOOK_URL is {address!r}: set it to the site's address, like https://example.org/book/.")
    return f"{address.rstrip('/')}/" if address else ""


def description(doctree: nodes.document) -> str:
    """What a page is about, in at most 160 characters: whole sentences from its beginning, where they fit."""
    return page_texts.shortened(page_texts.first_paragraph(doctree), LONGEST)


def tags(title: str, about: str, site: str, image: str, address: str = "", image_text: str = "") -> str:
    """The description of a page, and the tags of Open Graph and Twitter, as HTML."""
    named = {"description": about, "twitter:card": "summary_large_image" if image else "summary"}
    properties = {
        "og:type": "website" if title == site else "article",
        "og:site_name": site,
        "og:title": title,
        "og:description": about,
        "og:url": address,
        "og:image": image,
        "og:image:width": str(social_card.WIDTH) if image else "",
        "og:image:height": str(social_card.HEIGHT) if image else "",
        "og:image:alt": image_text if image else "",
    }
    lines = [f'<meta name="{name}" content="{escape(value)}" />' for name, value in named.items() if value]
    lines += [f'<meta property="{name}" content="{escape(value)}" />' for name, value in properties.items() if value]
    return "\n".join(lines) + "\n"


def sitemap(address: str, pages: list[str]) -> str:
    """The sitemap of a site at an address."""
    places = "\n".join(f"  <url><loc>{escape(address + page)}</loc></url>" for page in pages)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    return f"{head}\n{places}\n</urlset>\n"


def not_found(title: str, front_page: str, address: str) -> str:
    """The page for an unknown address; its links start at the site's root, which its script looks for if need be."""
    root, known = urlsplit(address).path or "/", str(bool(address)).lower()
    return _filled("not-found.html", title=title, front=front_page, root=root, known=known)


def root(title: str, about: str, front_page: str, image: str, image_text: str, address: str) -> str:
    """The page at the site's own address: it says what the site is to whom it is shared with, and leads on at once."""
    place = f"{address}{front_page}" if address else ""
    lines = tags(title, about, title, image, place, image_text)
    if place:
        lines += f'<link rel="canonical" href="{escape(place)}">\n'
    page = _filled("root.html", title=title, about=about, front=front_page)
    return page.replace("@tags@", lines)


def _filled(name: str, **values: str) -> str:
    """A page of the folder `data` with values, escaped, in the place of their names."""
    text = (DATA / name).read_text(encoding="utf-8")
    for key, value in values.items():
        text = text.replace(f"@{key}@", escape(value))
    return text


def _know_the_address(app, config) -> None:
    config.html_baseurl = site_address(os.environ)


def _describe(app, pagename: str, templatename: str, context: dict, doctree: nodes.document | None) -> None:
    site = app.config.html_title or app.config.project
    about = description(doctree) if doctree else PAGES_WITHOUT_TEXT.get(pagename, "")
    front = pagename == app.config.root_doc
    if front:
        context["docstitle"] = ""  # the site's title stands in the page's own
    if about:
        title = site if front else _bare(context.get("title") or pagename.capitalize())
        image, image_text = social_card.address(app, pagename), social_card.description(app)
        written = tags(title, about, site, image, context.get("pageurl") or "", image_text)
        context["metatags"] = context.get("metatags", "") + written


def _bare(title: str) -> str:
    """A title without its markup."""
    return unescape(re.sub(r"<[^>]+>", "", title))


def _write_files(app, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    out, address = Path(app.outdir), app.config.html_baseurl
    site = app.config.html_title or app.config.project
    front, about = f"{app.config.root_doc}.html", description(app.env.get_doctree(app.config.root_doc))
    (out / "404.html").write_text(not_found(site, front, address), encoding="utf-8")
    if app.config.root_doc != "index":
        image, image_text = social_card.address(app, "index"), social_card.description(app)
        page = root(site, about, front, image, image_text, address)
        (out / "index.html").write_text(page, encoding="utf-8")
    if address:
        pages = [f"{name}.html" for name in sorted(app.env.found_docs)]
        (out / "sitemap.xml").write_text(sitemap(address, pages), encoding="utf-8")
    else:
        (out / "sitemap.xml").unlink(missing_ok=True)
