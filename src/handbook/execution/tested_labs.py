"""A pytest plugin for nbval: what a lab's test executed need not be executed again for its page.

    pytest labs --nbval-lax -p handbook.execution.tested_labs

Labs run in the kernel that executes pages. A lab of which every cell passed leaves its outputs with `execution_cache`,
where the next build finds them. With INFERLAB_MODEL the labs run with another model than the pages show: stored outputs
are those of the embedded model, so nothing is compared with them, and nothing is left.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from ipykernel.ipkernel import IPythonKernel
from nbval.plugin import IPyNbCell

from handbook.execution import fingerprints, page_kernel
from handbook.execution.execution_cache import Executions, page_parts
from handbook.execution.page_execution import Execution
from inferlab.model.find import ENVIRONMENT

Tested = list[tuple[IPyNbCell, pytest.CallInfo]]
TESTED: pytest.StashKey[dict[Path, Tested]] = pytest.StashKey()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the kernel, and keep a place for what is tested."""
    page_kernel.choose()
    tested: dict[Path, Tested] = defaultdict(list)
    config.stash[TESTED] = tested


def pytest_itemcollected(item: pytest.Item) -> None:
    """Run the cells of another model without comparing their outputs."""
    if isinstance(item, IPyNbCell) and os.environ.get(ENVIRONMENT):
        item.options["check"] = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, Any]:
    """Remember each cell that passed."""
    report = yield
    if isinstance(item, IPyNbCell) and report.when == "call" and report.passed:
        item.config.stash[TESTED][item.path].append((item, call))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the outputs of the labs of which every cell passed."""
    if os.environ.get(ENVIRONMENT):
        return
    root = session.config.rootpath
    machine = fingerprints.machine_text(fingerprints.this_machine())
    executions = Executions(root, root / "_build" / ".executed", fingerprints.context(), machine)
    for lab, tested in session.config.stash[TESTED].items():
        notebook = nbformat.read(lab, as_version=4)
        if len(tested) == sum(cell.cell_type == "code" for cell in notebook.cells):
            keep(executions, lab, notebook, tested)


def keep(executions: Executions, path: Path, notebook: nbformat.NotebookNode, tested: Tested) -> None:
    """Put the outputs of a lab's cells into its notebook, and keep them as a build does."""
    page = page_parts(notebook)
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for item, _ in tested:
        code_cells[item.cell_num].outputs = item.test_outputs
    notebook.metadata.language_info = nbformat.from_dict(IPythonKernel.language_info)
    calls = [call for _, call in tested]
    result = {
        "mtime": max(call.stop for call in calls),
        "runtime": sum(call.duration for call in calls),
        "cell_seconds": [call.duration for call in calls],
        "method": "nbval",
        "succeeded": True,
        "error": None,
        "traceback": None,
    }
    executions.keep(executions.name(path), page, notebook, Execution(result))
