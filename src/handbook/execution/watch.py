"""Build the book again after each edit, until Ctrl-C.

python -m handbook.execution.watch
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from handbook.execution.fingerprints import files_below

WATCHED = ("book", "labs", "src", "tests", "_config.yml", "_toc.yml")
BUILD = ("build", ".", "-n", "-W", "--keep-going")
PAUSE_SECONDS = 0.5


def watched_files(root: Path) -> dict[Path, tuple[int, int]]:
    """Size and date of change of every file that a build can read, in bytes and nanoseconds."""
    paths = [root / name for name in WATCHED]
    found = [file for path in paths for file in (files_below(path) if path.is_dir() else [path])]
    states = {file: _state(file) for file in found}
    return {file: state for file, state in states.items() if state}


def _state(path: Path) -> tuple[int, int] | None:
    """Size and date of a file, None when an editor has just removed it."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def edited(before: dict[Path, tuple[int, int]], now: dict[Path, tuple[int, int]]) -> list[Path]:
    """The files that were written, added or removed in between."""
    return sorted(path for path in {*before, *now} if before.get(path) != now.get(path))


def settled(root: Path) -> dict[Path, tuple[int, int]]:
    """The files, after they were unchanged for PAUSE_SECONDS."""
    last = watched_files(root)
    while True:
        time.sleep(PAUSE_SECONDS)
        now = watched_files(root)
        if now == last:
            return now
        last = now


def build(root: Path) -> bool:
    """Build with warnings as errors in a new process, which imports the current library; True on success."""
    command = [str(Path(sys.executable).with_name("jupyter-book")), *BUILD]
    started = time.perf_counter()
    code = subprocess.run(command, cwd=root, check=False).returncode
    state = "Built" if code == 0 else "NOT built, see the warnings above,"
    print(f"\n{state} in {time.perf_counter() - started:.1f} s. Open {address(root)}", flush=True)
    return code == 0


def address(root: Path) -> str:
    """Where a browser finds the book."""
    return (root / "_build" / "html" / "index.html").resolve().as_uri()


def watch(root: Path) -> None:
    """Build now and after every edit."""
    before: dict[Path, tuple[int, int]] = {}
    while True:
        now = settled(root)
        if files := edited(before, now):
            if before:
                print("Edited:", *(file.relative_to(root) for file in files), flush=True)
            build(root)
            print("Waiting for the next edit; Ctrl-C ends.", flush=True)
        before = now


def main() -> None:
    """Command line of this module: watches the folder that it is started in."""
    try:
        watch(Path.cwd())
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
