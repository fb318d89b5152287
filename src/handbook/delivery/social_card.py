"""Draws the picture of a shared link: the book's title, what it answers, and the figure of its front page.

Chromium draws it when a build has read the pages, and again only when its text, its figure or its look changed; the
last one is kept in `_build/.drawn`. Without Chromium there is no picture and no page names one.
"""

from __future__ import annotations

import shutil
from base64 import b64encode
from html import escape
from importlib.resources import files
from pathlib import Path

from sphinx.util import logging

from handbook.chromium import NoBrowser, blank_page, in_own_thread
from handbook.delivery import page_texts
from handbook.directives import drawings

LOGGER = logging.getLogger(__name__)

WIDTH, HEIGHT = 1200, 630
"""Pixels, as the services that show shared links want it."""

NAME = "social-card.png"
LOOK = files("handbook") / "data" / "social-card.html"


def setup(app) -> None:
    """Draw the card when all pages are read, so that each can name it."""
    app.connect("env-updated", _draw_if_new)


def address(app, pagename: str) -> str:
    """Where a page finds the card: from the site's root where that is known, else from the page; empty without one."""
    if not _target(app).exists():
        return ""
    root = app.config.html_baseurl or "../" * pagename.count("/")
    return f"{root}_static/{NAME}"


def description(app) -> str:
    """What the card shows, in words: the title, and the text alternative of its figure if it has one."""
    figure = drawings.first_text(app, app.config.root_doc)
    return f"{_title(app)}: {figure}" if figure else _title(app)


def drawing(title: str, tagline: str, font: bytes, figure: str | None = None) -> str:
    """The card as a page of its own; `figure` is an SVG, or None where the front page has none."""
    text = LOOK.read_text(encoding="utf-8")
    named = {"title": escape(title), "tagline": escape(tagline), "font": b64encode(font).decode()}
    for name, value in {**named, "figure": figure or ""}.items():
        text = text.replace(f"@{name}@", value)
    return text


def _draw_if_new(app, env) -> None:
    if app.builder.format != "html":
        return
    tagline = page_texts.shortened(page_texts.first_paragraph(env.get_doctree(app.config.root_doc)), 90)
    figure = drawings.first_drawing(app, app.config.root_doc, "narrow")
    page = drawing(_title(app), tagline, drawings.font(Path(app.srcdir)).read_bytes(), figure)
    kept = Path(app.doctreedir).parent / ".drawn" / f"card-{drawings.digest(page)}.png"
    _target(app).unlink(missing_ok=True)
    if kept.exists() or _draw(page, kept):
        _target(app).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(kept, _target(app))


def _title(app) -> str:
    return app.config.html_title or app.config.project


def _target(app) -> Path:
    return Path(app.outdir) / "_static" / NAME


@in_own_thread
def _draw(page: str, kept: Path) -> bool:
    """Draw a card instead of the one kept before; False where no browser starts."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    try:
        with blank_page(viewport={"width": WIDTH, "height": HEIGHT}) as tab:
            tab.set_content(page)
            tab.evaluate("document.fonts.load(\"40px 'Card'\")")
            for old in kept.parent.glob("card-*.png"):
                old.unlink()
            tab.screenshot(path=kept)
    except NoBrowser as missing:
        LOGGER.info("No picture was drawn for shared links. %s", missing)
        return False
    return True
