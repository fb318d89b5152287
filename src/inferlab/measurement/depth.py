"""Decode at depth: engine time of a token against the number of KV cache cells in use, after one prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab.engine.protocol import Engine, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.model.find import find_model
from inferlab.model.ggml_types import CELL_STEP
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings


@dataclass(frozen=True, kw_only=True)
class DepthScaling(Measurement):
    """Engine seconds of single tokens, by the number of cells that attention reads for each of them."""

    seconds: dict[int, tuple[float, ...]]

    def median_seconds(self, cells: int) -> float:
        """Median engine time of a token for which attention reads `cells` cells."""
        return median(self.seconds[cells])

    @property
    def cell_seconds(self) -> float:
        """Seconds that each further cell adds to a token: (median at most cells - at fewest) / (most - fewest)."""
        few, many = min(self.seconds), max(self.seconds)
        return (self.median_seconds(many) - self.median_seconds(few)) / (many - few)

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the cache over all devices, as llama.cpp logged them."""
        return self.bytes_on("kv_cache")


def decode_at_depths(
    model: str | Path | None = None,
    settings: Settings | None = None,
    cells: Sequence[int] = (256, 1024, 2048),
    n_gen: int = 8,
    engine: Engine | None = None,
) -> DepthScaling:
    """Time `n_gen` tokens at each depth of `cells`, given in whole 256-cell steps; the cache is filled in between.

    llama.cpp rounds the cells in use up to whole 256-cell steps (llama-kv-cache.cpp, get_n_kv), so the tokens of one
    depth cost the same. The first token of each depth is not counted.
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    cells = sorted(cells)
    if not cells or cells[0] < CELL_STEP or any(n % CELL_STEP for n in cells) or not 1 <= n_gen < CELL_STEP:
        raise InvalidSettings(f"cells={cells!r} must be multiples of {CELL_STEP}, and n_gen from 1 to {CELL_STEP - 1}.")
    settings, engine = settings or Settings(), engine or default_engine()
    path = find_model(model)
    with engine.exclusive():
        opening = engine.open(path, settings.but(n_ctx=settings.n_ctx or cells[-1]))
        engine.keep(0)
        prompt, seconds, filled = engine.random_prompt(cells[-1]), {}, 0
        for depth in (n - n_gen - 1 for n in cells):
            engine.step(entries_of(prompt[filled:depth], filled))
            filled, times = depth, _token_seconds(engine, prompt, depth, n_gen)
            seconds[depth + n_gen + 1] = times
        return DepthScaling(**common_fields(engine, opening, read_gguf(path)), seconds=seconds)


def _token_seconds(engine: Engine, prompt: Sequence[int], depth: int, n_gen: int) -> tuple[float, ...]:
    """Engine seconds of n_gen tokens decoded one after another at `depth`, after a warm-up token; then drop them."""
    positions = range(depth, depth + n_gen + 1)
    steps = [engine.step(entries_of([prompt[position]], position)).seconds for position in positions]
    engine.keep(depth)
    return tuple(steps[1:])
