"""The system's page cache: how much of a file it holds, and how to make it let go.

Linux only; elsewhere the answer is None, which means "unknown".
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

ON_LINUX = sys.platform.startswith("linux")


def cached_share(path: str | Path) -> float | None:
    """Share of the file's pages in memory now, 0 to 1, as mincore(2) tells; None where nobody can tell."""
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
    """Ask the system to forget the file's pages; returns the share that is still in memory, None if unknown.

    A page that some process has mapped stays: close other users of the file first.
    """
    if not ON_LINUX:
        return None
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return cached_share(path)


def fill_cache(path: str | Path) -> float | None:
    """Read the file once, so that its pages are in memory; returns the share that is, None if unknown."""
    with open(path, "rb", buffering=0) as file:
        while file.read(2**22):
            pass
    return cached_share(path)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
