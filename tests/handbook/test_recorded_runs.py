"""What a build shows where the machine was too busy, what it says where a cell failed, and what CI lets pass."""

import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from handbook.execution import fingerprints, recorded_runs

ROOT = Path(__file__).parents[2]
HEAD = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, display_name: Python 3}
---
"""
MEASURED = """# Measured

A sentence that says what this page is about, for whoever finds it.

```{code-cell} ipython3
import pathlib, time
```

```{code-cell} ipython3
import handbook
from inferlab.engine.client import LlamaEngine
if pathlib.Path("busy").exists():
    engine = LlamaEngine()
    engine.ready()
    pathlib.Path("pids").write_text(f"{engine.pid} {__import__('os').getpid()}")
    time.sleep(1000)
LlamaEngine().ready()
handbook.number("moment", f"ran at {time.time_ns()}")
```

This page {glue:text}`moment`.
"""
DISTURBED = """# Measured

```{code-cell} ipython3
import pathlib, sys
sys.path.insert(0, TESTS)
from itertools import count
from fakes import ScriptedEngine, scripted_pass
from inferlab.engine import cpu_time
from inferlab.measurement.run import measure
from inferlab.model.find import tiny_model
cpu_time.since = lambda began, others: (1.0, OTHERS)
try:
    noisy = ScriptedEngine([scripted_pass(ttft=seconds) for seconds in range(1, 12)])
    run = measure(tiny_model(), n_prompt=8, n_gen=3, repeats=1, engine=noisy)
    print("settled:", run.settled)
except Exception:
    print("caught")
```

```{code-cell} ipython3
open("went-on", "w").close()
```
"""
TABLE = """# About

```{nb-exec-table}
```
"""
FAILING = """# Failing

```{code-cell} ipython3
import handbook
```

```{code-cell} ipython3
from inferlab.settings import Settings
Settings(n_gpu_layer=1)
```

```{code-cell} ipython3
handbook.number("never", 1.0)
```

