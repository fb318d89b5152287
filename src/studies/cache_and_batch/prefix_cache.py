"""Prefix caching: time to the first token with a shared prefix that is already in the KV cache, and without.

Reuse is exact, because a token's keys and values depend only on that token and the tokens before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from inferlab.engine.protocol import Engine, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import EngineRefused
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.queued import queued
from inferlab.model.find import find_model
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings


@dataclass(frozen=True)
class Prefix:
    """One length of the shared prefix: engine seconds to the first token, for each repetition.

    n_shared        tokens of the shared prefix
    n_own           tokens of the prompt after it
    whole_seconds   the whole prompt is computed
    reused_seconds  another sequence has computed the prefix and shares it; only the rest is computed
    share_seconds   the part of reused_seconds that sharing took
    same_picks      whether both methods gave the same first token, for each repetition
    """

    n_shared: int
    n_own: int
    whole_seconds: tuple[float, ...]
    reused_seconds: tuple[float, ...]
    share_seconds: tuple[float, ...]
    same_picks: tuple[bool, ...]

    @property
    def gain(self) -> float:
        """Median time without reuse over median time with reuse."""
        return median(self.whole_seconds) / median(self.reused_seconds)

    @property
    def read_share(self) -> float:
        """The share of the prompt that is still computed: 1 / `gain` if time were proportional to tokens."""
        return self.n_own / (self.n_shared + self.n_own)


@dataclass(frozen=True, kw_only=True)
class PrefixReuse(Measurement):
    """Shared prefixes of several lengths before own parts of one length, measured in one context."""

    prefixes: tuple[Prefix, ...]


@queued
def reuse_prefix(
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_shared: Sequence[int] = (64, 256, 512),
    n_own: int = 16,
    repeats: int = 3,
    engine: Engine | None = None,
) -> PrefixReuse:
    """Time the first token of a prompt with and without a prefix that another sequence has already computed.

    Both sequences share one pool of cells (kv_unified), so sharing copies nothing.
    Raises ModelError, EngineRefused or EngineCrashed.
    """
    settings, engine, path = settings or Settings(), engine or default_engine(), find_model(model)
    needed = padded(max(n_shared) + 2 * n_own)
    pool = settings.but(n_seq_max=2, kv_unified=True, n_ctx=settings.n_ctx or needed)
    with engine.exclusive():
        opening = engine.open(path, pool)
        _time_whole(engine, engine.random_prompt(n_own))
        prefixes = tuple(_measured_prefix(engine, n, n_own, repeats) for n in n_shared)
        return PrefixReuse(**common_fields(engine, opening, read_gguf(path)), prefixes=prefixes)


def _measured_prefix(engine: Engine, n_shared: int, n_own: int, repeats: int) -> Prefix:
    prompt = engine.random_prompt(n_shared + n_own)
    rounds = [(*_time_whole(engine, prompt), *_time_reuse(engine, prompt, n_shared)) for _ in range(repeats)]
    whole, whole_picks, reused, reused_picks, share = zip(*rounds, strict=True)
    same = tuple(a == b for a, b in zip(whole_picks, reused_picks, strict=True))
    return Prefix(n_shared, n_own, whole, reused, share, same)


def _time_whole(engine: Engine, prompt: Sequence[int]) -> tuple[float, int]:
    """Engine seconds of a prompt's prefill into an empty cache, and the token that follows."""
    engine.keep(0)
    step = engine.step(entries_of(prompt))
    return step.seconds, step.picks[-1]


def _time_reuse(engine: Engine, prompt: Sequence[int], n_shared: int) -> tuple[float, int, float]:
    """The same with the prefix shared: seconds including the sharing, the token, and the seconds of the sharing."""
    engine.keep(n_shared)
    share = engine.share(0, 1)
    step = engine.step(entries_of(prompt[n_shared:], n_shared, sequence=1))
    engine.keep(0, 1)
    return share + step.seconds, step.picks[-1], share


def pool_text(model: str | Path, settings: Settings, engine: Engine | None = None) -> str:
    """Four sequences of 410 tokens in one pool of 512 cells: with 400 tokens shared, and each on its own.

    Two lines: whether the first tokens are equal, and which sequence was refused. Raises ModelError or EngineCrashed.
    """
    engine, sequences = engine or default_engine(), range(4)
    engine.open(find_model(model), settings.but(n_ctx=512, n_seq_max=len(sequences), kv_unified=True))
    prompt = engine.random_prompt(410)
    engine.keep(0)
    engine.step(entries_of(prompt[:400]))
    for other in sequences[1:]:
        engine.share(0, other)
    first = {engine.step(entries_of(prompt[400:], 400, sequence)).picks[0] for sequence in sequences}
    lines = [f"shared: the four first tokens {'are equal' if len(first) == 1 else 'differ'}"]
    engine.keep(0)
    for sequence in sequences:
        try:
            engine.step(entries_of(prompt, 0, sequence))
        except EngineRefused as refused:
            return "\n".join([*lines, f"not shared, sequence {sequence + 1}: {str(refused).split(':')[0]}"])
    return "\n".join([*lines, "not shared: none was refused"])
