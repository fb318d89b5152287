"""What the ePub and the PDF keep of the pages: nothing that only a page in a browser can do."""

from __future__ import annotations

import re

import pytest
from bs4 import BeautifulSoup

LEFT_OUT = "script, style, svg, pre, button, form, .pst-js-only, .figure-controls, .headerlink"
"""What neither file has, and what is no sentence."""
PROMISES = re.compile(r"\bpress Commit|\bhover|\bslider|\btype a word", re.IGNORECASE)


@pytest.fixture(scope="module")
def promised(built_book) -> dict[str, list[str]]:
    """The sentences of each page that speak of a control, without those about JupyterLab."""
    pages = [*built_book.glob("book/**/*.html"), *built_book.glob("labs/*.html")]
    return {page.stem: promises(page.read_text(encoding="utf-8")) for page in pages}


def promises(html: str) -> list[str]:
    article = BeautifulSoup(html, "html.parser").article
    for tag in article.select(LEFT_OUT):
        tag.decompose()
    sentences = re.split(r"(?<=[.:?])\s+", " ".join(article.get_text().split()))
    return [one for one in sentences if PROMISES.search(one) and "JupyterLab" not in one]


def test_a_bound_page_promises_no_control(promised):
    """What can be pressed, moved or pointed at only on the site is said only there; what JupyterLab can do names it."""
    assert len(promised) > 1
    assert {name: found for name, found in promised.items() if found} == {}


def test_a_promise_is_noticed():
    """The check above can fail: on words that are not marked as the site's own."""
    page = '<article class="bd-article"><p{}>Choose and press Commit.</p> <p>In JupyterLab, hover.</p></article>'
    assert promises(page.format("")) == ["Choose and press Commit."]
    assert promises(page.format(' class="pst-js-only"')) == []
