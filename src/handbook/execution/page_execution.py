"""Executes the cells of a page, and says what ended it: a cell that failed, or a machine that was too busy."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from handbook.execution import page_kernel
from inferlab.errors import EngineTimeout

OUTPUT_SECONDS = 60
"""How long a cell's last output may take to arrive, and an interrupted cell to end: nbclient's 4 are few on a busy
machine."""

START_SECONDS = 60
TIMED_OUT = "CellTimedOut"
COLOR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Ending:
    """What ended a page before its last cell.

    cell       its number among the page's code cells, from 1
    cause      in one line; where the page was disturbed, it goes on from "the cell"
    disturbed  whether the machine was too busy, and the cell may be right
    only_times  whether that was a measurement, so that the page can go on to its end with disturbed times
    traceback  all that is known
    """

    cell: int
    cause: str
    disturbed: bool
    only_times: bool
    traceback: str

    def __str__(self) -> str:
        return f"cell {self.cell} {self.cause}"


@dataclass(frozen=True)
class Execution:
    """An execution of a page: what MyST-NB keeps of it, whether it used an engine, and what ended it early."""

    result: dict[str, Any]
    engine: bool = True
    ending: Ending | None = None


def execute(
    notebook: nbformat.NotebookNode, folder: str, timeout: int, allow_errors: bool, *, in_spite_of_others: bool = False
) -> Execution:
    """Execute a page's cells in a new kernel, each within `timeout` seconds; the outputs are in the notebook then.

    The metadata `execution` of the notebook may set both limits anew. A cell over its time is interrupted, which ends
    the request to an engine and its worker; the kernel ends with the call, and with it the workers that are left.
    A measurement that other programs disturb ends the page, unless it is to go on in spite of them.
    """
    own = notebook.metadata.get("execution", {})
    limits = {"timeout": own.get("timeout", timeout), "allow_errors": own.get("allow_errors", allow_errors)}
    begun = [-1]
    replies: list[dict[str, Any]] = []
    client = NotebookClient(
        notebook,
        **limits,
        startup_timeout=max(START_SECONDS, limits["timeout"]),
        iopub_timeout=OUTPUT_SECONDS,
        interrupt_on_timeout=True,
        error_on_timeout={"ename": TIMED_OUT, "evalue": f"took longer than {limits['timeout']} seconds"},
        record_timing=True,
        extra_arguments=[] if in_spite_of_others else list(page_kernel.IN_A_BUILD),
        resources={"metadata": {"path": folder}},
        on_cell_execute=lambda cell, cell_index: begun.append(cell_index),
        on_cell_executed=lambda cell, cell_index, execute_reply: replies.append(execute_reply),
    )
    began, ending = time.perf_counter(), None
    try:
        client.execute()
    except (CellExecutionError, RuntimeError) as error:  # RuntimeError: the kernel died
        ending = _ending(error, [cell for cell in notebook.cells[: begun[-1] + 1] if cell.cell_type == "code"])
    seconds = time.perf_counter() - began
    return Execution(_result(notebook, seconds, ending), any(map(page_kernel.used_engine, replies)), ending)


def _ending(error: Exception, cells: list[nbformat.NotebookNode]) -> Ending:
    """The ending of a page in the last of these code cells."""
    name, text = getattr(error, "ename", type(error).__name__), getattr(error, "evalue", str(error))
    first = next(iter(text.splitlines()), "")
    causes = {
        TIMED_OUT: first,
        page_kernel.PageDisturbed.__name__: first,
        EngineTimeout.__name__: f"had no answer in time: {first}",
    }
    outputs = cells[-1].outputs if name == TIMED_OUT else []
    where = [line for output in outputs if output.output_type == "error" for line in output.traceback]
    traceback = "\n".join([str(error), *where])
    cause = causes.get(name, f"{name}: {first}".removesuffix(": "))
    only_times = name == page_kernel.PageDisturbed.__name__
    return Ending(len(cells), cause, name in causes, only_times, COLOR.sub("", traceback))


def _result(notebook: nbformat.NotebookNode, seconds: float, ending: Ending | None) -> dict[str, Any]:
    return {
        "mtime": time.time(),
        "runtime": seconds,
        "method": "force",
        "succeeded": ending is None,
        "error": ending and ending.cause,
        "traceback": None,  # MyST-NB would warn of a second file
        "cell_seconds": take_cell_seconds(notebook),
    }


def take_cell_seconds(notebook: nbformat.NotebookNode) -> list[float]:
    """Seconds of each code cell from the times that nbclient left in its metadata; 0 where it was empty or ended."""
    return [_seconds(cell.metadata.pop("execution", {})) for cell in notebook.cells if cell.cell_type == "code"]


def _seconds(times: dict[str, str]) -> float:
    moments = [times.get(name, "").replace("Z", "+00:00") for name in ("iopub.status.busy", "shell.execute_reply")]
    began, ended = map(datetime.fromisoformat, moments) if all(moments) else (None, None)
    return (ended - began).total_seconds() if began and ended else 0.0
