"""A common beginning, read once: the wait for a first token with a prefix that is kept, and without.

Reuse is exact, because what lies in the cache of a token depends on the tokens before it and on nothing after it.
"""

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
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings


@dataclass(frozen=True)
class Prefix:
    """One length of the common beginning: engine seconds to the first token, once for each repetition.

    whole_seconds   everything is read
    reused_seconds  the beginning is shared by a sequence that has read it, and only the rest is read
    share_seconds   what the sharing alone took
    same_picks      whether both ways gave the same first token, for each repetition
    """

    n_shared: int
    n_own: int
    whole_seconds: tuple[float, ...]
    reused_seconds: tuple[float, ...]
    share_seconds: tuple[float, ...]
    same_picks: tuple[bool, ...]

    @property
    def gain(self) -> float:
        """How many times as long the wait is without reuse, of medians."""
        return median(self.whole_seconds) / median(self.reused_seconds)

    @property
    def read_share(self) -> float:
        """The share of the prompt that is still read: the wait with reuse over the wait without, if reading is all."""
        return self.n_own / (self.n_shared + self.n_own)


@dataclass(frozen=True, kw_only=True)
class PrefixReuse(Measurement):
    """Common beginnings of several lengths before questions of one length, measured in one context."""

    prefixes: tuple[Prefix, ...]


def reuse_prefix(
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_shared: Sequence[int] = (64, 256, 512),
    n_own: int = 16,
    repeats: int = 3,
    engine: Engine | None = None,
) -> PrefixReuse:
    """Time the first token of a prompt with and without a beginning that another sequence has already read.

    Both sequences share one pool of cells (kv_unified), so that sharing copies nothing.
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    if not n_shared or min(*n_shared, n_own, repeats) < 1:
        raise InvalidSettings("n_shared, n_own and repeats must be whole numbers of at least 1.")
    settings, engine = settings or Settings(), engine or default_engine()
    path = find_model(model)
    needed = padded(max(n_shared) + 2 * n_own)
    pool = settings.but(n_seq_max=2, kv_unified=True, n_ctx=settings.n_ctx or needed)
    with engine.exclusive():
        opening = engine.open(path, pool)
        _whole(engine, engine.random_prompt(n_own))
        found = tuple(_prefix(engine, n, n_own, repeats) for n in n_shared)
        return PrefixReuse(**common_fields(engine, opening, read_gguf(path)), prefixes=found)


def _prefix(engine: Engine, n_shared: int, n_own: int, repeats: int) -> Prefix:
    prompt = engine.random_prompt(n_shared + n_own)
    rounds = [(*_whole(engine, prompt), *_reused(engine, prompt, n_shared)) for _ in range(repeats)]
    whole, full_picks, reused, picks, share = zip(*rounds, strict=True)
    same = tuple(one == other for one, other in zip(full_picks, picks, strict=True))
    return Prefix(n_shared, n_own, whole, reused, share, same)


def _whole(engine: Engine, prompt: Sequence[int]) -> tuple[float, int]:
    """Engine seconds of reading a prompt into an empty cache, and the token that follows."""
    engine.keep(0)
    step = engine.step(entries_of(prompt))
    return step.seconds, step.picks[-1]


def _reused(engine: Engine, prompt: Sequence[int], n_shared: int) -> tuple[float, int, float]:
    """The same with the beginning shared: seconds with the sharing, the token, and the sharing's seconds alone."""
    engine.keep(n_shared)
    share = engine.share(0, 1)
    step = engine.step(entries_of(prompt[n_shared:], n_shared, sequence=1))
    engine.keep(0, 1)
    return share + step.seconds, step.picks[-1], share
