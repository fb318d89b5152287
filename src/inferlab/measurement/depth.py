"""Decode at depth: engine time of a token against the number of KV cache cells in use, after one prompt."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.queued import queued
from inferlab.measurement.turns import alternating
from inferlab.model.find import find_model
from inferlab.model.ggml_types import CELL_STEP, padded
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from inferlab.statistics import Comparison, compared


@dataclass(frozen=True, kw_only=True)
class DepthScaling(Measurement):
    """Engine seconds of single tokens, by the number of cells in use, in whole 256-cell steps."""

    seconds: dict[int, tuple[float, ...]]

    def median_seconds(self, cells: int) -> float:
        """Median engine time of a token with `cells` cells in use."""
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


@queued
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


@queued
def decode_in_turns(
    model: str | Path | None,
    choices: Sequence[Settings],
    cells: Sequence[int] = (512, 4096),
    n_gen: int = 8,
    rounds: int = 10,
    engines: Sequence[Engine] | None = None,
) -> tuple[DepthScaling, ...]:
    """`decode_at_depths` for several settings, each in an engine of its own, which take turns at every depth.

    Each of `rounds` decodes n_gen tokens with every setting, every second round in reversed order. `engines` are new
    ones unless given.
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    path, cells = find_model(model), sorted(cells)
    with ExitStack() as stack:
        engines = engines or [stack.enter_context(closing(LlamaEngine())) for _ in choices]
        openings = [e.open(path, s.but(n_ctx=s.n_ctx or cells[-1])) for e, s in zip(engines, choices, strict=True)]
        prompt, filled = engines[0].random_prompt(cells[-1]), 0
        seconds: list[dict[int, tuple[float, ...]]] = [{n: () for n in cells} for _ in choices]
        for n_cells in cells:
            depth = n_cells - n_gen - 1
            for engine in engines:
                engine.step(entries_of(prompt[filled:depth], filled))
            filled = depth
            for place in alternating(range(len(engines)), range(rounds)):
                seconds[place][n_cells] += _token_seconds(engines[place], prompt, depth, n_gen)
        header = read_gguf(path)
        common = [common_fields(engine, opening, header) for engine, opening in zip(engines, openings, strict=True)]
    return tuple(DepthScaling(**known, seconds=times) for known, times in zip(common, seconds, strict=True))


def compare_rounds(before: DepthScaling, after: DepthScaling, cells: int, rounds: int) -> Comparison:
    """The rates of `after` over those of `before` at one depth, round by round, for two results of `decode_in_turns`.

    Raises InvalidSettings where the tokens are not the same number in each of `rounds`.
    """
    sides = [before.seconds[cells], after.seconds[cells]]
    if len(sides[0]) != len(sides[1]) or rounds < 1 or len(sides[0]) % rounds:
        raise InvalidSettings(
            f"{len(sides[0])} and {len(sides[1])} tokens are not the same number in each of {rounds} rounds. "
            "Give the rounds of `decode_in_turns`."
        )
    n = len(sides[0]) // rounds
    slow, fast = ([sum(side[i : i + n]) for i in range(0, len(side), n)] for side in sides)
    return compared(fast, slow)


@queued
def decode_beside(
    model: str | Path | None,
    settings: Settings,
    n_others: int = 3072,
    n_own: int = 128,
    n_gen: int = 32,
    engine: Engine | None = None,
) -> DepthScaling:
    """Time `n_gen` tokens of one sequence alone in a pool of cells, then beside n_others cells of another sequence.

    The mask hides the other sequence's cells, so the answer does not change; only a kernel that does not skip masked
    cells takes longer. Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    engine, path = engine or default_engine(), find_model(model)
    own = n_own + 2 * (n_gen + 1)
    with engine.exclusive():
        opening = engine.open(path, settings.but(n_ctx=padded(own + n_others), n_seq_max=2, kv_unified=True))
        engine.keep(0)
        prompt = engine.random_prompt(max(own, n_others))
        engine.step(entries_of(prompt[:n_own]))
        alone = _steps(engine, prompt, n_own, n_gen)
        engine.step(entries_of(prompt[:n_others], 0, 1))
        beside = _steps(engine, prompt, n_own + n_gen + 1, n_gen)
        common = common_fields(engine, opening, read_gguf(path))
    return DepthScaling(**common, seconds={padded(own - n_gen - 1): alone, padded(own + n_others): beside})


def _steps(engine: Engine, prompt: Sequence[int], depth: int, n_gen: int) -> tuple[float, ...]:
    """Engine seconds of n_gen tokens decoded one after another from `depth` on, after a warm-up token."""
    positions = range(depth, depth + n_gen + 1)
    return tuple(engine.step(entries_of([prompt[position]], position)).seconds for position in positions)[1:]


def _token_seconds(engine: Engine, prompt: Sequence[int], depth: int, n_gen: int) -> tuple[float, ...]:
    """Engine seconds of n_gen tokens decoded one after another at `depth`, after a warm-up token; then drop them."""
    steps = _steps(engine, prompt, depth, n_gen)
    engine.keep(depth)
    return steps
