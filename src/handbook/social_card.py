"""Draws the picture that goes with a shared link: the book's title and what it answers, in the book's own type.

Chromium draws it when a build has read the pages, and again only when its text or its look changed. Without Chromium
there is no picture and no page names one.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from html import escape
from pathlib import Path

from handbook import assets, page_texts
from handbook.chromium import blank_page, find_chromium, in_own_thread

WIDTH, HEIGHT = 1200, 630
"""Pixels, as the services that show shared links want it."""

ALT = "a model reads a prompt fast, drawn in blue, and writes an answer slowly, drawn in orange"
LOOK = Path(__file__).parent / "data" / "social-card.html"
FONTS = "@fontsource-variable/source-sans-3/files"


def setup(app) -> None:
    """Draw the card when all pages are read, so that each can name it."""
    app.connect("env-updated", _draw_if_new)


def address(app, pagename: str) -> str:
    """Where a page finds the card: from the site's root where that is known, else from the page; empty without one."""
    names = [path.name for path in _cards(app)]
    if not names:
        return ""
    root = app.config.html_baseurl or "../" * pagename.count("/")
    return f"{root}_static/{names[0]}"


def drawing(title: str, tagline: str, font: bytes) -> str:
    """The card as a page of its own."""
    text = LOOK.read_text(encoding="utf-8")
    values = {"title": escape(title), "tagline": escape(tagline), "font": b64encode(font).decode()}
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text


def _draw_if_new(app, env) -> None:
    if app.builder.format != "html":
        return
    font = assets.npm_folder(Path(app.srcdir), FONTS) / "source-sans-3-latin-wght-normal.woff2"
    tagline = page_texts.shortened(page_texts.first_paragraph(env.get_doctree(app.config.root_doc)), 90)
    page = drawing(app.config.html_title or app.config.project, tagline, font.read_bytes())
    target = Path(app.outdir) / "_static" / f"card-{hashlib.sha256(page.encode()).hexdigest()[:12]}.png"
    for old in _cards(app):
        if old != target:
            old.unlink()
    if not target.exists() and find_chromium():
        _draw(page, target)


def _cards(app) -> list[Path]:
    return sorted((Path(app.outdir) / "_static").glob("card-*.png"))


@in_own_thread
def _draw(page: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with blank_page(viewport={"width": WIDTH, "height": HEIGHT}) as tab:
        tab.set_content(page)
        tab.evaluate("document.fonts.load(\"40px 'Card'\")")
        tab.screenshot(path=target)
