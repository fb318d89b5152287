"""Selects the pages that a build reads and writes again.

Sphinx reads the pages that are newer than its last reading. Here a page is read again when its content differs,
whatever its date, or a study that it names. All pages are read again when anything differs that several pages can show
(the library, styles, diagrams, sources), and when the last build had a warning or did not end. All pages are written
again when something changed that pages show of each other: a title, a label, the number of a figure. Pages that are
read again take their results from `execution_cache` where those are still valid.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Mapping
from logging import WARNING, getLogger
from pathlib import Path
from typing import Any

import myst_nb.sphinx_
from docutils import nodes
from filelock import FileLock, Timeout
from myst_nb.core.execute import create_client
from sphinx.errors import ExtensionError
from sphinx.util import logging

from handbook.execution import fingerprints, recorded_runs, study_use
from handbook.execution.execution_cache import Executions, failures

LOGGER = logging.getLogger(__name__)


def setup(app: Any) -> None:
    """Connect one build."""
    build = Build(fingerprints.library_digest())
    app.connect("builder-inited", build.begin)
    app.connect("env-get-outdated", build.pages_to_read)
    app.connect("env-get-updated", build.pages_to_write, priority=900)
    app.connect("build-finished", build.end, priority=900)


class Build:
    """One build of the book, from its first event to its last.

    library  digest of the packages when they were imported: an edit after that counts for the next build
    """

    executions: Executions
    stamp: Path
    lock: FileLock
    went_well: bool
    started: float

    def __init__(self, library: str) -> None:
        self.library = library

    def begin(self, app: Any) -> None:
        """Read the state of the last build, and make MyST-NB execute through the cache."""
        self.started = time.perf_counter()
        folder = Path(app.doctreedir).parent / ".executed"
        self.lock = lock_build(folder)
        context = {**fingerprints.context(), "library": self.library}
        machine = fingerprints.machine_text(fingerprints.this_machine())
        self.executions = Executions(Path(app.srcdir), folder, context, machine)
        shutil.rmtree(failures(folder), ignore_errors=True)
        leave_out_what_follows(app, self.executions)
        self.stamp = folder / "last-build-went-well"
        self.went_well = self.stamp.exists()
        self.stamp.unlink(missing_ok=True)
        myst_nb.sphinx_.create_client = self.executions.client

    def pages_to_read(self, app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
        """The pages to read again."""
        shared_digest, pages = self.shared_digest(env), {name: self.page_digest(env, name) for name in env.found_docs}
        before = getattr(env, "handbook_read", None)
        env.handbook_read = {"shared": shared_digest, "pages": pages}
        if not self.went_well or before is None or before["shared"] != shared_digest:
            return sorted(pages)
        return sorted(
            name for name in pages if before["pages"].get(name) != pages[name] or self.results_are_missing(env, name)
        )

    def shared_digest(self, env: Any) -> str:
        """Digest of what every page can show: execution context, settings, and the files beside the pages."""
        beside = files_beside(Path(env.srcdir), {env.doc2path(name) for name in env.found_docs})
        return fingerprints.digest([self.executions.context, fingerprints.contents_digest(beside)])

    def page_digest(self, env: Any, name: str) -> str:
        path = Path(env.doc2path(name))
        shown = study_use.studies_digest(path.read_text(encoding="utf-8"))
        return fingerprints.digest([fingerprints.contents_digest([(name, path)]), shown])

    def results_are_missing(self, env: Any, name: str) -> bool:
        """Whether a page was executed and its results were not kept, or are gone, or are those of an earlier run."""
        executed = getattr(env, "nb_metadata", {}).get(name, {}).get("exec_data")
        return bool(executed) and ("disturbed" in executed or not self.executions.has(name))

    def pages_to_write(self, app: Any, env: Any) -> list[str]:
        """All pages, when something changed that pages show of each other."""
        before, env.handbook_links = getattr(env, "handbook_links", None), links(env)
        return [] if before == env.handbook_links else sorted(env.found_docs)

    def end(self, app: Any, exception: Exception | None) -> None:
        """Say what was executed, disturbed and failed; remember a build without warnings."""
        myst_nb.sphinx_.create_client = create_client
        failed, disturbed = self.executions.failed, self.executions.disturbed
        LOGGER.info("%s", summary(self.executions, time.perf_counter() - self.started))
        (self.stamp.parents[1] / recorded_runs.LIST).write_text(json.dumps(disturbed, indent=1), encoding="utf-8")
        if disturbed:
            LOGGER.info("%s", disturbed_line(disturbed))
        with logging.skip_warningiserror():
            for sentence in failed.values():
                LOGGER.warning("%s", sentence)
        if exception is None and not app._warncount:
            self.stamp.touch()
        if failed:
            app.statuscode = 1
        self.lock.release()


def lock_build(folder: Path) -> FileLock:
    """Keep the results to one build at a time: two would disturb each other's measurements and mix their pages.

    Raises ExtensionError while another build runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ExtensionError(f"Another build is running in {folder.parent}. Wait for it, or end it.") from None
    return lock


