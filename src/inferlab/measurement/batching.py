"""Batched decode: engine time of a step that computes one token for each of several sequences.

The method is that of llama.cpp's llama-batched-bench (tools/batched-bench/batched-bench.cpp): every sequence has a
prompt in the cache, and each llama_decode computes one token of each. The speed does not depend on which tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab.engine.protocol import Engine, Entry, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.queued import queued
from inferlab.measurement.turns import alternating
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings

SIZES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class BatchPoint:
    """`n_sequences` decoded together: engine seconds of every step, each of which gives one token to each sequence."""

    n_sequences: int
    step_seconds: tuple[float, ...]

    @property
    def median_seconds(self) -> float:
        """Median engine time of a step: the time between two tokens of a sequence."""
        return median(self.step_seconds)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all sequences together per second of engine time."""
        return self.n_sequences / self.median_seconds

    @property
    def each_tokens_per_second(self) -> float:
        """Tokens of a single sequence per second of engine time."""
        return 1 / self.median_seconds


@dataclass(frozen=True, kw_only=True)
class BatchedDecode(Measurement):
    """Batches of several sizes, measured in one context; each sequence starts with n_prompt tokens in the cache."""

    n_prompt: int
    points: tuple[BatchPoint, ...]

    def at(self, n_sequences: int) -> BatchPoint:
        """The batch of that size. Raises InvalidSettings if it was not measured."""
        for point in self.points:
            if point.n_sequences == n_sequences:
                return point
        sizes = ", ".join(str(point.n_sequences) for point in self.points)
        raise InvalidSettings(f"No batch of {n_sequences} sequences was measured, only of {sizes}.")

    def gain(self, n_sequences: int) -> float:
        """Tokens per second of the whole batch over those of a single sequence."""
        return self.at(n_sequences).tokens_per_second / self.at(1).tokens_per_second


@queued
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

    All sequences have the same prompt, each in its own cells; with kv_unified=True they share the prompt's cells.
    Sizes take turns, so that a drift of the machine affects all of them; the first step of a turn is not counted.
    Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    settings, engine = settings or Settings(), engine or default_engine()
    _require_counts(sizes, n_prompt, n_gen, repeats)
    path = find_model(model)
    header = read_gguf(path)
    with engine.exclusive():
        opening = engine.open(path, with_context(settings, n_prompt, n_gen + 1, max(sizes)))
        first = share_prompt(engine, n_prompt, max(sizes))
        seconds: dict[int, list[float]] = {size: [] for size in sizes}
        rounds = track(range(repeats), repeats, f"decoding {header.name}", progress)
        for size in alternating(sizes, rounds):
            seconds[size] += _step_seconds(engine, size, n_prompt, n_gen, first)
        common = common_fields(engine, opening, header)
    points = tuple(BatchPoint(size, tuple(seconds[size])) for size in sizes)
    return BatchedDecode(**common, n_prompt=n_prompt, points=points)


def share_prompt(engine: Engine, n_prompt: int, n_sequences: int) -> int:
    """Empty the cache, then give every sequence the same random prompt; returns the token that follows it."""
    engine.keep(0)
    step = engine.step(entries_of(engine.random_prompt(n_prompt)))
    for sequence in range(1, n_sequences):
        engine.share(0, sequence)
    return step.picks[-1]


def _step_seconds(engine: Engine, size: int, n_prompt: int, n_gen: int, first: int) -> list[float]:
    """Engine seconds of n_gen steps with one token of each sequence, after a warm-up step; the prompts stay cached."""
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
