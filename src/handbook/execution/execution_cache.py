"""Reuses the results of a page's last execution while nothing has changed that they can depend on.

Results are kept in `_build/.executed`, one file for each page, with digests of the page's code cells, of the studies
that they name, and of the parts of `fingerprints.context`. The whole page is executed again if a digest differs, or if
its last execution failed or wrote to standard error. A page that a busy machine disturbs shows an earlier run of the
same code cells: the one kept here, whatever its context, else the recorded one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from myst_nb.core.execute import NotebookClientBase, NotebookClientDirect, create_client

from handbook.execution import fingerprints, recorded_runs, study_use
from handbook.execution.page_execution import Ending, Execution, execute
from inferlab.records import write_whole

METADATA_OF_EXECUTION = ("language_info", "widgets")
"""Metadata that an execution adds to a notebook."""


def is_ci(environment: Mapping[str, str]) -> bool:
    """Whether this is a build for others, where nothing may be missing."""
    return environment.get("CI", "") not in ("", "0", "false")


@dataclass
class Executions:
    """The pages that one build executes, and the results that it takes from earlier builds.

    root       the book's folder, from which pages are named
    folder     where results are kept
    context    what results can depend on beside the page, see `fingerprints.context`
    machine    this machine, in words
    executed   seconds by page; `because` has the reason by page
    disturbed  by page, what other programs disturbed: it shows an earlier run, where there is one
    failed     a sentence by page
    """

    root: Path
    folder: Path
    context: dict[str, str]
    machine: str = "unknown"
    executed: dict[str, float] = field(default_factory=dict)
    because: dict[str, str] = field(default_factory=dict)
    disturbed: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def client(self, *arguments: Any, **named: Any) -> NotebookClientBase:
        """The client of MyST-NB's `create_client`, which here looks for kept results before it executes."""
        client = create_client(*arguments, **named)
        if not isinstance(client, NotebookClientDirect) or client.path is None:
            return client
        return CachingClient(client.notebook, client.path, client.nb_config, client.logger, executions=self)

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).with_suffix("").as_posix()

    def has(self, name: str) -> bool:
        """Whether results of a page are kept, of whatever age."""
        return self._file(name).is_file()

    def find(self, name: str, page: Mapping[str, str]) -> dict[str, Any] | None:
        """The kept results of a page, if they were made with the same `page_parts` and context."""
        kept = recorded_runs.read(self._file(name))
        made_with = {**self.context, **page}
        if kept and kept["made_with"] == made_with:
            return kept
        self.because[name] = _why_executed(kept["made_with"], made_with) if kept else "no results kept"
        return None

    def keep(self, name: str, page: Mapping[str, str], notebook: nbformat.NotebookNode, execution: Execution) -> None:
        """Keep what was executed, or nothing when it failed, wrote to standard error, or the library changed since."""
        result = execution.result
        self.executed[name] = result["runtime"]
        self._file(name).unlink(missing_ok=True)
        same = fingerprints.library_digest() == self.context["library"] and page["studies"] == _studies(notebook)
        if same and is_clean(notebook, result):
            made = {"made_with": {**self.context, **page}, "machine": self.machine, "engine": execution.engine}
            write_whole(self._file(name), json.dumps({**made, "result": result, **outputs_of(notebook)}))

    def earlier(self, name: str, page: Mapping[str, str]) -> dict[str, Any] | None:
        """A run of the same code cells: this machine's last one, else the recorded one."""
        runs = (recorded_runs.read(self._file(name)), recorded_runs.recorded(name))
        return next((run for run in runs if run and run["made_with"]["page"] == page["page"]), None)

    def fail(self, name: str, ending: Ending) -> None:
        """Note in one sentence why a page failed, with the file that has the traceback."""
        file = failures(self.folder) / f"{name}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(ending.traceback, encoding="utf-8")
        cause = ending.cause
        if ending.disturbed:
            cause = (
                f"The machine was busy: the cell {cause}; and no run of these cells is recorded. "
                "End other programs and build again."
            )
        self.failed[name] = f"{name}, cell {ending.cell}: {cause} (traceback: {os.path.relpath(file, self.root)})"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def failures(folder: Path) -> Path:
    """Where the tracebacks of failed pages lie: beside the folder of the kept results."""
    return folder.parent / "failed"