class LeaveOut(logging.WarningLogRecordTranslator):
    """Drops the warnings of failed pages: a value that no cell glued, a figure that no cell drew."""

    def __init__(self, app: Any, executions: Executions) -> None:
        super().__init__(app)
        self.executions = executions

    def filter(self, record: logging.SphinxWarningLogRecord) -> bool:  # type: ignore[override]  # Sphinx does so too
        super().filter(record)
        pages = [self.app.env.doc2path(name) for name in self.executions.failed]
        return not str(record.location or "").startswith(tuple(pages))


def leave_out_what_follows(app: Any, executions: Executions) -> None:
    """Before a warning is counted, drop it where a failed page is its place: the page's sentence says enough."""
    for handler in getLogger(logging.NAMESPACE).handlers:
        if handler.level == WARNING:
            handler.filters.insert(0, LeaveOut(app, executions))


def disturbed_line(disturbed: Mapping[str, str]) -> str:
    """The end of a build on a busy machine."""
    pages = ", ".join(f"{name} ({what})" for name, what in disturbed.items())
    return f"This machine was busy. Disturbed pages, which say so: {pages}. The next build executes them again."


def files_beside(root: Path, pages: Iterable[str]) -> list[tuple[str, Path]]:
    """The book's settings, and every file in the folders of pages that is not a page, with its name."""
    folders = {Path(page).relative_to(root).parts[0] for page in pages} - {Path(page).name for page in pages}
    found = [path for folder in sorted(folders) for path in fingerprints.files_below(root / folder)]
    found += [root / name for name in ("_config.yml", "_toc.yml") if (root / name).is_file()]
    return [(str(path.relative_to(root)), path) for path in found if str(path) not in set(pages)]


def links(env: Any) -> str:
    """Digest of what other pages show: titles, labels, terms, numbers of figures and equations, exercises, sources."""
    data = env.domaindata
    return fingerprints.digest(
        [
            _comparable([env.titles, env.toc_secnumbers, env.toc_fignumbers]),
            _comparable([data["std"].get(name) for name in ("labels", "anonlabels", "objects", "terms")]),
            _comparable(data.get("math", {}).get("objects", {})),
            _comparable(
                {label: entry["node"][:1] for label, entry in getattr(env, "sphinx_exercise_registry", {}).items()}
            ),
            [[entry.key, entry.formatted_entry.label] for entry in data.get("cite", {}).get("citations", ())],
            {name: _slugs(metadata) for name, metadata in env.metadata.items()},
        ]
    )


def _slugs(metadata: Mapping[str, Any]) -> list[list[str]]:
    """The headings that a page offers to links, without the lines that they stand on."""
    return sorted([slug, *map(str, place[1:])] for slug, place in metadata.get("myst_slugs", {}).items())


def _comparable(value: Any) -> Any:
    """A value for comparison: mappings sorted, nodes as their text."""
    if isinstance(value, Mapping):
        return sorted([str(key), _comparable(entry)] for key, entry in value.items())
    if isinstance(value, (list, tuple)):
        return [_comparable(entry) for entry in value]
    return value.astext() if isinstance(value, nodes.Node) else str(value)


def summary(executions: Executions, seconds: float) -> str:
    """The pages that a build executed, with seconds and reason, and the seconds of the whole build."""
    pages = executions.executed
    lines = [f"  {name}: {took:.1f} s ({executions.because[name]})" for name, took in pages.items()]
    return "\n".join([f"Pages executed: {len(pages)}. The build took {seconds:.1f} s.", *lines])
