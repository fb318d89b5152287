"""What of a process lies in RAM, and as what: pages of a mapped file, memory of its own, huge pages, locked pages.

Linux only, from /proc/<pid>/smaps (proc_pid_smaps(5)); elsewhere the answer is None, which means "unknown".
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inferlab.engine import LlamaEngine, default_engine
from inferlab.models import find_model
from inferlab.settings import Settings

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
KIB = 1024


@dataclass(frozen=True)
class Residence:
    """Resident bytes of one process.

    file_bytes        pages of one file that it has mapped, whoever else uses them (Rss)
    file_share_bytes  the same pages, each divided by the number of processes that have it mapped (Pss)
    own_bytes         memory that is no file's: buffers, caches, copies (Anonymous)
    huge_bytes        the part of own_bytes in huge pages (AnonHugePages)
    file_huge_bytes   the part of file_bytes in huge pages (FilePmdMapped)
    locked_bytes      what may not be swapped out (Locked)
    """

    file_bytes: int
    file_share_bytes: int
    own_bytes: int
    huge_bytes: int
    file_huge_bytes: int
    locked_bytes: int


def read_residence(pid: int, file: str | Path, root: Path = Path("/proc")) -> Residence | None:
    """What process `pid` has in RAM of `file`, and of its own; None where the system does not tell."""
    try:
        text = (root / str(pid) / "smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    every = list(_mappings(text))
    mapped = [sizes for name, sizes in every if name == os.path.realpath(file)]

    def summed(field: str, of: list[dict[str, int]]) -> int:
        return sum(sizes.get(field, 0) for sizes in of)

    everything = [sizes for _, sizes in every]
    return Residence(
        file_bytes=summed("Rss", mapped),
        file_share_bytes=summed("Pss", mapped),
        own_bytes=summed("Anonymous", everything),
        huge_bytes=summed("AnonHugePages", everything),
        file_huge_bytes=summed("FilePmdMapped", mapped),
        locked_bytes=summed("Locked", everything),
    )


def _mappings(text: str) -> Iterator[tuple[str, dict[str, int]]]:
    """(file or "", bytes by field) of each mapping; a head line has an address range, a field line a name and kB."""
    name, sizes = "", {}
    for line in text.splitlines():
        words = line.split(maxsplit=5)
        if words and not words[0].endswith(":"):
            if sizes:
                yield name, sizes
            name, sizes = (words[5] if len(words) > 5 else ""), {}
        elif len(words) == 3 and words[2] == "kB":
            sizes[words[0].rstrip(":")] = int(words[1]) * KIB
    if sizes:
        yield name, sizes


def resident(
    model: str | Path | None = None, settings: Settings | None = None, engine: LlamaEngine | None = None
) -> Residence | None:
    """What the engine's process has in RAM right after loading, before any token; None off Linux.

    Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    engine, path = engine or default_engine(), find_model(model)
    engine.open(path, settings or Settings(n_ctx=512))
    return read_residence(engine.pid, path)


def huge_page_policy(path: Path = HUGE_PAGES) -> str | None:
    """When the system uses huge pages for a process: "always", "madvise" (on request) or "never"; None if unknown."""
    try:
        words = path.read_text().split()
    except OSError:
        return None
    return next((word.strip("[]") for word in words if word.startswith("[")), None)
