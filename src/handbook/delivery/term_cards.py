"""Writes the definitions that `terms.js` shows on a card beside a link to a term of the glossary."""

from __future__ import annotations

from pathlib import Path

from handbook.delivery import page_texts
from handbook.delivery.search_index import as_script

LONGEST = 280
"""Characters on a card."""


def setup(app) -> None:
    """Give each page the cards, and write the definitions when a build ends; they are loaded for the first card."""
    app.add_js_file("terms.js", loading_method="defer")
    app.connect("build-finished", _write)


def definitions(pages: dict[str, page_texts.PageTexts]) -> dict[str, list[str]]:
    """The term and the start of its definition, by the term's anchor."""
    return {
        anchor: [term, page_texts.shortened(text, LONGEST)]
        for texts in pages.values()
        for anchor, (term, text) in texts.terms.items()
    }


def _write(app, exception: Exception | None) -> None:
    if exception is None and app.builder.format == "html":
        script = as_script("handbookTerms", definitions(page_texts.kept(app)))
        (Path(app.outdir) / "_static" / "glossary-terms.js").write_text(script, encoding="utf-8")
