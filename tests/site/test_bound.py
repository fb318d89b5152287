"""What the ePub and the PDF keep of the pages: nothing that only a page in a browser can do."""

from __future__ import annotations

import re

from bs4 import BeautifulSoup

LEFT_OUT = "script, style, svg, pre, button, form, .pst-js-only, .figure-controls, .headerlink"
"""What neither file has, and what is no sentence."""
PROMISES = re.compile(r"\bpress Commit|\bhover|\bslider|\btype a word", re.IGNORECASE)


def promises(soup: BeautifulSoup) -> list[str]:
    """The sentences of a page that speak of a control, without those about JupyterLab."""
    left_out = {id(tag) for tag in soup.article.select(LEFT_OUT)}
    kept = "".join(text for text in soup.article.strings if not left_out & {id(tag) for tag in text.parents})
    sentences = re.split(r"(?<=[.:?])\s+", " ".join(kept.split()))
    return [sentence for sentence in sentences if PROMISES.search(sentence) and "JupyterLab" not in sentence]


def test_a_bound_page_promises_no_control(soups):
    """What can be pressed, moved or pointed at only on the site is said only there; what JupyterLab can do names it."""
    assert len(soups) > 1
    assert {page: said for page, soup in soups.items() if (said := promises(soup))} == {}


def test_a_promise_is_noticed():
    """The check above can fail: on words that are not marked as the site's own."""
    page = '<article class="bd-article"><p{}>Choose and press Commit.</p> <p>In JupyterLab, hover.</p></article>'
    marked, unmarked = (BeautifulSoup(page.format(mark), "html.parser") for mark in (' class="pst-js-only"', ""))
    assert promises(unmarked) == ["Choose and press Commit."]
    assert promises(marked) == []
