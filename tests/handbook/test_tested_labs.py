"""What nbval executed is what the page of a lab shows."""

import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from handbook.execution import fingerprints
from handbook.execution.execution_cache import Executions, page_parts

pytestmark = pytest.mark.engine  # what a page depends on includes the devices that llama.cpp finds

KERNELSPEC = {"name": "python3", "display_name": "Python 3", "language": "python"}
ON_A_PAGE = new_code_cell("import os, handbook\nprint('a page:', os.environ['INFERLAB_PAGE'])")
GLUED = new_code_cell("handbook.number('answer', 41.5)\n6 * 7")


@pytest.fixture
def kept(tmp_path):
    """What a build would find after nbval has run a notebook of these cells, with more words for pytest; and why."""

    def run(*cells, options=()):
        notebook = new_notebook(cells=[new_markdown_cell("# A lab"), *cells], metadata={"kernelspec": KERNELSPEC})
        (tmp_path / "labs").mkdir(exist_ok=True)
        nbformat.write(notebook, tmp_path / "labs" / "one.ipynb")
        command = [sys.executable, "-m", "pytest", "labs", "--rootdir", str(tmp_path), "--nbval-lax", *options]
        done = subprocess.run(
            [*command, "-p", "handbook.execution.tested_labs"], cwd=tmp_path, capture_output=True, text=True
        )
        build = Executions(tmp_path, tmp_path / "_build" / ".executed", fingerprints.context())
        as_read = nbformat.read(tmp_path / "labs" / "one.ipynb", as_version=4)
        run = build.find("labs/one", page_parts(as_read))
        return run, f"{build.because}\n{done.stdout}{done.stderr}"

    return run


def test_a_tested_lab_is_not_executed_again(kept):
    """Its page finds the outputs of its cells, made by the kernel of the pages, with their time and duration."""
    run, why = kept(ON_A_PAGE, GLUED)
    assert run, why
    (printed,), shown = [outputs for _, outputs in run["cells"]]
    assert printed["text"] == "a page: 1\n"
    assert [output.get("metadata", {}).get("scrapbook", {}).get("name") for output in shown] == ["answer", None]
    assert shown[-1]["data"]["text/plain"] == "42"
    assert run["metadata"]["language_info"]["pygments_lexer"] == "ipython3"
    assert run["result"]["succeeded"]
    assert 0 < run["result"]["runtime"] < 60
    assert sum(run["result"]["cell_seconds"]) == pytest.approx(run["result"]["runtime"])


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        (new_code_cell("1 / 0"), ()),
        (new_code_cell("import sys; print('noise', file=sys.stderr)"), ()),
        (new_code_cell("# NBVAL_SKIP"), ()),
        (GLUED, ("-k", "Cell and 0")),
    ],
    ids=["fails", "writes to standard error", "is skipped", "is not asked for"],
)
def test_a_lab_with_a_cell_that_did_not_pass_is_executed_again(kept, cell, options):
    """One cell that failed, was noisy, or was left out, and the page executes the lab itself."""
    run, _ = kept(ON_A_PAGE, cell, options=options)
    assert run is None


def test_another_model_runs_without_the_stored_outputs(kept, monkeypatch):
    """They are the embedded model's: with INFERLAB_MODEL a difference is no failure, and no page shows the run."""
    stored = new_code_cell("print('mine')", metadata={"tags": ["nbval-check-output"]}, execution_count=1)
    stored.outputs = [new_output("stream", name="stdout", text="another\n")]
    assert "1 failed" in kept(stored)[1]
    monkeypatch.setenv("INFERLAB_MODEL", "tiny")
    run, why = kept(stored)
    assert run is None
    assert "1 passed" in why
