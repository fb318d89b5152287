"""Several sequences in one context: what it costs to decode one token for each of them together.

As llama.cpp's llama-batched-bench does it: every sequence has a prompt behind it, and each llama_decode carries one
token of each (tools/batched-bench/batched-bench.cpp). Whose tokens they are does not matter to the speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab.engine.protocol import Engine, Entry, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.model.find import find_model
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings

SIZES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class BatchPoint:
    """So many sequences decoded together: engine seconds of every step, in which each got one token."""

    n_sequences: int
    step_seconds: tuple[float, ...]

    @property
    def median_seconds(self) -> float:
        """Median engine time of a step; each sequence waits so long for a token."""
        return median(self.step_seconds)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all sequences together per second of engine time."""
        return self.n_sequences / self.median_seconds

    @property
    def each_tokens_per_second(self) -> float:
        """Tokens that one of the sequences gets per second of engine time."""
        return 1 / self.median_seconds


@dataclass(frozen=True, kw_only=True)
class BatchedDecode(Measurement):
    """Batches of several sizes, measured in one context with n_prompt tokens behind each sequence."""

    n_prompt: int
    points: tuple[BatchPoint, ...]

    def at(self, n_sequences: int) -> BatchPoint:
        """The batch of that size. Raises InvalidSettings where it was not measured."""
        for point in self.points:
            if point.n_sequences == n_sequences:
                return point
        sizes = ", ".join(str(point.n_sequences) for point in self.points)
        raise InvalidSettings(f"No batch of {n_sequences} sequences was measured, only of {sizes}.")

    def gain(self, n_sequences: int) -> float:
        """How many times the tokens per second of a single sequence a batch gets, all together."""
        return self.at(n_sequences).tokens_per_second / self.at(1).tokens_per_second


def batched_decode(
    model: str | Path | None = None,
    settings: Settings | None = None,
    sizes: Sequence[int] = SIZES,
    n_prompt: int = 64,
    n_gen: int = 8,
    repeats: int = 3,
    engine: Engine | None = None,
    progress: bool | None = None,
) -> BatchedDecode:
    """Decode `n_gen` tokens for each of 1, 2, 4 … sequences at once, `repeats` times; returns the `BatchedDecode`.

    Each sequence has cells of its own, filled with the same prompt; with kv_unified=True they share the prompt's.
    Sizes take turns, so that a machine that drifts moves all of them; the first step of a turn is not counted.
    Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    settings, engine = settings or Settings(), engine or default_engine()
    _require_counts(sizes, n_prompt, n_gen, repeats)
    path = find_model(model)
    header = read_gguf(path)
    with engine.exclusive():
        opening = engine.open(path, roomy(settings, max(sizes), n_prompt + n_gen + 1))
        first = fill(engine, n_prompt, max(sizes))
        seconds: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in track(range(repeats), repeats, f"serving {header.name}", progress):
            for size in sizes:
                seconds[size] += _turn(engine, size, n_prompt, n_gen, first)
        facts = common_fields(engine, opening, header)
    points = tuple(BatchPoint(size, tuple(seconds[size])) for size in sizes)
    return BatchedDecode(**facts, n_prompt=n_prompt, points=points)


def roomy(settings: Settings, n_sequences: int, n_tokens: int) -> Settings:
    """Settings for so many sequences of so many tokens; an n_ctx that was asked for is kept."""
    each = padded(n_tokens)
    return settings.but(n_seq_max=n_sequences, n_ctx=settings.n_ctx or n_sequences * each)


def fill(engine: Engine, n_prompt: int, n_sequences: int) -> int:
    """Empty the cache, then give every sequence the same random prompt; returns the token that follows it."""
    engine.keep(0)
    step = engine.step(entries_of(engine.random_prompt(n_prompt)))
    for other in range(1, n_sequences):
        engine.share(0, other)
    return step.picks[-1]


def _turn(engine: Engine, size: int, n_prompt: int, n_gen: int, first: int) -> list[float]:
    """Engine seconds of n_gen steps with one token of each sequence, after one that warms up; the prompts stay."""
    tokens, seconds = [first] * size, []
    for position in range(n_prompt, n_prompt + n_gen + 1):
        step = engine.step([Entry(token, position, sequence, True) for sequence, token in enumerate(tokens)])
        tokens = list(step.picks)
        seconds.append(step.seconds)
    engine.keep(n_prompt)
    return seconds[1:]


def _require_counts(sizes: Sequence[int], *counts: int) -> None:
    if not sizes or min(*sizes, *counts) < 1:
        raise InvalidSettings("Sizes, n_prompt, n_gen and repeats must be whole numbers of at least 1.")
