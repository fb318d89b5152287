"""British spellings as keywords of a page, so that a search for `quantisation` finds quantization."""

from __future__ import annotations

import re

from docutils import nodes

AMERICAN = re.compile(r"[a-z]{4,}iz(?:e|ed|er|es|ing|ation)s?\b")
PAIRS = {
    "analyze": "analyse",
    "behavior": "behaviour",
    "center": "centre",
    "color": "colour",
    "license": "licence",
    "program": "programme",
}


def setup(app) -> None:
    """Give each page the other spellings of its words; Sphinx puts keywords into the search index."""
    app.connect("doctree-read", _add_keywords)


def other_spellings(text: str) -> list[str]:
    """The British spellings of the American words in a text, in alphabetical order."""
    words = text.lower()
    found = {word.replace("iz", "is") for word in AMERICAN.findall(words)}
    found |= {british for american, british in PAIRS.items() if re.search(rf"\b{american}", words)}
    return sorted(found)


def _add_keywords(app, doctree) -> None:
    words = other_spellings(doctree.astext())
    if words:
        doctree.insert(0, nodes.meta("", name="keywords", content=", ".join(words)))
