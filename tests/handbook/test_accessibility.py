"""What the theme and docutils write is mended before a page is: names, roles, empty headings."""

import pytest
from bs4 import BeautifulSoup

from handbook.delivery.accessibility import mended, named_folds


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ('<summary aria-label="Toggle hidden content"><p>Show code</p>', "<summary><p>Show code</p>"),
        ('<div class="citation" role="doc-biblioentry">', '<div class="citation" role="listitem">'),
        ('<th class="head"><p></p></th><th></th><th>rate</th>', "<td></td><td></td><th>rate</th>"),
        ("<td><p>\u2705</p></td><td>\u2705</td>", "<td><p>executed</p></td><td>executed</td>"),
    ],
)
def test_what_a_screen_reader_stumbles_over_is_mended(written, instead):
    """A fold has its visible name, an entry no deprecated role, an empty corner no heading, a status a word."""
    assert mended(written) == instead


def test_an_arrow_of_the_sidebar_names_its_chapter():
    """Only entries with pages under them have an arrow."""
    fold = "<details><summary><i></i></summary><ul><li><a>Tokens</a></li></ul></details>"
    chapter = f"<li><a>Anatomy</a>{fold}</li>"
    sidebar = named_folds(BeautifulSoup(f"<ul>{chapter}<li><a>Alone</a></li></ul>", "html.parser"))
    assert [summary["aria-label"] for summary in sidebar.find_all("summary")] == ["Pages under Anatomy"]
