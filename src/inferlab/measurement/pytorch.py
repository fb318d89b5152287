"""PyTorch, which is not a dependency: its module, or why it is missing; and how much a process grows at its peak."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferlab.errors import PyTorchUnavailable
from inferlab.units import KIB


def required() -> Any:
    """The module `torch`. Raises PyTorchUnavailable where it is not installed."""
    if find_spec("torch") is None:
        raise PyTorchUnavailable("PyTorch is not installed here. Nothing else needs it; pip install torch brings it.")
    import torch

    return torch


@contextmanager
def peak_growth(pid: int | str = "self") -> Iterator[list[int | None]]:
    """A list whose entry becomes, after the block, a process's peak growth in bytes (Linux, proc_pid_status(5))."""
    growth: list[int | None] = [None]
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets VmHWM to the present size
        before = _status_bytes(pid, "VmRSS")
    except OSError:
        before = None
    yield growth
    growth[0] = None if before is None else _status_bytes(pid, "VmHWM") - before


def _status_bytes(pid: int | str, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * KIB for line in lines if line.startswith(field + ":"))
