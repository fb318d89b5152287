"""The results of a page's last execution, used again while nothing has changed that they can depend on.

They lie in `_build/.executed`, one file for each page, with what they were made with: the page's code cells and the
parts of `fingerprints.context`.  Any difference executes the whole page again, and so does an execution that failed
or wrote to standard error.  Under `CI`, or with HANDBOOK_EXECUTE=all, every page is executed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from myst_nb.core.execute import NotebookClientBase, NotebookClientDirect, create_client

from handbook import fingerprints
from inferlab.records import write_whole

ADDED = ("language_info", "widgets")
"""What an execution adds to a notebook's metadata."""


def executes_everything(environment: Mapping[str, str]) -> bool:
    """Whether kept results are left alone: in CI, and where HANDBOOK_EXECUTE says so."""
    return environment.get("CI", "") not in ("", "0", "false") or environment.get("HANDBOOK_EXECUTE") == "all"


@dataclass
class Executions:
    """What one build executes and what it takes from earlier ones.

    root      the book's folder, from which pages are named
    folder    where results are kept
    context   what results can depend on beside the page, see `fingerprints.context`
    executed  seconds, by page; `because` says what had changed
    """

    root: Path
    folder: Path
    context: dict[str, str]
    everything: bool = False
    executed: dict[str, float] = field(default_factory=dict)
    because: dict[str, str] = field(default_factory=dict)

    def client(self, *arguments: Any, **named: Any) -> NotebookClientBase:
        """What MyST-NB's `create_client` gives, except that it looks for kept results before it executes."""
        given = create_client(*arguments, **named)
        if not isinstance(given, NotebookClientDirect) or given.path is None:
            return given
        return RememberingClient(given.notebook, given.path, given.nb_config, given.logger, executions=self)

    def name(self, path: Path) -> str:
        return path.relative_to(self.root).with_suffix("").as_posix()

    def has(self, name: str) -> bool:
        """Whether results of a page are kept, of whatever age."""
        return self._file(name).is_file()

    def find(self, name: str, page: str) -> dict[str, Any] | None:
        """The kept results of a page, if they were made with the same page and context."""
        kept = self._read(name)
        made_with = {**self.context, "page": page}
        if kept and kept["made_with"] == made_with and not self.everything:
            return kept
        changed = [part for part in made_with if kept and kept["made_with"].get(part) != made_with[part]]
        self.because[name] = f"changed: {', '.join(changed)}" if changed else "all are" if kept else "no results kept"
        return None

    def keep(self, name: str, page: str, notebook: nbformat.NotebookNode, result: dict[str, Any]) -> None:
        """Keep what was executed, or nothing when it failed, wrote to standard error, or the library changed since."""
        self.executed[name] = result["runtime"]
        self._file(name).unlink(missing_ok=True)
        if is_clean(notebook, result) and fingerprints.library() == self.context["library"]:
            kept = {"made_with": {**self.context, "page": page}, "result": result, **outputs_of(notebook)}
            write_whole(self._file(name), json.dumps(kept))

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            kept = json.loads(self._file(name).read_text(encoding="utf-8"))
            return kept if {"made_with", "result", "cells", "metadata"} <= set(kept) else None
        except (OSError, ValueError):
            return None

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.json"


class RememberingClient(NotebookClientDirect):
    """Executes a page, or puts the kept results into it."""

    def start_client(self) -> None:
        executions: Executions = self._kwargs["executions"]
        name, page = executions.name(self.path), page_key(self.notebook, self.nb_config.execution_in_temp)
        if kept := executions.find(name, page):
            put_into(self.notebook, kept)
            self.exec_metadata = kept["result"]
        else:
            super().start_client()
            executions.keep(name, page, self.notebook, self.exec_metadata)


def page_key(notebook: nbformat.NotebookNode, in_temp: bool = False) -> str:
    """All that a kernel gets from a page: its code cells with their tags, and its metadata without line numbers."""
    cells = [[cell.source, cell.metadata] for cell in notebook.cells if cell.cell_type == "code"]
    metadata = {name: value for name, value in notebook.metadata.items() if name != "source_map"}
    return fingerprints.digest([cells, metadata, in_temp])


def is_clean(notebook: nbformat.NotebookNode, result: Mapping[str, Any]) -> bool:
    """Whether an execution had no error and wrote nothing to standard error."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return result["succeeded"] and not any(o.output_type == "error" or o.get("name") == "stderr" for o in outputs)


def outputs_of(notebook: nbformat.NotebookNode) -> dict[str, Any]:
    """What an execution put into a notebook."""
    cells = [[c.execution_count, c.outputs] for c in notebook.cells if c.cell_type == "code"]
    return {"cells": cells, "metadata": {name: notebook.metadata[name] for name in ADDED if name in notebook.metadata}}


def put_into(notebook: nbformat.NotebookNode, kept: Mapping[str, Any]) -> None:
    """Put kept results into a notebook with the same code cells."""
    code_cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, (count, outputs) in zip(code_cells, kept["cells"], strict=True):
        cell.execution_count, cell.outputs = count, [nbformat.from_dict(output) for output in outputs]
    notebook.metadata.update(nbformat.from_dict(kept["metadata"]))
