"""What a second build of a small book executes, reads and writes again, told by files that its cells leave."""

import re

import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from handbook import assets, fingerprints

PAGE = """---
jupytext: {{text_representation: {{extension: .md, format_name: myst}}}}
kernelspec: {{name: python3, display_name: Python 3}}
---
({name})=
# Page {name}

```{{code-cell}} ipython3
import sys, time
import handbook
with open({log!r}, "a") as log:
    print({name!r}, file=log)
handbook.number("now", time.time())
```

The cell ran at {{glue:text}}`now:.6f`, and the other page is {{ref}}`{other}`.
"""
SETTINGS = {
    "extensions": ["myst_nb", "handbook"],
    "html_theme": "basic",
    "nb_execution_mode": "force",
    "nb_execution_raise_on_error": True,
    "nb_execution_show_tb": True,
    "nb_output_stderr": "warn",
    "nitpicky": True,
    "root_doc": "book/one",
    "exclude_patterns": ["_build", "node_modules"],
}


class Book:
    """Two pages that refer to each other, and what happens when they are built."""

    def __init__(self, root):
        self.root, self.log = root, root / "_ran.txt"
        for folder in assets.PACKAGE_FILES:
            (root / "node_modules" / folder).mkdir(parents=True, exist_ok=True)
        (root / "book").mkdir()
        for name, other in (("one", "two"), ("two", "one")):
            self.page(name).write_text(PAGE.format(name=name, other=other, log=str(self.log)))
        with self.page("one").open("a") as page:
            page.write("\n```{toctree}\ntwo\n```\n")

    def page(self, name):
        return self.root / "book" / f"{name}.md"

    def html(self, name):
        return self.root / "_build" / "html" / "book" / f"{name}.html"

    def edit(self, name, before, after):
        text = self.page(name).read_text()
        assert before in text
        self.page(name).write_text(text.replace(before, after))

    def build(self):
        """Build once; the pages whose cells ran."""
        self.log.write_text("")
        build = self.root / "_build"
        with docutils_namespace():
            app = Sphinx(self.root, None, build / "html", build / ".doctrees", "html", SETTINGS, status=None)
            app.build()
        self.warnings = app._warncount
        return self.log.read_text().split()

    def moment(self, name):
        """When the page's cell ran, as the page tells it."""
        return re.search(r"ran at ([\d.]+),", re.sub(r"<[^>]+>", "", self.html(name).read_text()))[1]

    def written(self):
        return {name: self.html(name).stat().st_mtime_ns for name in ("one", "two")}


@pytest.fixture
def book(tmp_path, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("HANDBOOK_EXECUTE", raising=False)
    return Book(tmp_path)


def test_an_edited_page_is_executed_alone(book):
    """Only the page whose cell was edited runs and is written; the other keeps its results and their time."""
    assert book.build() == ["one", "two"]
    first, moment = book.written(), book.moment("two")
    assert book.build() == []
    assert book.written() == first
    book.edit("one", "import sys, time", "import time")
    assert book.build() == ["one"]
    assert book.moment("two") == moment
    assert book.written()["one"] != first["one"]
    assert book.written()["two"] == first["two"]
    assert book.warnings == 0


def test_edited_prose_is_written_without_an_execution(book):
    """A page's results hold as long as its cells do, and stand in the new text."""
    book.build()
    first, moment = book.written(), book.moment("one")
    book.edit("one", "The cell ran at", "A new sentence. The cell ran at")
    assert book.build() == []
    assert book.moment("one") == moment
    assert "A new sentence." in book.html("one").read_text()
    assert book.written()["two"] == first["two"]


def test_what_pages_show_of_each_other_stays_right(book):
    """A new title reaches the page that refers to it, and the search, without an execution."""
    book.build()
    book.edit("two", "# Page two", "# Another heading")
    assert book.build() == []
    assert "Another heading" in book.html("one").read_text()
    searched = (book.root / "_build" / "html" / "searchindex.js").read_text()
    assert "Another heading" in searched
    assert "Page one" in searched


def test_a_changed_library_executes_every_page(book, monkeypatch):
    """Results made with another library are not used."""
    book.build()
    monkeypatch.setattr(fingerprints, "library", lambda: "edited")
    assert book.build() == ["one", "two"]
    assert book.build() == []


@pytest.mark.parametrize(("name", "value"), [("CI", "true"), ("HANDBOOK_EXECUTE", "all")])
def test_every_page_can_be_executed(book, monkeypatch, name, value):
    """CI and `make test` execute every page, whatever was kept."""
    book.build()
    monkeypatch.setenv(name, value)
    assert book.build() == ["one", "two"]


def test_a_page_that_wrote_to_standard_error_runs_and_warns_again(book):
    """A build that failed fails again until its cause is gone."""
    book.edit("two", "import handbook", "import handbook; print('noise', file=sys.stderr)")
    for expected in (["one", "two"], ["two"]):
        assert book.build() == expected
        assert book.warnings == 1
    book.edit("two", "; print('noise', file=sys.stderr)", "")
    assert book.build() == ["two"]
    assert book.warnings == 0


def test_a_page_with_a_hidden_standard_error_runs_again(book):
    """What a page does not show of an execution makes its results no better."""
    book.edit("two", "import sys, time", ":tags: [remove-stderr]\nimport sys, time; print('noise', file=sys.stderr)")
    assert book.build() == ["one", "two"]
    assert book.build() == ["two"]


def test_a_broken_reference_is_reported_by_every_build(book):
    """A warning is not forgotten because its page did not change, and costs no execution."""
    book.edit("two", "{ref}`one`", "{ref}`nowhere`")
    book.build()
    assert book.warnings == 1
    assert book.build() == []
    assert book.warnings == 1


def test_a_file_beside_the_pages_has_every_page_written_again(book):
    """Styles, diagrams and sources can show on any page."""
    (book.root / "book" / "sources.bib").write_text("old")
    book.build()
    first = book.written()
    (book.root / "book" / "sources.bib").write_text("new")
    assert book.build() == []
    assert all(book.written()[name] != first[name] for name in first)


def test_results_that_are_gone_are_made_again(book):
    """Without its kept results a page runs, although Sphinx still remembers it."""
    book.build()
    (book.root / "_build" / ".executed" / "book" / "one.json").unlink()
    assert book.build() == ["one"]
