"""What the theme, docutils and MyST-NB write in a way that a screen reader cannot use, mended on every page.

Buttons and landmarks of the theme are templates in `book/_templates`; here are the sidebar and the article.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from bs4 import BeautifulSoup

MENDED = (
    # The fold of a cell shows its name as text; a second name would hide that one.
    (re.compile(r'<summary aria-label="Toggle hidden content">'), "<summary>"),
    # Entries of the bibliography are items of their list; their own role is deprecated.
    (re.compile(r' role="doc-biblioentry"'), ' role="listitem"'),
    # A sign that the site's fonts lack, and that is read as "white heavy check mark".
    (re.compile("<td>(<p>)?\u2705"), r"<td>\1executed"),
    # A heading without text names nothing, so the corner of a table is a plain cell.
    (re.compile(r"<th\b[^>]*>\s*(?:<p>\s*</p>)?\s*</th>"), "<td></td>"),
)
FIRST_SECTION = re.compile(r'<section\b[^>]*\bid="([^"]+)"')


def setup(app) -> None:
    """Mend each page after the theme has prepared it and before its template is filled."""
    app.connect("html-page-context", _mend_page, priority=900)


def mended(article: str) -> str:
    """The HTML of an article without what a screen reader stumbles over."""
    for pattern, instead in MENDED:
        article = pattern.sub(instead, article)
    return article


def named_folds(sidebar: BeautifulSoup) -> BeautifulSoup:
    """The sidebar, whose arrows say which chapter's pages they show."""
    for fold in sidebar.select("li > details > summary"):
        link = fold.find_previous("a") or fold
        fold["aria-label"] = f"Pages under {link.get_text(strip=True)}"
    return sidebar


def _mend_page(app, pagename: str, templatename: str, context: dict, doctree) -> None:
    if "body" in context:
        context["body"] = mended(context["body"])
    first = FIRST_SECTION.search(context.get("body", ""))
    context["skip_to"] = first[1] if first else "main-content"
    if make := context.get("generate_toctree_html"):
        context["generate_toctree_html"] = _with_names(make)


def _with_names(make: Callable[..., BeautifulSoup]) -> Callable[..., BeautifulSoup]:
    return lambda *args, **kwargs: named_folds(make(*args, **kwargs))
