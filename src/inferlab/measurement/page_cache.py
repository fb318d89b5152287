"""The system's page cache: the share of a file that it contains, and how to drop or load the file's pages.

Linux only; on other systems the functions return None, which means "unknown".
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

ON_LINUX = sys.platform.startswith("linux")


def cached_share(path: str | Path) -> float | None:
    """Share of the file's pages in memory now, 0 to 1, from mincore(2); None if unknown."""
    size = os.path.getsize(path)
    if not ON_LINUX or not size:
        return None
    n_pages = -(-size // mmap.PAGESIZE)
    resident = (ctypes.c_ubyte * n_pages)()
    with open(path, "rb") as file, mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE) as view:
        start = ctypes.c_char.from_buffer(view)
        failed = _libc().mincore(ctypes.byref(start), ctypes.c_size_t(size), resident)
        del start
    return None if failed else sum(page & 1 for page in resident) / n_pages


def empty_cache(path: str | Path) -> float | None:
    """Drop the file's pages from the page cache; returns the share that is still in memory, None if unknown.

    Pages that a process has mapped stay: close other users of the file first.
    """
    if not ON_LINUX:
        return None
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_share(path)


def fill_cache(path: str | Path) -> float | None:
    """Read the file once, so that its pages are in memory; returns the share that then is, None if unknown."""
    read_once(path)
    return cached_share(path)


def read_once(path: str | Path) -> None:
    """Read the file from its beginning to its end, 4 MiB at a time, and keep nothing."""
    with open(path, "rb", buffering=0) as file:
        while file.read(2**22):
            pass


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
