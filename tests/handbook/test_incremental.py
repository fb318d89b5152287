"""What a second build of a small book executes, reads and writes again, told by files that its cells leave."""

import os
import re
import shutil
from pathlib import Path

import pytest
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util.docutils import docutils_namespace

from handbook.execution import fingerprints, study_use
from handbook.execution.execution_cache import Executions
from handbook.execution.incremental import lock_build, summary

pytestmark = pytest.mark.engine  # what a page depends on includes the devices that llama.cpp finds

ROOT = Path(__file__).parents[2]
PAGE = """---
jupytext: {{text_representation: {{extension: .md, format_name: myst}}}}
kernelspec: {{name: python3, display_name: Python 3}}
---
({name})=
# Page {name}

```{{code-cell}} ipython3
import time
print("ran at", time.time())
with open({log!r}, "a") as log:
    print({name!r}, file=log)
```

The other page is {{ref}}`{other}`.
"""
GLUED = """
```{code-cell} ipython3
import handbook
handbook.number("answer", 41.5)
```

In a sentence it is {glue:text}`answer:.2f`.

```{toctree}
two
```
"""
SETTINGS = {
    "extensions": ["myst_nb", "handbook"],
    "html_theme": "basic",
    "nb_execution_mode": "force",
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
        (root / "node_modules").symlink_to(ROOT / "node_modules")
        (root / "book").mkdir()
        for name, other in (("one", "two"), ("two", "one")):
            self.page(name).write_text(PAGE.format(name=name, other=other, log=str(self.log)))
        self.page("one").write_text(self.page("one").read_text() + GLUED)

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
        return re.search(r"ran at ([\d.]+)", self.html(name).read_text())[1]

    def written(self):
        return {name: self.html(name).stat().st_mtime_ns for name in ("one", "two")}


@pytest.fixture(scope="module")
def built_once(tmp_path_factory):
    """The book after its first build, and a copy of it."""
    folder = tmp_path_factory.mktemp("incremental")
    (folder / "book").mkdir()
    book = Book(folder / "book")
    assert book.build() == ["one", "two"]
    shutil.copytree(book.root, folder / "copy", symlinks=True)
    return book


@pytest.fixture
def book(built_once):
    """The book as its first build left it."""
    shutil.rmtree(built_once.root)
    shutil.copytree(built_once.root.with_name("copy"), built_once.root, symlinks=True)
    return built_once


def test_an_edited_page_is_executed_alone(book):
    """Only the page whose cell was edited runs and is written; the other keeps its results and their time."""
    first, moments = book.written(), [book.moment(name) for name in ("one", "two")]
    assert book.build() == []
    assert book.written() == first
    book.edit("two", "import time", "import time  # edited")
    assert book.build() == ["two"]
    assert [book.moment("one"), book.moment("two") == moments[1]] == [moments[0], False]
    assert book.written()["two"] != first["two"]
    assert book.warnings == 0


def test_edited_prose_is_written_without_an_execution(book):
    """A page's results and glued values hold as long as its cells do, and stand in the new text."""
    first, moment = book.written(), book.moment("one")
    book.edit("one", "In a sentence it is", "In a new sentence it is")
    assert book.build() == []
    assert book.moment("one") == moment
    assert "In a new sentence it is 41.50." in re.sub(r"<[^>]+>", "", book.html("one").read_text())
    assert book.written()["two"] == first["two"]


def test_an_edit_counts_by_content(book):
    """A page that is older than its reading is still read again when its text differs, and not because of its date."""
    first = book.written()
    book.edit("two", "The other page", "A page")
    os.utime(book.page("two"), (1e9, 1e9))
    assert book.build() == []
    assert "A page is" in book.html("two").read_text()
    assert book.written()["two"] != first["two"]


def test_what_pages_show_of_each_other_stays_right(book):
    """A new title reaches the page that refers to it, and the search, without an execution."""
    book.edit("two", "# Page two", "# Another heading")
    assert book.build() == []
    assert book.html("one").read_text().count("Another heading") > book.html("one").read_text().count("Page two")
    searched = (book.root / "_build" / "html" / "searchindex.js").read_text()
    assert "Another heading" in searched
    assert "Page one" in searched


def test_a_changed_library_executes_every_page(book, monkeypatch):
    """Results made with another library are not used."""
    monkeypatch.setattr(fingerprints, "library_digest", lambda: "edited")
    assert book.build() == ["one", "two"]
    assert book.build() == []


def test_an_edit_in_a_study_executes_its_own_page_alone(book, monkeypatch):
    """Another page keeps its results."""
    book.edit("two", "import time", "import time, studies.training")
    monkeypatch.setattr(study_use, "studies_digest", lambda text: "training" * ("studies.training" in text))
    assert book.build() == ["one", "two"]
    moment = book.moment("one")
    monkeypatch.setattr(study_use, "studies_digest", lambda text: "edited" * ("studies.training" in text))
    assert book.build() == ["two"]
    assert book.moment("one") == moment
    assert book.build() == []


def test_a_page_that_wrote_to_standard_error_runs_and_warns_again(book):
    """A build that failed fails again until its cause is gone."""
    book.edit("two", "import time", "import sys, time; print('noise', file=sys.stderr)")
    for _ in range(2):
        assert book.build() == ["two"]
        assert book.warnings == 1
    book.edit("two", "import sys, time; print('noise', file=sys.stderr)", "import time")
    assert book.build() == ["two"]
    assert book.warnings == 0


def test_a_broken_reference_is_reported_by_every_build(book):
    """A warning is not forgotten because its page did not change, and costs no execution."""
    book.edit("two", "{ref}`one`", "{ref}`nowhere`")
    for _ in range(2):
        assert book.build() == []
        assert book.warnings == 1


def test_a_file_beside_the_pages_has_every_page_written_again(book):
    """Styles, diagrams and sources can show on any page."""
    first = book.written()
    (book.root / "book" / "sources.bib").write_text("new")
    assert book.build() == []
    assert all(book.written()[name] != first[name] for name in first)


def test_results_that_are_gone_are_made_again(book):
    """Without its kept results a page runs, although Sphinx still remembers it."""
    (book.root / "_build" / ".executed" / "book" / "two.json").unlink()
    assert book.build() == ["two"]


def test_a_build_says_what_it_executed(tmp_path):
    """Each executed page is told with its seconds and its reason, and the whole build with its own."""
    build = Executions(tmp_path, tmp_path, {}, executed={"book/one": 12.34}, because={"book/one": "changed: page"})
    assert summary(build, 20.0) == "Pages executed: 1. The build took 20.0 s.\n  book/one: 12.3 s (changed: page)"


def test_no_page_shows_a_value_that_another_page_glued():
    """Such a page would not be written again when the value changes."""
    pages = [*ROOT.glob("book/**/*.md"), *ROOT.glob("labs/*.ipynb")]
    assert pages
    assert [page.name for page in pages if re.search(r"\{glue[^}]*\}`[^`]*::", page.read_text(encoding="utf-8"))] == []


def test_a_second_build_beside_a_running_one_is_refused(book):
    """Two builds would disturb each other's measurements; the second says so, and works once the first has ended."""
    lock = lock_build(book.root / "_build" / ".executed")
    with pytest.raises(ExtensionError, match="Another build is running"):
        book.build()
    lock.release()
    assert book.build() == []
