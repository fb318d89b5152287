"""What stands around a measurement besides its settings: cores, priority, a busy neighbor, the build of the CPU code.

Linux alone has all of it: `taskset` and `nice` start the processes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.openmp import DEFAULT, SPIN_COUNT

SPIN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""
"""The neighbor: one thread that only computes, until its parent has ended."""
BOUND = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"}
"""OpenMP binds each thread of the engine to one core (OpenMP 5.0, sections 6.4 and 6.5)."""
PASSIVE = {"OMP_WAIT_POLICY": "passive"}
"""A thread that waits for the others sleeps, and leaves its core to another process (section 6.7)."""


@dataclass(frozen=True, kw_only=True)
class Surrounding:
    """The surrounding of one side of a comparison; the defaults leave everything to the operating system.

    cores            numbers of the processors that the engine may use; () for all
    bound            whether each of its threads is bound to a core of its own
    passive          whether a thread that waits for the others sleeps, instead of keeping its core busy
    nice             its nice value, 0 for the normal priority; below 0 only the administrator may set it
    neighbor_nice    nice value of a second process that keeps one core busy; None without such a process
    neighbor_cores   numbers of the processors that this process may use; () for all
    group_nice       nice value of the group of its session: with autogroups, the one that counts between sessions
    build            options of CMake with which the CPU backend was built; "" for the installed one
    """

    cores: tuple[int, ...] = ()
    bound: bool = False
    passive: bool = False
    nice: int = 0
    neighbor_nice: int | None = None
    neighbor_cores: tuple[int, ...] = ()
    group_nice: int = 0
    build: str = ""

    def engine(self, libraries: Path | None = None) -> LlamaEngine:
        """An engine in this surrounding; `libraries` is the folder of another build. Close it after use.

        Its threads spin as in any other program with llama.cpp, not for the bounded time of our workers.

        Set n_threads where threads are bound: the worker's first thread then sees one core, and would take one thread.
        """
        environment = (BOUND if self.bound else {}) | (PASSIVE if self.passive else {SPIN_COUNT: DEFAULT})
        if libraries:
            environment["LLAMA_CPP_LIB_PATH"] = str(libraries)
        return LlamaEngine(environment=environment, started_by=_started_by(self.cores, self.nice))

    @contextmanager
    def neighbor(self) -> Iterator[int | None]:
        """The busy process, if this surrounding has one, while the block runs; yields its process id."""
        if self.neighbor_nice is None:
            yield None
            return
        start = _started_by(self.neighbor_cores, self.neighbor_nice)
        child = subprocess.Popen([*start, sys.executable, "-c", SPIN], start_new_session=True)
        try:
            if self.group_nice:
                Path(f"/proc/{child.pid}/autogroup").write_text(str(self.group_nice), encoding="ascii")
            yield child.pid
        finally:
            child.kill()
            child.wait()


def _started_by(cores: tuple[int, ...], nice: int) -> list[str]:
    bound = ["taskset", "-c", ",".join(map(str, cores))] if cores else []
    return [*bound, *(["nice", "-n", str(nice)] if nice else [])]
