"""How long llama.cpp's threads spin while they wait for each other: a bounded time, because machines are busy.

After each operation of a pass all threads wait for the last one (`ggml_barrier`, ggml-cpu.c). In GNU's OpenMP a thread
looks GOMP_SPINCOUNT times before it sleeps, 300,000 times unless something else is set (libgomp/env.c). Meanwhile it
keeps a core busy, and the thread that it waits for may need that core as soon as another program computes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from inferlab.engine import linked

SPIN_COUNT, WAIT_POLICY, BLOCK_TIME = "GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "KMP_BLOCKTIME"
BOUNDED = "2000"
"""Chosen by the records `waiting-*` of the study `operating_system`, which the page on a CPU alone shows."""
DEFAULT = "300000"
"""What libgomp takes by itself; on hybrid x86 processors newer ones take 1 (config/linux/x86/spincount.h)."""
READ_BY = {
    "libgomp": (SPIN_COUNT, WAIT_POLICY),
    "libomp": (BLOCK_TIME, WAIT_POLICY),
    "libiomp5": (BLOCK_TIME, WAIT_POLICY),
}
"""OpenMP library -> the variables that decide how long its threads spin; no other library is known here."""


def bounded(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which libgomp's spin is bounded, unless it decides already how threads wait.

    Other OpenMP libraries do not read the variable, and a llama.cpp without OpenMP waits in its own barrier.
    """
    decided = SPIN_COUNT in environment or WAIT_POLICY in environment
    return dict(environment) if decided else {**environment, SPIN_COUNT: BOUNDED}


def waiting(environment: Mapping[str, str], library: str | None) -> dict[str, str]:
    """The variables of an environment that decide how the threads of an OpenMP library wait, by name."""
    return {name: environment[name] for name in READ_BY.get(library or "", ()) if name in environment}


def library(folder: Path) -> str | None:
    """The OpenMP library that llama.cpp's CPU code in `folder` is linked to; None where none is found."""
    needed = {name.split(".so")[0] for path in folder.glob("libggml-cpu*.so") for name in linked.needed(path) or ()}
    return next((name for name in READ_BY if name in needed), None)
