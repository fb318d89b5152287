"""Limits of memory and processors that a process keeps with all that it starts, on Linux.

where            memory                                      processors
cgroup v2        memory.max of all processes of a student    cpu.max, and pids.max for their number
everywhere else  RLIMIT_DATA of each process                 the cores that it is bound to

Cores are bound and OpenMP is told in both cases, so that llama.cpp starts as many threads as it has cores.
RLIMIT_DATA counts private memory that can be written, thread stacks included; a mapped model is not counted.
memory.max counts the pages of a mapped model too, and takes them back when memory is needed.
A student who wants to can leave the bound cores (not cpu.max); a limit here protects from accidents.
"""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
PERIOD_MICROSECONDS = 100_000
MOST_PROCESSES = 1024  # threads count as processes; a notebook server, three kernels and three engines have about 200
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(frozen=True)
class Limits:
    """Bytes of private memory, and the numbers of the cores to compute on; None or () leaves them unlimited."""

    memory_bytes: int | None = None
    cores: tuple[int, ...] = ()


def share_of_cores(index: int, n_cores: int, usable: list[int]) -> tuple[int, ...]:
    """The cores of the student with this number in the list: each core gets as many students, to within one."""
    n_cores = max(1, min(n_cores, len(usable)))
    return tuple(sorted(usable[(index * n_cores + i) % len(usable)] for i in range(n_cores)))


def limit_this_process(limits: Limits, name: str, groups: Path | None = None) -> None:
    """Limit this process and whatever it starts; `groups` is a folder that `delegated_groups` returned."""
    if limits.cores:
        os.sched_setaffinity(0, limits.cores)
        os.environ.update(dict.fromkeys(THREADS, str(len(limits.cores))))
    if groups is not None:
        _enter_group(groups / f"student-{name}", limits)
    elif limits.memory_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))


def _enter_group(group: Path, limits: Limits) -> None:
    group.mkdir(exist_ok=True)
    (group / "pids.max").write_text(str(MOST_PROCESSES))
    if limits.memory_bytes is not None:
        (group / "memory.max").write_text(str(limits.memory_bytes))
        with suppress(OSError):  # a kernel without swap has no such file
            (group / "memory.swap.max").write_text("0")
    if limits.cores:
        quota = len(limits.cores) * PERIOD_MICROSECONDS
        (group / "cpu.max").write_text(f"{quota} {PERIOD_MICROSECONDS}")
    (group / "cgroup.procs").write_text(str(os.getpid()))


def delegated_groups(mounted: Path = CGROUPS, own: Path = Path("/proc/self/cgroup")) -> Path | None:
    """The control group of this process, made ready to have students' groups in it; None where that is not allowed.

    A group that has processes cannot share its controllers with groups in it, so its processes move to a new one.
    """
    try:
        line = next(line for line in own.read_text().splitlines() if line.startswith("0::"))
        root = mounted / line.removeprefix("0::").lstrip("/")
        if not {"cpu", "memory", "pids"} <= set((root / "cgroup.controllers").read_text().split()):
            return None
        (root / "hub").mkdir(exist_ok=True)
        for pid in (root / "cgroup.procs").read_text().split():
            (root / "hub" / "cgroup.procs").write_text(pid)
        (root / "cgroup.subtree_control").write_text("+cpu +memory +pids")
    except (OSError, StopIteration):
        return None
    return root


def in_words(limits: Limits, groups: Path | None) -> str:
    """What is limited here and by what, for the hub's log."""
    memory = f"{limits.memory_bytes / 2**20:,.0f} MiB" if limits.memory_bytes else "unlimited memory"
    cores = f"{len(limits.cores)} core{'s' * (len(limits.cores) != 1)}" if limits.cores else "all cores"
    if groups is None:
        return f"{memory} for each process (RLIMIT_DATA), {cores} (bound; a process may leave them)"
    return f"{memory} and {cores} for each student (cgroup v2 in {groups})"
