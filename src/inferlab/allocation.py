"""What the engine really reserves: a model opened and a context made, and llama.cpp's own log read."""

from __future__ import annotations

from pathlib import Path

from inferlab.engine import Engine, default_engine
from inferlab.models import find_model
from inferlab.settings import Settings


def reserved_bytes(
    model: str | Path | None, settings: Settings, kind: str = "kv_cache", engine: Engine | None = None
) -> int:
    """Bytes of one kind over all devices: weights, kv_cache, compute or output; exact to 0.01 MiB a buffer.

    Nothing is generated. Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    engine = engine or default_engine()
    with engine.held():
        buffers = engine.open(find_model(model), settings).buffers
    return sum(buffer.n_bytes for buffer in buffers if buffer.kind == kind)
