"""Writes what the search dialog searches: the texts of all pages, and the spellings of a word that count as one.

It is a script, because a page opened from disk may load scripts and may not fetch its neighbours.
"""

from __future__ import annotations

import json
from pathlib import Path

from handbook import page_texts
from handbook.page_texts import PageTexts

SPELLINGS = {
    "analyse": "analyze",
    "behaviour": "behavior",
    "centre": "center",
    "colour": "color",
    "licence": "license",
    "programme": "program",
}
"""British word -> the word of the book; `-ise` for `-ize` is a rule of search.js."""


def setup(app) -> None:
    """Give each page the search, and write the index when a build ends; it is loaded when somebody searches."""
    app.add_js_file("search.js", loading_method="defer")
    app.connect("build-finished", _write)


def index(pages: dict[str, PageTexts]) -> dict:
    """The index: for each page its address, its title, and its sections as anchor, heading and text."""
    return {
        "spellings": SPELLINGS,
        "pages": [
            [f"{name}.html", texts.title, [[part.anchor, part.heading, part.text] for part in texts.sections]]
            for name, texts in pages.items()
        ],
    }


def as_script(name: str, value: object) -> str:
    """A script that gives a value a name in the page that loads it."""
    return f"window.{name} = {json.dumps(value, ensure_ascii=False, separators=(',', ':'))};\n"


def _write(app, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        script = as_script("handbookSearchIndex", index(page_texts.kept(app)))
        (Path(app.outdir) / "_static" / "search-index.js").write_text(script, encoding="utf-8")
