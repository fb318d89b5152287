"""Recorded runs: what a page shows when the machine that builds the book is too busy to execute it.

A recorded run is what `execution_cache` kept of a page, compressed, in `data/recorded`: outputs, seconds, date and
machine. It stands for a page with the same code cells, and always for the whole page.

    python -m handbook.execution.recorded_runs write    record what the last build executed and no recorded run has
    python -m handbook.execution.recorded_runs check    fail if more than MOST pages of the last build were disturbed
"""

from __future__ import annotations

import json
import lzma
import sys
from collections.abc import Iterator, Mapping
from datetime import date
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes

from handbook.cells import NOT_SEARCHED
from handbook.execution.fingerprints import RECORDED

FOLDER = Path(str(files("handbook") / "data" / RECORDED))
METHOD = "earlier run"
"""What *About this build* says in place of the way in which a page was executed."""

MOST = 3
LIST = "disturbed.json"


def setup(app: Any) -> None:
    """Say at the head of a page that it shows an earlier run."""
    app.connect("doctree-read", lambda app, doctree: _say(doctree, app.env.nb_metadata.get(app.env.docname, {})))


def _say(doctree: nodes.document, metadata: Mapping[str, Any]) -> None:
    if sentence := (metadata.get("exec_data") or {}).get("disturbed"):
        page = next(iter(doctree.findall(nodes.section)), doctree)
        box = nodes.container("", nodes.paragraph("", sentence), classes=[NOT_SEARCHED])
        page.insert(1, nodes.note("", box, classes=["disturbed"]))


def sentence(run: Mapping[str, Any], disturbed: str) -> str:
    """What a reader of the page is told: which cell was disturbed, and of which day and machine the results are."""
    day = date.fromtimestamp(run["result"]["mtime"])
    return (
        f"This book was built on a busy machine: {disturbed}. "
        f"All results on this page are therefore those of an earlier run, on {day.day} {day:%B %Y}. "
        f"It used this machine: {run['machine']}."
    )


def without_a_run(disturbed: str) -> str:
    """What a reader is told where no earlier run of these cells is known."""
    return f"This book was built on a busy machine: {disturbed}. Times on this page are longer than on a quiet machine."


# --- files ------------------------------------------------------------------------------------


def read(path: Path) -> dict[str, Any] | None:
    """A run that was kept (`.json`) or recorded (`.json.xz`); None where there is none, or no whole one."""
    try:
        data = path.read_bytes()
        run = json.loads(lzma.decompress(data) if path.suffix == ".xz" else data)
    except (OSError, ValueError, lzma.LZMAError):
        return None
    parts = {"made_with", "machine", "engine", "result", "cells", "metadata"}
    return run if isinstance(run, dict) and parts <= set(run) else None


def recorded(name: str) -> dict[str, Any] | None:
    """The recorded run of a page."""
    return read(_file(name))


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json.xz"


def _names(folder: Path, suffix: str) -> Iterator[str]:
    for path in sorted(folder.rglob(f"*{suffix}")):
        yield path.relative_to(folder).as_posix().removesuffix(suffix)


# --- commands ---------------------------------------------------------------------------------


def write(root: Path) -> list[str]:
    """Record the runs kept in `_build/.executed` that no recorded run has; remove those of pages that are gone.

    Only runs that used an engine: what merely computes is quick on a busy machine too. Returns what was done, in lines.
    """
    kept_in, done = root / "_build" / ".executed", []
    for name in _names(FOLDER, ".json.xz"):
        if not any((root / f"{name}{suffix}").is_file() for suffix in (".md", ".ipynb")):
            _file(name).unlink()
            done.append(f"removed {name}: there is no such page")
    for name in _names(kept_in, ".json"):
        run, before = read(kept_in / f"{name}.json"), recorded(name)
        if run and run["engine"] and (before is None or before["made_with"]["page"] != run["made_with"]["page"]):
            data = lzma.compress(json.dumps(run).encode(), preset=9)
            _file(name).parent.mkdir(parents=True, exist_ok=True)
            _file(name).write_bytes(data)
            done.append(f"recorded {name}: {len(data) / 1000:.0f} kB, {run['machine']}")
    return done


def check(root: Path) -> int:
    """Say which pages of the last build were disturbed; the exit status is 1 with more than MOST."""
    disturbed = json.loads((root / "_build" / LIST).read_text(encoding="utf-8"))
    pages = [f"{name}: {what}" for name, what in disturbed.items()]
    print(f"Pages that were disturbed: {len(pages)}, of at most {MOST}.", *pages, sep="\n  ")
    return int(len(pages) > MOST)


def main(words: list[str], root: Path) -> int:
    """Command line of this module."""
    if words == ["write"]:
        print(*(write(root) or ["Every page that used an engine has its recorded run."]), sep="\n")
        return 0
    if words == ["check"]:
        return check(root)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path.cwd()))
