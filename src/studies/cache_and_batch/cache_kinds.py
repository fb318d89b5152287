"""Caches of several kinds of model at several contexts: as planned from the header, and as llama.cpp allocates them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inferlab.engine.protocol import Engine
from inferlab.measurement.memory import reserved_bytes
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory.cache import cache_layers, kv_cache_bytes, state_bytes
from inferlab.settings import Settings
from inferlab.units import MIB


@dataclass(frozen=True)
class PlannedCache:
    """One cache: bytes planned, of which those of recurrent states, and bytes that llama.cpp logged, to 0.01 MiB."""

    name: str
    n_ctx: int
    planned_bytes: int
    state_bytes: int
    logged_bytes: int


def planned_and_logged(
    models: Mapping[str, str | Path],
    contexts: Sequence[int],
    settings: Settings | None = None,
    engine: Engine | None = None,
) -> tuple[PlannedCache, ...]:
    """Each model at each context, planned and then opened; `settings` without windows kept whole unless given.

    Raises what `kv_cache_bytes` and `reserved_bytes` raise.
    """
    found, settings = [], settings or Settings(swa_full=False, flash_attn="on")
    for name, path in models.items():
        header = read_gguf(path)
        for asked in (settings.but(n_ctx=n_ctx) for n_ctx in contexts):
            states = sum(state_bytes(layer, asked) for layer in cache_layers(header))
            planned, logged = kv_cache_bytes(header, asked), reserved_bytes(path, asked, engine=engine)
            found.append(PlannedCache(name, asked.n_ctx, planned, states, logged))
    return tuple(found)


def caches_text(found: Sequence[PlannedCache]) -> str:
    """One line for each cache, and one for the growth of each model."""
    lines = [
        f"{one.name}, {one.n_ctx:,} cells: planned {one.planned_bytes / MIB:.2f} MiB, of which "
        f"{one.state_bytes / MIB:.2f} MiB states; llama.cpp logged {one.logged_bytes / MIB:.2f} MiB"
        for one in found
    ]
    for name in dict.fromkeys(one.name for one in found):
        sizes = [one.logged_bytes for one in found if one.name == name]
        lines.append(f"{name}: the last is {sizes[-1] / sizes[0]:.2f} times the first")
    return "\n".join(lines)
