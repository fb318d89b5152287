"""Speculative decoding: somebody proposes the next tokens cheaply, the model checks all of them in one pass.

Greedy: a proposal is accepted as long as it is what the model itself would have picked, so every token of the answer
is the model's own (Leviathan 2023; Chen 2023, for temperature 0). Rejected tokens are dropped from the cache.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple, Protocol

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine, Entry, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.model.find import find_model
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings

SEED = 4096


class Drafter(Protocol):
    """Whoever proposes: at most n tokens to follow `text`, and the seconds that it took."""

    name: str

    def propose(self, text: Sequence[int], n: int) -> tuple[list[int], float]: ...

    def close(self) -> None: ...


class PromptLookup:
    """Proposes what followed the last `n_match` tokens where they stood before in the text; no model at all."""

    def __init__(self, n_match: int = 2) -> None:
        self.n_match = n_match
        self.name = f"lookup of {n_match} tokens"

    def propose(self, text: Sequence[int], n: int) -> tuple[list[int], float]:
        """The continuation of the latest earlier occurrence, none where there is none."""
        began = time.perf_counter()
        text = list(text)
        tail, before = text[-self.n_match :], len(text) - self.n_match
        places = (at for at in range(before - 1, -1, -1) if text[at : at + self.n_match] == tail)
        found = next(places, None)
        drafted = [] if found is None else text[found + self.n_match :][:n]
        return drafted, time.perf_counter() - began

    def close(self) -> None:
        """Nothing to end."""


class FixedAcceptanceDrafter:
    """Proposes the answer itself, which it was told, but a wrong token in place of each with a chosen chance.

    An instrument, not a method: it costs nothing and hits as often as it is asked to, so that what is left is the
    price of checking. `text` is the prompt with the whole answer, as token ids; draws have a fixed seed.
    """

    def __init__(self, text: Sequence[int], hit_rate: float) -> None:
        self.text, self.hit_rate = list(text), hit_rate
        self.name = f"foreseer, {100 * hit_rate:.0f} % hits"
        self.draws = random.Random(SEED)

    def propose(self, text: Sequence[int], n: int) -> tuple[list[int], float]:
        """The next n tokens of the answer, each spoilt with chance 1 - hit_rate, in no time."""
        ahead = self.text[len(text) : len(text) + n]
        return [token if self.draws.random() < self.hit_rate else int(not token) for token in ahead], 0.0

    def close(self) -> None:
        """Nothing to end."""


class DraftModel:
    """Proposes what another model writes, in an engine of its own; it must have the same vocabulary."""

    def __init__(
        self, model: str | Path, n_ctx: int = 1024, n_threads: int | None = None, engine: Engine | None = None
    ) -> None:
        self.engine, self.held = engine or LlamaEngine(), []
        path = find_model(model)
        self.name = path.stem
        self.engine.open(path, Settings(n_ctx=n_ctx, n_threads=n_threads, flash_attn="on"))
        self.engine.keep(0)

    def propose(self, text: Sequence[int], n: int) -> tuple[list[int], float]:
        """n tokens, one after another; what its cache already holds of the text is not read again."""
        text = list(text)
        known = min(_agreeing(self.held, text), len(text) - 1)
        self.engine.keep(known)
        seconds, drafted, to_read = 0.0, [], text[known:]
        while len(drafted) < n:
            step = self.engine.step(entries_of(to_read, known))
            known, to_read = known + len(to_read), [step.picks[-1]]
            drafted.append(step.picks[-1])
            seconds += step.seconds
        self.held = (text + drafted)[:known]
        return drafted, seconds

    def close(self) -> None:
        """End the draft's engine."""
        self.engine.close()


class Round(NamedTuple):
    """One proposal and its check: how many tokens were proposed and accepted, and the seconds of both."""

    proposed: int
    accepted: int
    draft_seconds: float
    check_seconds: float


