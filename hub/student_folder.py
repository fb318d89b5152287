"""A student's own folder: a copy of the labs and of the pages that they link to, and the start page.

What is there stays as it is, whatever it is: a file is only added where there is none.
Who wants a lab anew renames or deletes the copy, and starts the server again.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

BOOK = Path(__file__).resolve().parent.parent
START_PAGE = (
    "import sys; from pathlib import Path; from handbook.lab_room import start_page\n"
    "print(start_page(Path(sys.argv[1])), end='')"
)


def fill(folder: Path, book: Path = BOOK) -> list[Path]:
    """Add the labs and pages that are missing in `folder`; returns what was added."""
    return [target for source in _shipped(book) if _add(source, target := folder / source.relative_to(book))]


def write_start_page(folder: Path, python: Path) -> None:
    """Write labs/start.md, which lists the labs and how many of their cells this folder's copies have run."""
    done = subprocess.run([python, "-c", START_PAGE, folder], capture_output=True, text=True, check=True)
    (folder / "labs" / "start.md").write_text(done.stdout, encoding="utf-8")


def _shipped(book: Path) -> Iterator[Path]:
    yield from sorted((book / "labs").glob("*.ipynb"))
    yield from sorted((book / "book").rglob("*.md"))


def _add(source: Path, target: Path) -> bool:
    """Whether `target` was made: whole or not at all, and never in the place of another file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        return False
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.copyfile(source, unfinished)
    try:
        with suppress(FileExistsError):
            os.link(unfinished, target)
            return True
        return False
    finally:
        unfinished.unlink()
