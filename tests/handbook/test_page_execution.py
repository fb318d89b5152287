"""What ends a page, and what is known of it."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from handbook.execution import page_kernel
from handbook.execution.page_execution import execute, take_cell_seconds

KERNELSPEC = {"name": "python3", "display_name": "Python 3", "language": "python"}
COMPUTES = "subprocess.run([sys.executable, '-c', 'import time\\nwhile time.process_time() < 0.5: pass'])"


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """The execution of a page with these code cells, each after a paragraph."""
    monkeypatch.setenv("JUPYTER_PATH", "")
    page_kernel.choose()

    def run(*sources, **metadata):
        cells = [cell for source in sources for cell in (new_markdown_cell("Text"), new_code_cell(source))]
        notebook = new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC, **metadata})
        return execute(notebook, str(tmp_path), timeout=600, allow_errors=False)

    return run


@pytest.mark.parametrize(
    ("source", "cause", "disturbed"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero", False),
        ("raise ValueError", "ValueError", False),
        ("raise RuntimeError('First line.\\nSecond line.')", "RuntimeError: First line.", False),
        ("import os; os._exit(1)", "DeadKernelError: Kernel died", False),
        ("from inferlab.errors import EngineTimeout as E; raise E('No.')", "had no answer in time: No.", True),
    ],
)
def test_a_page_ends_in_the_cell_that_failed(executed, source, cause, disturbed):
    """Its number counts code cells alone; an engine that did not answer means a busy machine, any other error none."""
    ending = executed("", source, "2").ending
    assert (ending.cell, ending.cause, ending.disturbed) == (2, cause, disturbed)
    assert (cause.partition(": ")[2] or cause) in ending.traceback
    assert "\x1b" not in ending.traceback


def test_a_whole_page_has_no_ending_and_tells_whether_it_used_an_engine(executed):
    """What merely computes in its own process needs no recorded run; one whose processes compute does."""
    alone = executed("sum(range(1000))")
    assert (alone.ending, alone.engine, alone.result["succeeded"]) == (None, False, True)
    assert executed("import subprocess, sys", COMPUTES, "2").engine is True


def test_a_page_may_set_its_own_limits(executed):
    """As for MyST-NB: with `allow_errors` in its metadata a page shows an error and goes on."""
    assert executed("1 / 0", execution={"allow_errors": True}).ending is None


def test_each_cell_has_its_seconds_and_the_page_keeps_no_trace():
    """From the times that nbclient notes; an empty cell took none."""
    times = {"iopub.status.busy": "2026-11-26T10:00:00.5Z", "shell.execute_reply": "2026-11-26T10:00:02Z"}
    cells = [new_code_cell("1", metadata={"execution": times}), new_code_cell("", metadata={"execution": {}})]
    page = new_notebook(cells=cells)
    assert take_cell_seconds(page) == [1.5, 0.0]
    assert all("execution" not in cell.metadata for cell in page.cells)
