"""Which pages a build reads and writes again.

Sphinx reads what is newer than its last reading.  Here a page is read again when its content differs, whatever its
date; all pages are when anything differs that several of them can show (the library, styles, diagrams, sources), when
the last build had a warning or did not end, and where everything is executed.  All pages are written again when
something changed that pages show of each other: a title, a label, the number of a figure.  Pages that are read again
take their results from `execution_cache` where they still hold.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import myst_nb.sphinx_
from docutils import nodes
from myst_nb.core.execute import create_client
from sphinx.util import logging

from handbook import fingerprints
from handbook.execution_cache import Executions, executes_everything

LOGGER = logging.getLogger(__name__)


def setup(app: Any) -> None:
    """Connect one build."""
    build = Build()
    app.connect("builder-inited", build.begin)
    app.connect("env-get-outdated", build.outdated)
    app.connect("env-get-updated", build.written_again, priority=900)
    app.connect("build-finished", build.end, priority=900)


class Build:
    """One build of the book, from its first event to its last."""

    executions: Executions
    stamp: Path
    went_well: bool
    started: float

    def begin(self, app: Any) -> None:
        """Look at the last build, and let MyST-NB execute through the cache."""
        self.started = time.perf_counter()
        folder = Path(app.doctreedir).parent / ".executed"
        everything = executes_everything(os.environ)
        self.executions = Executions(Path(app.srcdir), folder, fingerprints.context(), everything)
        self.stamp = folder / "last-build-went-well"
        self.went_well = self.stamp.exists()
        self.stamp.unlink(missing_ok=True)
        myst_nb.sphinx_.create_client = self.executions.client

    def outdated(self, app: Any, env: Any, added: set[str], changed: set[str], removed: set[str]) -> list[str]:
        """The pages to read again."""
        shared, pages = self.shared(env), {name: self.content(env, name) for name in env.found_docs}
        before = getattr(env, "handbook_read", None)
        env.handbook_read = {"shared": shared, "pages": pages}
        if self.executions.everything or not self.went_well or before is None or before["shared"] != shared:
            return sorted(pages)
        return sorted(name for name in pages if before["pages"].get(name) != pages[name] or self.is_lost(env, name))

    def shared(self, env: Any) -> str:
        """What every page can show: what it is executed with, the settings, and all that lies beside the pages."""
        beside = files_beside(Path(env.srcdir), {env.doc2path(name) for name in env.found_docs})
        return fingerprints.digest([self.executions.context, fingerprints.of_contents(beside)])

    def content(self, env: Any, name: str) -> str:
        return fingerprints.of_contents([(name, Path(env.doc2path(name)))])

    def is_lost(self, env: Any, name: str) -> bool:
        """Whether a page was executed and its results were not kept, or are gone."""
        was_executed = getattr(env, "nb_metadata", {}).get(name, {}).get("exec_data")
        return bool(was_executed) and not self.executions.has(name)

    def written_again(self, app: Any, env: Any) -> list[str]:
        """All pages, when something changed that pages show of each other."""
        before, env.handbook_links = getattr(env, "handbook_links", None), links(env)
        return [] if before == env.handbook_links else sorted(env.found_docs)

    def end(self, app: Any, exception: Exception | None) -> None:
        """Say what was executed; remember a build without warnings."""
        myst_nb.sphinx_.create_client = create_client
        LOGGER.info("%s", summary(self.executions, time.perf_counter() - self.started))
        if exception is None and not app._warncount:
            self.stamp.parent.mkdir(parents=True, exist_ok=True)
            self.stamp.touch()


def files_beside(root: Path, pages: Iterable[str]) -> list[tuple[str, Path]]:
    """The book's settings, and every file in the folders of pages that is no page, with its name."""
    folders = {Path(page).relative_to(root).parts[0] for page in pages} - {Path(page).name for page in pages}
    found = [path for folder in sorted(folders) for path in fingerprints.inside(root / folder)]
    found += [root / name for name in ("_config.yml", "_toc.yml") if (root / name).is_file()]
    return [(str(path.relative_to(root)), path) for path in found if str(path) not in set(pages)]


def links(env: Any) -> str:
    """What pages show of each other: titles, labels, terms, numbers of figures and equations, exercises, sources."""
    data = env.domaindata
    return fingerprints.digest(
        [
            _plain([env.titles, env.toc_secnumbers, env.toc_fignumbers]),
            _plain([data["std"].get(name) for name in ("labels", "anonlabels", "objects", "terms")]),
            _plain(data.get("math", {}).get("objects", {})),
            _plain({label: one["node"][:1] for label, one in getattr(env, "sphinx_exercise_registry", {}).items()}),
            [[one.key, one.formatted_entry.label] for one in data.get("cite", {}).get("citations", ())],
            {name: _slugs(metadata) for name, metadata in env.metadata.items()},
        ]
    )


def _slugs(metadata: Mapping[str, Any]) -> list[list[str]]:
    """The headings that a page offers to links, without the lines that they stand on."""
    return sorted([slug, *map(str, place[1:])] for slug, place in metadata.get("myst_slugs", {}).items())


def _plain(value: Any) -> Any:
    """A value without order in its mappings, and nodes as their text."""
    if isinstance(value, Mapping):
        return sorted([str(key), _plain(one)] for key, one in value.items())
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.astext() if isinstance(value, nodes.Node) else str(value)


def summary(executions: Executions, seconds: float) -> str:
    """What a build executed, and how long that and all of it took."""
    pages = executions.executed
    lines = [f"  {name}: {took:.1f} s ({executions.because[name]})" for name, took in pages.items()]
    return "\n".join([f"{len(pages)} pages executed; the build took {seconds:.1f} s.", *lines])