@dataclass(frozen=True, kw_only=True)
class Speculation(Measurement):
    """One answer written with a drafter and without, in turns; engine seconds of decode, the prompt not counted.

    rounds          of each pass with the drafter
    plain_seconds   of each pass without
    same_tokens     whether both ways wrote the same answer, in every pass
    """

    drafter: str
    n_draft: int
    rounds: tuple[tuple[Round, ...], ...]
    plain_seconds: tuple[float, ...]
    same_tokens: bool
    text: str | None = None

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens over proposed ones; None where nothing was proposed."""
        proposed = sum(one.proposed for one in self.rounds[0])
        return sum(one.accepted for one in self.rounds[0]) / proposed if proposed else None

    @property
    def tokens_per_round(self) -> float:
        """Tokens that one pass of the model gave, the model's own one among them."""
        return sum(one.accepted + 1 for one in self.rounds[0]) / len(self.rounds[0])

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of each pass with the drafter: proposals and checks."""
        return tuple(sum(one.draft_seconds + one.check_seconds for one in many) for many in self.rounds)

    @property
    def draft_share(self) -> float:
        """The share of the time that went into proposals."""
        return sum(one.draft_seconds for many in self.rounds for one in many) / sum(self.seconds)

    @property
    def speedups(self) -> tuple[float, ...]:
        """How many times as fast the answer was with the drafter, pass by pass; below 1 it was slower."""
        return tuple(plain / drafted for plain, drafted in zip(self.plain_seconds, self.seconds, strict=True))

    @property
    def speedup(self) -> float:
        """Median of `speedups`."""
        return median(self.speedups)


def speculate(
    prompt: str,
    drafter: Drafter,
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_draft: int = 3,
    n_gen: int = 64,
    repeats: int = 3,
    engine: Engine | None = None,
) -> Speculation:
    """Write `n_gen` tokens after a text with the drafter's proposals and without, `repeats` times each, in turns.

    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    if min(n_draft, n_gen, repeats) < 1:
        raise InvalidSettings("n_draft, n_gen and repeats must be whole numbers of at least 1.")
    engine, path = engine or default_engine(), find_model(model)
    with engine.exclusive():
        engine.open_vocabulary(path)
        tokens = engine.tokenize(prompt)
        cells = padded(len(tokens) + n_gen + n_draft)
        opening = engine.open(path, (settings or Settings()).but(n_ctx=(settings and settings.n_ctx) or cells))
        _drafted(engine, drafter, tokens, n_draft, min(n_gen, 2 * n_draft))
        turns = [
            (*_plain(engine, tokens, n_gen), *_drafted(engine, drafter, tokens, n_draft, n_gen)) for _ in range(repeats)
        ]
        facts, text = common_fields(engine, opening, read_gguf(path)), engine.detokenize(turns[-1][2])
    written, plain_seconds, drafted, rounds = zip(*turns, strict=True)
    same = all(one == written[0] for one in (*written, *drafted))
    return Speculation(
        **facts,
        drafter=drafter.name,
        n_draft=n_draft,
        rounds=rounds,
        plain_seconds=plain_seconds,
        same_tokens=same,
        text=text,
    )


def _prefilled(engine: Engine, prompt: Sequence[int]) -> list[int]:
    """The prompt read into an empty cache, and the first token of the answer behind it."""
    engine.keep(0)
    return [*prompt, engine.step(entries_of(prompt)).picks[-1]]


def _plain(engine: Engine, prompt: Sequence[int], n_gen: int) -> tuple[list[int], float]:
    """An answer of n_gen tokens, one after another, and the seconds of all but the first."""
    text, seconds = _prefilled(engine, prompt), 0.0
    while len(text) < len(prompt) + n_gen:
        step = engine.step(entries_of(text[-1:], len(text) - 1))
        text.append(step.picks[-1])
        seconds += step.seconds
    return text[len(prompt) :], seconds


