"""Views: what an instrument shows, as nested lists that JSON can carry, and the HTML that they are at build.

    view = text | [tag, {attribute: value}, view, …]

Texts are texts and never markup, so nothing in a model's name or in a log can become part of a page.
`instrument.js` makes the same elements in a browser, with the same two lists of what is allowed.
"""

from __future__ import annotations

import html
from typing import Any

TAGS = """
    a button circle code details div em fieldset form h2 h3 input label legend li line optgroup option p pre rect
    section select span strong summary svg table tbody td text textarea th thead tr ul
"""
ATTRIBUTES = """
    accept aria-describedby aria-hidden aria-label autocomplete checked class cx cy data-address data-ask
    data-but data-choices data-clear data-copy data-drop data-file data-label data-measured data-only data-part
    data-private data-read data-run data-save data-sort data-state data-text data-until data-value data-whole
    disabled height hidden href id inputmode label min multiple name novalidate open placeholder preserveAspectRatio r
    role rows scope selected spellcheck step type value viewBox width x x1 x2 y y1 y2
"""
EMPTY = frozenset(["circle", "input", "line", "rect"])
SAFE_ADDRESS = ("#", "../", "./", "https://")


def element(tag: str, attributes: dict[str, Any] | None = None, *children: Any) -> list[Any]:
    """One element; a None among the children is left out, and so is an attribute that is None or False.

    Raises ValueError for a tag, an attribute or an address that no view may have.
    """
    kept = {name: "" if value is True else str(value) for name, value in (attributes or {}).items() if _is_set(value)}
    if tag not in TAGS.split() or not set(kept) <= set(ATTRIBUTES.split()):
        raise ValueError(f"<{tag}> with {sorted(kept)} is not allowed in a view.")
    if not kept.get("href", "#").startswith(SAFE_ADDRESS):
        raise ValueError(f"The address {kept['href']!r} is not allowed in a view.")
    return [tag, kept, *(child for child in children if child is not None)]


def _is_set(value: Any) -> bool:
    return value is not None and value is not False


def html_of(view: Any) -> str:
    """The HTML of a view."""
    if isinstance(view, str):
        return html.escape(view, quote=False)
    tag, attributes, *children = view
    written = "".join(f' {name}="{html.escape(value)}"' for name, value in attributes.items())
    if tag in EMPTY:
        return f"<{tag}{written}/>"
    return f"<{tag}{written}>{''.join(map(html_of, children))}</{tag}>"


def paragraph(*children: Any, kind: str | None = None) -> list[Any]:
    """A paragraph, with a class if it has a kind."""
    return element("p", {"class": kind}, *children)


def table(heads: list[str], rows: list[list[Any]]) -> list[Any]:
    """A table whose first column names the rows; each cell knows the name of its column, for narrow screens."""
    head = element("thead", {}, element("tr", {}, *(element("th", {"scope": "col"}, name) for name in heads)))
    body = element("tbody", {}, *(_row(heads, row) for row in rows))
    return element("table", {"class": "table"}, head, body)


def _row(heads: list[str], row: list[Any]) -> list[Any]:
    first, *rest = row
    cells = (element("td", {"data-label": head}, cell) for head, cell in zip(heads[1:], rest, strict=True))
    return element("tr", {}, element("th", {"scope": "row", "data-label": heads[0]}, first), *cells)


def error(text: str) -> list[Any]:
    """What went wrong, in a box of its own."""
    return element("p", {"class": "instrument-error", "role": "alert"}, text)
