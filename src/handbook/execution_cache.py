"""Reuses the results of a page's last execution while nothing has changed that they can depend on.

Results are kept in `_build/.executed`, one file for each page, with digests of the page's code cells and of the parts
of `fingerprints.context`. The whole page is executed again if a digest differs, or if its last execution failed or
wrote to standard error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.jsonutil import parse_date
from myst_nb.core.execute import NotebookClientBase, NotebookClientDirect, create_client, direct

from handbook import fingerprints
from inferlab.records import write_whole

METADATA_OF_EXECUTION = ("language_info", "widgets")
"""Metadata that an execution adds to a notebook."""


def is_ci(environment: Mapping[str, str]) -> bool:
    """Whether this is a build for others, where nothing may be missing."""
    return environment.get("CI", "") not in ("", "0", "false")


@dataclass
class Executions:
    """The pages that one build executes, and the results that it takes from earlier builds.

    root      the book's folder, from which pages are named
    folder    where results are kept
    context   what results can depend on beside the page, see `fingerprints.context`
    executed  seconds by page; `because` has the reason by page
    """

    root: Path
    folder: Path
    context: dict[str, str]
    executed: dict[str, float] = field(default_factory=dict)
    because: dict[str, str] = field(default_factory=dict)

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

    def find(self, name: str, page: str) -> dict[str, Any] | None:
        """The kept results of a page, if they were made with the same page and context."""
        kept = self._read(name)
        made_with = {**self.context, "page": page}
        if kept and kept["made_with"] == made_with:
            return kept
        self.because[name] = _why_executed(kept["made_with"], made_with) if kept else "no results kept"
        return None

    def keep(self, name: str, page: str, notebook: nbformat.NotebookNode, result: dict[str, Any]) -> None:
        """Keep what was executed, or nothing when it failed, wrote to standard error, or the library changed since."""
        self.executed[name] = result["runtime"]
        self._file(name).unlink(missing_ok=True)
        if is_clean(notebook, result) and fingerprints.library_digest() == self.context["library"]:
            kept = {"made_with": {**self.context, "page": page}, "result": result, **outputs_of(notebook)}
            write_whole(self._file(name), json.dumps(kept))

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            kept = json.loads(self._file(name).read_text(encoding="utf-8"))
            whole = isinstance(kept, dict) and {"made_with", "result", "cells", "metadata"} <= set(kept)
            return kept if whole else None
        except (OSError, ValueError):
            return None

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"


class CachingClient(NotebookClientDirect):
    """Executes a page, or puts the kept results into it."""

    def start_client(self) -> None:
        executions: Executions = self._kwargs["executions"]
        name, page = executions.name(self.path), page_key(self.notebook, self.nb_config.execution_in_temp)
        if kept := executions.find(name, page):
            restore_outputs(self.notebook, kept)
            self.exec_metadata = kept["result"]
        else:
            with timed_cells():
                super().start_client()
            self.exec_metadata["cell_seconds"] = take_cell_seconds(self.notebook)
            executions.keep(name, page, self.notebook, self.exec_metadata)


@contextmanager
def timed_cells() -> Iterator[None]:
    """While this lasts, what MyST-NB executes notes the time of each cell."""
    untimed = direct.single_nb_execution
    direct.single_nb_execution = partial(untimed, record_timing=True)
    try:
        yield
    finally:
        direct.single_nb_execution = untimed


def take_cell_seconds(notebook: nbformat.NotebookNode) -> list[float]:
    """Seconds of each code cell, 0 for an empty one, from the times that nbclient left in the cells' metadata."""
    return [_seconds(cell.metadata.pop("execution", {})) for cell in notebook.cells if cell.cell_type == "code"]


def _seconds(times: Mapping[str, str]) -> float:
    if not times:
        return 0.0
    began, ended = (parse_date(times[name]) for name in ("iopub.status.busy", "shell.execute_reply"))
    return (ended - began).total_seconds()


def _why_executed(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    return f"changed: {', '.join(part for part in now if before.get(part) != now[part])}"


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