def _drafted(
    engine: Engine, drafter: Drafter, prompt: Sequence[int], n_draft: int, n_gen: int
) -> tuple[list[int], tuple[Round, ...]]:
    """The same answer with proposals, and what each round of it took."""
    text, rounds = _prefilled(engine, prompt), []
    while (left := len(prompt) + n_gen - len(text)) > 0:
        drafted, seconds = drafter.propose(text, min(n_draft, left - 1)) if left > 1 else ([], 0.0)
        accepted, step_seconds = _check(engine, text, drafted)
        rounds.append(Round(len(drafted), len(accepted) - 1, seconds, step_seconds))
        text += accepted
        engine.keep(len(text) - 1)
    return text[len(prompt) :], tuple(rounds)


def _check(engine: Engine, text: Sequence[int], drafted: Sequence[int]) -> tuple[list[int], float]:
    """The model's own tokens as far as the draft foresaw them, and one more; the seconds of the one pass over all."""
    checked = [text[-1], *drafted]
    step = engine.step([Entry(token, len(text) - 1 + index, 0, True) for index, token in enumerate(checked)])
    return list(step.picks[: _agreeing(drafted, step.picks) + 1]), step.seconds


def _agreeing(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common from the beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@dataclass(frozen=True, kw_only=True)
class VerifyCost(Measurement):
    """Engine seconds of passes over 1, 2, 3 … tokens of one sequence, by the number of tokens."""

    seconds: dict[int, tuple[float, ...]]

    def price(self, n_tokens: int) -> float:
        """A pass over so many tokens, in passes over one."""
        return median(self.seconds[n_tokens]) / median(self.seconds[1])

    def speedup(self, acceptance: float, n_draft: int, draft_price: float = 0.0) -> float:
        """What is to be expected of n_draft proposals, each accepted with one probability, each at `draft_price`.

        Tokens of a round over its price, both in plain tokens: Leviathan 2023, theorem 3.8, with the pass's own price
        in place of 1.
        """
        return expected_tokens(acceptance, n_draft) / (self.price(n_draft + 1) + n_draft * draft_price)


def time_verification(
    model: str | Path | None = None,
    settings: Settings | None = None,
    sizes: Sequence[int] = (1, 2, 3, 4, 5, 6, 8),
    n_prompt: int = 64,
    repeats: int = 12,
    engine: Engine | None = None,
) -> VerifyCost:
    """Time passes over a few tokens behind a prompt, every one with logits, as a check of proposals needs them.

    Sizes take turns; the first turn is not counted. Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    if 1 not in sizes or min(*sizes, n_prompt, repeats) < 1:
        raise InvalidSettings("sizes must contain 1, and sizes, n_prompt and repeats be whole numbers of at least 1.")
    settings, engine, path = settings or Settings(), engine or default_engine(), find_model(model)
    cells = padded(n_prompt + max(sizes))
    with engine.exclusive():
        opening = engine.open(path, settings.but(n_ctx=settings.n_ctx or cells))
        engine.keep(0)
        tokens = engine.random_prompt(n_prompt + max(sizes))
        engine.step(entries_of(tokens[:n_prompt]))
        turns = [{n: _pass_over(engine, tokens[n_prompt:][:n], n_prompt) for n in sizes} for _ in range(repeats + 1)]
        facts = common_fields(engine, opening, read_gguf(path))
    seconds = {n: tuple(turn[n] for turn in turns[1:]) for n in sizes}
    return VerifyCost(**facts, seconds=seconds)


def _pass_over(engine: Engine, tokens: Sequence[int], position: int) -> float:
    """Engine seconds of one pass over tokens that are dropped again."""
    step = engine.step([Entry(token, position + index, 0, True) for index, token in enumerate(tokens)])
    engine.keep(position)
    return step.seconds


def expected_tokens(acceptance: float, n_draft: int) -> float:
    """Tokens of a round if each proposal is accepted with one probability, independently: (1 - a^(n+1)) / (1 - a).

    Leviathan 2023, equation 1.
    """
    return n_draft + 1.0 if acceptance == 1 else (1 - acceptance ** (n_draft + 1)) / (1 - acceptance)
