"""What the theme and docutils write is mended before a page is: names, roles, empty headings."""

from bs4 import BeautifulSoup

from handbook.accessibility import mended, named_folds


def test_a_fold_of_code_is_called_what_it_shows():
    """The visible words are its name, and no other."""
    fold = '<details><summary aria-label="Toggle hidden content"><p>Show code</p></summary></details>'
    assert mended(fold) == "<details><summary><p>Show code</p></summary></details>"


def test_an_entry_of_the_bibliography_is_an_item_of_its_list():
    """The role that docutils writes is deprecated, and not allowed inside a list."""
    assert mended('<div class="citation" role="doc-biblioentry">') == '<div class="citation" role="listitem">'


def test_the_empty_corner_of_a_table_is_no_heading():
    """A heading with words stays one."""
    assert mended('<tr><th class="head"><p></p></th><th>rate</th></tr>') == "<tr><td></td><th>rate</th></tr>"
    assert mended("<tr><th></th></tr>") == "<tr><td></td></tr>"


def test_the_status_of_an_execution_is_a_word():
    """The sign that stands there otherwise is in no font of the site."""
    assert mended("<td><p>\u2705</p></td><td>\u2705</td>") == "<td><p>executed</p></td><td>executed</td>"


def test_an_arrow_of_the_sidebar_names_its_chapter():
    """Only entries with pages under them have an arrow."""
    fold = "<details><summary><i></i></summary><ul><li><a>Tokens</a></li></ul></details>"
    chapter = f"<li><a>Anatomy</a>{fold}</li>"
    sidebar = named_folds(BeautifulSoup(f"<ul>{chapter}<li><a>Alone</a></li></ul>", "html.parser"))
    assert [summary["aria-label"] for summary in sidebar.find_all("summary")] == ["Pages under Anatomy"]