class CachingClient(NotebookClientDirect):
    """Executes a page, or puts the results of an earlier run into it."""

    def start_client(self) -> None:
        executions: Executions = self._kwargs["executions"]
        name, page = executions.name(self.path), page_parts(self.notebook, self.nb_config.execution_in_temp)
        if kept := executions.find(name, page):
            restore_outputs(self.notebook, kept)
            self.exec_metadata = kept["result"]
            return
        execution = self._execute()
        self.exec_metadata, ending = execution.result, execution.ending
        if not (ending and ending.disturbed):
            executions.keep(name, page, self.notebook, execution)
        elif run := executions.earlier(name, page):
            restore_outputs(self.notebook, run)
            self._tell(run["result"], recorded_runs.METHOD, recorded_runs.sentence(run, str(ending)))
            executions.disturbed[name] = str(ending)
            return
        elif ending.only_times:
            execution = self._execute(in_spite_of_others=True)
            self._tell(execution.result, "force", recorded_runs.without_a_run(str(ending)))
            executions.disturbed[name], ending = str(ending), execution.ending
        if ending:
            executions.fail(name, ending)

    def _tell(self, result: dict[str, Any], method: str, sentence: str) -> None:
        """Let the head of the page say why it shows this result."""
        self.exec_metadata = {**result, "method": method, "disturbed": sentence}

    def _execute(self, **how: bool) -> Execution:
        config = self.nb_config
        with TemporaryDirectory() if config.execution_in_temp else nullcontext(str(self.path.parent)) as folder:
            return execute(self.notebook, folder, config.execution_timeout, config.execution_allow_errors, **how)


def _why_executed(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    return f"changed: {', '.join(part for part in now if before.get(part) != now[part])}"


def page_parts(notebook: nbformat.NotebookNode, in_temp: bool = False) -> dict[str, str]:
    """Digests of what a page's results depend on by itself: its cells, and the studies that they name."""
    return {"page": page_key(notebook, in_temp), "studies": _studies(notebook)}


def _studies(notebook: nbformat.NotebookNode) -> str:
    return study_use.studies_digest("\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code"))


def page_key(notebook: nbformat.NotebookNode, in_temp: bool = False) -> str:
    """Digest of the input of a kernel: code cells with their tags, and metadata without line numbers."""
    cells = [[cell.source, cell.metadata] for cell in notebook.cells if cell.cell_type == "code"]
    metadata = {name: value for name, value in notebook.metadata.items() if name != "source_map"}
    return fingerprints.digest([cells, metadata, in_temp])


def is_clean(notebook: nbformat.NotebookNode, result: Mapping[str, Any]) -> bool:
    """Whether an execution had no error and wrote nothing to standard error."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return result["succeeded"] and not any(o.output_type == "error" or o.get("name") == "stderr" for o in outputs)


def outputs_of(notebook: nbformat.NotebookNode) -> dict[str, Any]:
    """The outputs and metadata that an execution added to a notebook."""
    cells = [[c.execution_count, c.outputs] for c in notebook.cells if c.cell_type == "code"]
    return {
        "cells": cells,
        "metadata": {name: notebook.metadata[name] for name in METADATA_OF_EXECUTION if name in notebook.metadata},
    }


def restore_outputs(notebook: nbformat.NotebookNode, kept: Mapping[str, Any]) -> None:
    """Put kept results into a notebook with the same code cells."""
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, (count, outputs) in zip(code_cells, kept["cells"], strict=True):
        cell.execution_count, cell.outputs = count, [nbformat.from_dict(output) for output in outputs]
    notebook.metadata.update(nbformat.from_dict(kept["metadata"]))