It is {glue:text}`never:.2f`, and {glue:}`nothing`.
"""
SETTINGS = {
    "extensions": ["myst_nb", "handbook"],
    "html_theme": "basic",
    "nb_execution_mode": "force",
    "nb_output_stderr": "warn",
    "nitpicky": True,
    "root_doc": "index",
    "exclude_patterns": ["_build", "node_modules"],
}
SHORT = 6
"""Seconds that a cell may take where one of them takes longer: any other cell of these pages is done by then."""


class Book:
    """Pages below `book/`, and how a strict build of them ends."""

    def __init__(self, root):
        self.root = root
        (root / "node_modules").symlink_to(ROOT / "node_modules")
        (root / "book").mkdir()
        self.write("about", TABLE)
        (root / "index.md").write_text("# A book\n\n```{toctree}\n:glob:\nbook/*\n```\n")

    def write(self, name, text):
        (self.root / "book" / f"{name}.md").write_text(HEAD + text)

    def busy(self, is_busy):
        """Whether the second cell of MEASURED takes longer than any test."""
        (self.root / "book" / "busy").touch() if is_busy else (self.root / "book" / "busy").unlink()

    def build(self, timeout=600):
        """The exit status; what was written to the terminal is in `status` and `warnings`."""
        build, streams = self.root / "_build", (io.StringIO(), io.StringIO())
        settings = {**SETTINGS, "nb_execution_timeout": timeout}
        with docutils_namespace():
            app = Sphinx(
                self.root,
                None,
                build / "html",
                build / ".doctrees",
                "html",
                settings,
                *streams,
                warningiserror=True,
                keep_going=True,
            )
            app.build()
        self.status, self.warnings = (re.sub(r"\x1b\[[\d;]*m", "", stream.getvalue()) for stream in streams)
        return app.statuscode

    def text(self, name):
        """What a page says."""
        html = (self.root / "_build" / "html" / "book" / f"{name}.html").read_text()
        return " ".join(re.sub(r"<[^>]+>", " ", html).split())

    def moment(self):
        """When the page's second cell ran, as the page tells it."""
        return re.search(r"ran at \d+", self.text("one"))[0]

    def disturbed_pages(self):
        return json.loads((self.root / "_build" / "disturbed.json").read_text())


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A book with one page of cells, and no recorded runs."""
    monkeypatch.setattr(recorded_runs, "FOLDER", tmp_path / "recorded")
    (tmp_path / "of-a-book").mkdir()
    book = Book(tmp_path / "of-a-book")
    book.write("one", MEASURED)
    return book


@pytest.mark.engine
def test_a_cell_over_its_time_shows_the_recorded_run(book):
    """The whole page does, and says so; the build ends well with one line, and the next one executes the page."""
    assert book.build() == 0
    assert recorded_runs.write(book.root)[0].startswith("recorded book/one: ")
    recorded = book.moment()
    shutil.rmtree(book.root / "_build")
    book.busy(True)
    assert book.build(SHORT) == 0
    assert book.warnings == ""
    machine = fingerprints.machine_text(fingerprints.this_machine())
    assert f"busy machine: cell 2 took longer than {SHORT} seconds. All results on this page" in book.text("one")
    assert f"It used this machine: {machine}." in book.text("one")
    assert book.moment() == recorded
    assert book.disturbed_pages() == {"book/one": f"cell 2 took longer than {SHORT} seconds"}
    assert f"Disturbed pages, which say so: book/one (cell 2 took longer than {SHORT} seconds)." in book.status
    assert recorded_runs.METHOD in book.text("about")
    searched = (book.root / "_build" / ".texts" / "book" / "one.json").read_text()
    assert "what this page is about" in searched
    assert "busy machine" not in searched
    pids = (book.root / "book" / "pids").read_text().split()
    _, alive = psutil.wait_procs([psutil.Process(int(pid)) for pid in pids if psutil.pid_exists(int(pid))], 30)
    assert alive == []
    book.busy(False)
    assert book.build() == 0
    assert book.moment() != recorded
    assert "busy machine" not in book.text("one")
    assert book.disturbed_pages() == {}


@pytest.mark.engine
def test_this_machines_own_results_come_first(book, monkeypatch):
    """Results of the same cells that were kept before the library changed are shown in place of the recorded run."""
    assert book.build() == 0
    recorded_runs.write(book.root)
    (book.root / "_build" / ".executed" / "book" / "one.json").unlink()
    assert book.build() == 0
    own = book.moment()
    monkeypatch.setattr(fingerprints, "library_digest", lambda: "edited")
    book.busy(True)
    for _ in range(2):  # the second build keeps them, too
        assert book.build(SHORT) == 0
        assert book.moment() == own
        assert list(book.disturbed_pages()) == ["book/one"]


@pytest.mark.engine
def test_a_recorded_run_of_other_cells_is_none(book):
    """Then the build fails with what to do, and the other pages are built."""
    assert book.build() == 0
    recorded_runs.write(book.root)
    shutil.rmtree(book.root / "_build")
    book.write("one", MEASURED.replace("import handbook\n", "import handbook  # edited\n"))
    book.busy(True)
    assert book.build(SHORT) == 1
    (line,) = book.warnings.splitlines()
    assert f"book/one, cell 2: The machine was busy: the cell took longer than {SHORT} seconds; and no run" in line
    assert "End other programs and build again." in line
    assert book.disturbed_pages() == {}
    assert (book.root / "_build" / "html" / "book" / "about.html").exists()


@pytest.mark.engine
@pytest.mark.parametrize(("others", "disturbed"), [(0.5, True), (0.2, False)])
def test_a_disturbed_measurement_ends_the_page_at_once(book, others, disturbed, monkeypatch):
    """No `except` on the way keeps it, and the earlier run is shown; a machine that is noisy alone is no busy one."""
    page = DISTURBED.replace("TESTS", repr(str(ROOT / "tests")))
    book.write("one", page.replace("OTHERS", "float(pathlib.Path('others').read_text())"))
    others_used = book.root / "book" / "others"
    others_used.write_text("0.0")
    assert book.build() == 0
    monkeypatch.setattr(fingerprints, "library_digest", lambda: "edited")
    (book.root / "book" / "went-on").unlink()
    others_used.write_text(str(others))
    assert book.build() == 0
    assert (book.root / "book" / "went-on").exists() is not disturbed
    assert "settled: False" in book.text("one")
    assert ("busy machine: cell 1 measured while other programs used 0.5 processors" in book.text("one")) is disturbed


@pytest.mark.engine
def test_without_an_earlier_run_the_times_are_shown_as_disturbed(book):
    """The page is executed to its end, says so, and is executed again by the next build."""
    book.write("one", DISTURBED.replace("OTHERS", "0.5").replace("TESTS", repr(str(ROOT / "tests"))))
    for _ in range(2):
        assert book.build() == 0
        assert (book.root / "book" / "went-on").exists()
        assert "settled: False" in book.text("one")
        assert "Times on this page are longer than on a quiet machine." in book.text("one")
        assert list(book.disturbed_pages()) == ["book/one"]
        (book.root / "book" / "went-on").unlink()


@pytest.mark.engine
def test_a_failing_cell_ends_in_one_sentence(tmp_path):
    """Page, cell, cause, and the file of the traceback, which is not on the terminal; the other pages are built."""
    book = Book(tmp_path)
    book.write("one", FAILING)
    (tmp_path / "index.md").write_text("# A book\n")
    toc = {"format": "jb-book", "root": "index", "chapters": [{"file": "book/about"}, {"file": "book/one"}]}
    (tmp_path / "_toc.yml").write_text(json.dumps(toc))
    settings = {"execute": {"execute_notebooks": "force"}, "sphinx": {"extra_extensions": ["handbook"]}}
    (tmp_path / "_config.yml").write_text(json.dumps({**settings, "only_build_toc_files": True}))
    command = [Path(sys.executable).with_name("jupyter-book"), "build", ".", "-n", "-W", "--keep-going"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    terminal = re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    sentence = r"WARNING: book/one, cell 2: InvalidSettings: There is no setting 'n_gpu_layer'.*\(traceback: (\S+)\)"
    assert len(re.findall(sentence, terminal)) == terminal.count("WARNING") == 1
    assert "Traceback (most" not in terminal
    assert "Settings(n_gpu_layer=1)" in (tmp_path / re.search(sentence, terminal)[1]).read_text()
    assert (tmp_path / "_build" / "html" / "book" / "about.html").exists()


def kept(root, name, engine=True, page="page"):
    """A run of a page, as a build keeps it."""
    result = {"mtime": 1e9, "runtime": 1.0, "succeeded": True}
    run = {"made_with": {"page": page}, "machine": "Example CPU", "engine": engine, "result": result, "cells": []}
    file = root / "_build" / ".executed" / f"{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({**run, "metadata": {}}))
    (root / Path(name).parent).mkdir(exist_ok=True)
    (root / f"{name}.md").touch()


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(recorded_runs, "FOLDER", tmp_path / "recorded")
    return tmp_path


def test_runs_are_recorded_once_for_the_same_cells(root):
    """A page that used an engine is recorded, again only when its cells changed; one that only computes is not."""
    kept(root, "book/one")
    kept(root, "book/two", engine=False)
    assert [line.partition(":")[0] for line in recorded_runs.write(root)] == ["recorded book/one"]
    assert recorded_runs.write(root) == []
    assert recorded_runs.recorded("book/one")["machine"] == "Example CPU"
    assert recorded_runs.recorded("book/two") is None
    kept(root, "book/one", page="edited")
    assert len(recorded_runs.write(root)) == 1
    assert recorded_runs.recorded("book/one")["made_with"]["page"] == "edited"


def test_a_recorded_run_goes_with_its_page(root):
    """A page that was renamed leaves nothing."""
    kept(root, "book/one")
    recorded_runs.write(root)
    (root / "book" / "one.md").rename(root / "book" / "two.md")
    shutil.rmtree(root / "_build")
    assert recorded_runs.write(root) == ["removed book/one: there is no such page"]
    assert recorded_runs.recorded("book/one") is None


@pytest.mark.parametrize("data", [b"", b"{", b"\xfd7zXZ\x00damaged"])
def test_a_damaged_recorded_run_is_none(root, data):
    """What cannot be read is not shown."""
    kept(root, "book/one")
    recorded_runs.write(root)
    (root / "recorded" / "book" / "one.json.xz").write_bytes(data)
    assert recorded_runs.recorded("book/one") is None


@pytest.mark.parametrize(("n_pages", "status"), [(0, 0), (3, 0), (4, 1)])
def test_continuous_integration_lets_three_pages_pass(root, capsys, n_pages, status):
    """With a fourth that was disturbed `make test` fails; it names them all."""
    (root / "_build").mkdir()
    pages = {f"book/{n}": "cell 1 took longer than 600 seconds" for n in range(n_pages)}
    (root / "_build" / "disturbed.json").write_text(json.dumps(pages))
    assert recorded_runs.main(["check"], root) == status
    said = capsys.readouterr().out
    assert f"Pages that were disturbed: {n_pages}, of at most 3" in said
    assert all(page in said for page in pages)


def test_every_recorded_run_can_be_shown():
    """Each file is whole and of an execution that succeeded, and its page is in the book."""
    for file in recorded_runs.FOLDER.rglob("*.xz"):
        name = file.relative_to(recorded_runs.FOLDER).as_posix().removesuffix(".json.xz")
        assert recorded_runs.recorded(name)["result"]["succeeded"], name
        assert any((ROOT / f"{name}{suffix}").is_file() for suffix in (".md", ".ipynb")), name
