"""What this session holds on to: its engines, and the limits that it set on devices."""

from __future__ import annotations

import atexit
import weakref
from pathlib import Path
from typing import Protocol


class Holder(Protocol):
    """What the registry needs of an engine: what it has open, and how to end it."""

    def has_open(self, model: Path) -> bool: ...

    def uses(self, endpoint: str) -> bool: ...

    def close(self) -> None: ...


ENGINES: weakref.WeakSet[Holder] = weakref.WeakSet()
_LIMITS: dict[str, int] = {}


def release(model: Path) -> None:
    """End every worker of this session that has `model` open, so that no process of ours maps the file."""
    for engine in list(ENGINES):
        if engine.has_open(model):
            engine.close()


def release_server(endpoint: str, but: Holder | None = None) -> None:
    """End every worker of this session that has the RPC server at `endpoint` among its devices, except one."""
    for engine in list(ENGINES):
        if engine is not but and engine.uses(endpoint):
            engine.close()


@atexit.register
def _close_all() -> None:
    for engine in list(ENGINES):
        engine.close()


def limit_on(device: str) -> int | None:
    """Bytes that this session limits a device to, by ggml's name for it or its RPC endpoint; None without a limit."""
    return _LIMITS.get(device)


def set_limit(device: str, n_bytes: int | None) -> None:
    """Note what a device is limited to, so that a `Machine` says so; None: to nothing."""
    if n_bytes is None:
        _LIMITS.pop(device, None)
    else:
        _LIMITS[device] = n_bytes
