"""The engines of this session, and the limits that it set on devices."""

from __future__ import annotations

import atexit
import weakref
from pathlib import Path
from typing import Protocol


class ClosableEngine(Protocol):
    """What the registry needs from an engine: which model and RPC servers it uses, and how to close it."""

    def has_open(self, model: Path) -> bool: ...

    def uses(self, endpoint: str) -> bool: ...

    def close(self) -> None: ...


ENGINES: weakref.WeakSet[ClosableEngine] = weakref.WeakSet()
_LIMITS: dict[str, int] = {}


def close_engines_with_model(model: Path) -> None:
    """Stop every worker of this session that has `model` open, so that no process of this session maps the file."""
    for engine in list(ENGINES):
        if engine.has_open(model):
            engine.close()


def close_engines_with_server(endpoint: str, besides: ClosableEngine | None = None) -> None:
    """Stop every worker of this session that has the RPC server at `endpoint` among its devices, except `besides`."""
    for engine in list(ENGINES):
        if engine is not besides and engine.uses(endpoint):
            engine.close()


@atexit.register
def _close_all() -> None:
    for engine in list(ENGINES):
        engine.close()


def limit_on(device: str) -> int | None:
    """Bytes that this session limits a device to, by ggml's name for it or its RPC endpoint; None without a limit."""
    return _LIMITS.get(device)


def set_limit(device: str, n_bytes: int | None) -> None:
    """Record a device's limit in bytes, which `Machine` then reports; None removes it."""
    if n_bytes is None:
        _LIMITS.pop(device, None)
    else:
        _LIMITS[device] = n_bytes
