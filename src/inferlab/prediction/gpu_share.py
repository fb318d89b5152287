"""How much of a memory that it shares with the processor a system lets the GPU have, as public logs say it.

The logged figures lie in data/facts/gpu_shares.toml, each cited.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from inferlab.facts import read_table
from inferlab.units import GIB, MB, MIB

UNITS = {"MB": MB, "MiB": MIB}


@dataclass(frozen=True)
class GpuShare:
    """What a system lets the GPU have of memory_bytes.

    logged  whether a log of a machine of this size says it; else it has the share of the next smaller size logged
    source  key of the bibliography for that log, of `date`
    """

    system: str
    memory_bytes: int
    gpu_bytes: int
    logged: bool
    source: str
    date: str


def gpu_share(system: str, memory_bytes: int) -> GpuShare | None:
    """The share of a machine's memory by a system of the table, or by the ones before; None without a log of less.

    gpu_bytes = memory_bytes * limit / memory, of the largest logged size that is no larger.
    """
    table = _systems()[system]
    smaller = [line for line in table["logged"] if line["memory"] * GIB <= memory_bytes]
    if not smaller:
        return older_share(system, memory_bytes)
    line = max(smaller, key=lambda line: line["memory"])
    logged_bytes = line["memory"] * GIB
    limit = round(line["limit"] * UNITS[line["unit"]])
    gpu_bytes = limit * memory_bytes // logged_bytes
    is_logged = logged_bytes == memory_bytes
    return GpuShare(table["title"], memory_bytes, gpu_bytes, is_logged, line["source"], line["date"])


def older_share(system: str, memory_bytes: int) -> GpuShare | None:
    """The share by the systems before; None where the table has none."""
    older = _systems()[system].get("older")
    return gpu_share(older, memory_bytes) if older else None


@cache
def _systems() -> dict[str, dict[str, Any]]:
    return read_table("gpu_shares")
