"""Speculative decoding: a drafter proposes the next tokens cheaply, the model verifies all of them in one pass.

Decoding is greedy: proposals are accepted up to the first one that differs from the model's own choice, so the answer
is the same as without a drafter (Leviathan 2023; Chen 2023, for temperature 0). Rejected tokens are dropped from the
cache.
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
from inferlab.engine.protocol import Engine, Entry, Opening, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.queued import queued
from inferlab.measurement.turns import in_turns
from inferlab.model.find import find_model
from inferlab.model.ggml_types import padded
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from inferlab.statistics import Comparison, compared

SEED = 4096


class Drafter(Protocol):
    """Proposes at most n tokens that may follow `text`; returns them and the seconds that it took."""

    name: str

    def propose(self, text: Sequence[int], n: int) -> tuple[list[int], float]: ...

    def close(self) -> None: ...


class PromptLookup:
    """Proposes the tokens that followed the last `n_match` tokens earlier in the text; needs no model."""

    def __init__(self, n_match: int = 2) -> None:
        self.n_match = n_match
        self.name = f"lookup of {n_match} tokens"

    def propose(self, text: Sequence[int], n: int) -> tuple[list[int], float]:
        """The continuation of the latest earlier occurrence; no tokens if there is no earlier occurrence."""
        began = time.perf_counter()
        text = list(text)
        tail, before = text[-self.n_match :], len(text) - self.n_match
        starts = (i for i in range(before - 1, -1, -1) if text[i : i + self.n_match] == tail)
        start = next(starts, None)
        drafted = [] if start is None else text[start + self.n_match :][:n]
        return drafted, time.perf_counter() - began

    def close(self) -> None:
        """Nothing to end."""


class DraftModel:
    """Proposes the tokens of a second model with the same vocabulary, which runs in an engine of its own."""

    def __init__(
        self, model: str | Path, n_ctx: int = 1024, n_threads: int | None = None, engine: Engine | None = None
    ) -> None:
        self.engine = engine or LlamaEngine()
        self.cached: list[int] = []
        path = find_model(model)
        self.name = path.stem
        self.engine.open(path, Settings(n_ctx=n_ctx, n_threads=n_threads, flash_attn="on"))
        self.engine.keep(0)

    def propose(self, text: Sequence[int], n: int) -> tuple[list[int], float]:
        """n tokens, one after another; tokens of the text that are in its cache are not computed again."""
        text = list(text)
        known = min(_common_prefix_length(self.cached, text), len(text) - 1)
        self.engine.keep(known)
        drafted: list[int] = []
        seconds, pending = 0.0, text[known:]
        while len(drafted) < n:
            step = self.engine.step(entries_of(pending, known))
            known, pending = known + len(pending), [step.picks[-1]]
            drafted.append(step.picks[-1])
            seconds += step.seconds
        self.cached = (text + drafted)[:known]
        return drafted, seconds

    def close(self) -> None:
        """Close the draft model's engine."""
        self.engine.close()


class Round(NamedTuple):
    """One proposal and its verification: tokens proposed and accepted, and the seconds of each."""

    proposed: int
    accepted: int
    draft_seconds: float
    check_seconds: float


@dataclass(frozen=True, kw_only=True)
class Speculation(Measurement):
    """One answer decoded with a drafter and without, in turns; engine seconds of decode, without the prompt.

    rounds          of each pass with the drafter
    plain_seconds   of each pass without a drafter
    same_tokens     whether the answer was the same with and without, in every pass
    """

    drafter: str
    n_draft: int
    rounds: tuple[tuple[Round, ...], ...]
    plain_seconds: tuple[float, ...]
    same_tokens: bool
    text: str | None = None

    @property
    def acceptance(self) -> float | None:
        """Accepted tokens over proposed ones; None if nothing was proposed."""
        proposed = sum(step.proposed for step in self.rounds[0])
        return sum(step.accepted for step in self.rounds[0]) / proposed if proposed else None

    @property
    def tokens_per_round(self) -> float:
        """Tokens per verification pass of the model: the accepted ones and one more of its own."""
        return sum(step.accepted + 1 for step in self.rounds[0]) / len(self.rounds[0])

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of each pass with the drafter: proposals and verification."""
        return tuple(sum(step.draft_seconds + step.check_seconds for step in steps) for steps in self.rounds)

    @property
    def draft_cost(self) -> float | None:
        """Time of a proposed token, in units of a token without a drafter; None if nothing was proposed."""
        steps = [step for steps in self.rounds for step in steps]
        proposed = sum(step.proposed for step in steps)
        single = sum(self.plain_seconds) / sum(step.accepted + 1 for step in steps)
        return sum(step.draft_seconds for step in steps) / proposed / single if proposed else None

    @property
    def speedups(self) -> Comparison:
        """Time without the drafter over time with it, for each pass; below 1 the drafter made decode slower."""
        return compared(self.seconds, self.plain_seconds)

    @property
    def speedup(self) -> float:
        """Median of `speedups`."""
        return self.speedups.ratio


@queued
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
    """Decode `n_gen` tokens after a text with the drafter and without, `repeats` times each, in turns.

    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    _require_counts(n_draft, n_gen, repeats)
    engine, path = engine or default_engine(), find_model(model)
    with engine.exclusive():
        engine.open_vocabulary(path)
        tokens = engine.tokenize(prompt)
        opening = _opened(engine, path, settings, len(tokens) + n_gen + n_draft)
        _decode_drafted(engine, drafter, tokens, n_draft, min(n_gen, 2 * n_draft))  # not counted: it warms up
        turns = [answers_in_turn(engine, drafter, tokens, n_draft, n_gen) for _ in range(repeats)]
        common, text = common_fields(engine, opening, read_gguf(path)), engine.detokenize(turns[-1][2])
    plain_answers, plain_seconds, drafted_answers, rounds = zip(*turns, strict=True)
    return Speculation(
        **common,
        drafter=drafter.name,
        n_draft=n_draft,
        rounds=rounds,
        plain_seconds=plain_seconds,
        same_tokens=all(answer == plain_answers[0] for answer in (*plain_answers, *drafted_answers)),
        text=text,
    )


@queued
def speculate_at(
    acceptance: float,
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_draft: int = 3,
    n_gen: int = 65,
    repeats: int = 15,
    n_prompt: int = 64,
    engine: Engine | None = None,
) -> Speculation:
    """Time decode with drafts that cost nothing and are accepted by chance alone, each token with this probability.

    What the model would have picked is not compared, so the text is not its answer (`same_tokens` is False), and a
    model with synthetic weights may be timed so. llama-server has the same as --spec-synth-rates.
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    _require_counts(n_draft, n_gen, repeats)
    engine, path, draws = engine or default_engine(), find_model(model), random.Random(SEED)
    with engine.exclusive():
        opening = _opened(engine, path, settings, n_prompt + n_gen + n_draft)
        tokens = engine.random_prompt(n_prompt + n_draft)
        prompt, drafted = tokens[:n_prompt], tokens[n_prompt:]
        _decode_at(engine, 1.0, draws, prompt, drafted, n_gen)
        turns = [
            (_decode_plain(engine, prompt, n_gen)[1], _decode_at(engine, acceptance, draws, prompt, drafted, n_gen))
            for _ in range(repeats)
        ]
        common = common_fields(engine, opening, read_gguf(path))
    plain_seconds, rounds = zip(*turns, strict=True)
    name = f"{100 * acceptance:.0f} % accepted by chance"
    return Speculation(
        **common, drafter=name, n_draft=n_draft, rounds=rounds, plain_seconds=plain_seconds, same_tokens=False
    )


def _decode_at(
    engine: Engine, acceptance: float, draws: random.Random, prompt: Sequence[int], drafted: Sequence[int], n_gen: int
) -> tuple[Round, ...]:
    """The rounds of n_gen tokens: the same proposals in each, as many accepted as are drawn before the first miss."""
    text, rounds = _prefill(engine, prompt), []
    while (left := len(prompt) + n_gen - len(text)) > 0:
        proposed = list(drafted[: left - 1])
        checked = [text[-1], *proposed]
        step = engine.step([Entry(token, len(text) - 1 + index, 0, True) for index, token in enumerate(checked)])
        accepted = next((i for i in range(len(proposed)) if draws.random() >= acceptance), len(proposed))
        text += [*proposed[:accepted], step.picks[accepted]]
        rounds.append(Round(len(proposed), accepted, 0.0, step.seconds))
        engine.keep(len(text) - 1)
    return tuple(rounds)


def _require_counts(n_draft: int, n_gen: int, repeats: int) -> None:
    if min(n_draft, n_gen, repeats) < 1:
        raise InvalidSettings("n_draft, n_gen and repeats must be whole numbers of at least 1.")


def _opened(engine: Engine, path: Path, settings: Settings | None, n_tokens: int) -> Opening:
    """The model, with cells for n_tokens unless the settings have an n_ctx."""
    settings = settings or Settings()
    return engine.open(path, settings.but(n_ctx=settings.n_ctx or padded(n_tokens)))


def answers_in_turn(
    engine: Engine, drafter: Drafter, prompt: Sequence[int], n_draft: int, n_gen: int
) -> tuple[list[int], float, list[int], tuple[Round, ...]]:
    """One greedy answer without the drafter and its seconds, then with it and its rounds; the model is open."""
    return *_decode_plain(engine, prompt, n_gen), *_decode_drafted(engine, drafter, prompt, n_draft, n_gen)


def _prefill(engine: Engine, prompt: Sequence[int]) -> list[int]:
    """Compute the prompt with an empty cache; returns it with the first token of the answer."""
    engine.keep(0)
    return [*prompt, engine.step(entries_of(prompt)).picks[-1]]


def _decode_plain(engine: Engine, prompt: Sequence[int], n_gen: int) -> tuple[list[int], float]:
    """An answer of n_gen tokens without a drafter, and the engine seconds of all but the first token."""
    text, seconds = _prefill(engine, prompt), 0.0
    while len(text) < len(prompt) + n_gen:
        step = engine.step(entries_of(text[-1:], len(text) - 1))
        text.append(step.picks[-1])
        seconds += step.seconds
    return text[len(prompt) :], seconds


def _decode_drafted(
    engine: Engine, drafter: Drafter, prompt: Sequence[int], n_draft: int, n_gen: int
) -> tuple[list[int], tuple[Round, ...]]:
    """The same answer with proposals, and its rounds."""
    text, rounds = _prefill(engine, prompt), []
    while (left := len(prompt) + n_gen - len(text)) > 0:
        drafted, seconds = drafter.propose(text, min(n_draft, left - 1)) if left > 1 else ([], 0.0)
        accepted, step_seconds = _verify(engine, text, drafted)
        rounds.append(Round(len(drafted), len(accepted) - 1, seconds, step_seconds))
        text += accepted
        engine.keep(len(text) - 1)
    return text[len(prompt) :], tuple(rounds)


def _verify(engine: Engine, text: Sequence[int], drafted: Sequence[int]) -> tuple[list[int], float]:
    """The accepted proposals and the model's next token after them; the engine seconds of the one pass over all."""
    checked = [text[-1], *drafted]
    step = engine.step([Entry(token, len(text) - 1 + index, 0, True) for index, token in enumerate(checked)])
    return list(step.picks[: _common_prefix_length(drafted, step.picks) + 1]), step.seconds


def _common_prefix_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Number of tokens that two texts have in common from their beginning."""
    pairs = enumerate(zip(first, second, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(first), len(second)))


@dataclass(frozen=True, kw_only=True)
class VerifyCost(Measurement):
    """Engine seconds of passes over 1, 2, 3 … tokens of one sequence, by the number of tokens."""

    seconds: dict[int, tuple[float, ...]]

    def cost(self, n_tokens: int) -> float:
        """Time of a pass over n_tokens, in units of a pass over one token: the median of `ratios`.

        Between measured sizes it lies on the straight line through them. Raises InvalidSettings beyond the largest.
        """
        sizes = sorted(self.seconds)
        if not sizes[0] <= n_tokens <= sizes[-1]:
            known = f"{sizes[0]} to {sizes[-1]}"
            raise InvalidSettings(f"Passes over {n_tokens} tokens were not measured, only over {known}.")
        if n_tokens in self.seconds:
            return median(self.ratios(n_tokens))
        below, above = max(n for n in sizes if n < n_tokens), min(n for n in sizes if n > n_tokens)
        share = (n_tokens - below) / (above - below)
        return (1 - share) * self.cost(below) + share * self.cost(above)

    def ratios(self, n_tokens: int) -> tuple[float, ...]:
        """Time of a pass over n_tokens over that of a pass over one token, turn by turn."""
        return tuple(n / one for n, one in zip(self.seconds[n_tokens], self.seconds[1], strict=True))

    def speedup(self, acceptance: float, n_draft: int, draft_cost: float = 0.0) -> float:
        """Expected speed-up with n_draft proposals, each accepted with probability `acceptance`.

            expected_tokens(acceptance, n_draft) / (cost(n_draft + 1) + n_draft * draft_cost)

        Costs are in units of a pass over one token. Leviathan 2023, theorem 3.8, with the measured cost of the
        verification pass in place of 1.
        """
        return expected_tokens(acceptance, n_draft) / (self.cost(n_draft + 1) + n_draft * draft_cost)


@queued
def time_verification(
    model: str | Path | None = None,
    settings: Settings | None = None,
    sizes: Sequence[int] = (1, 2, 3, 4, 5, 6, 8),
    n_prompt: int = 64,
    repeats: int = 12,
    engine: Engine | None = None,
) -> VerifyCost:
    """Time passes over a few tokens after a prompt, with logits of every token, as verification needs them.

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
        turns = in_turns(lambda n: _pass_seconds(engine, tokens[n_prompt:][:n], n_prompt), sizes, range(repeats + 1))
        common = common_fields(engine, opening, read_gguf(path))
    return VerifyCost(**common, seconds={n: turn[1:] for n, turn in zip(sizes, turns, strict=True)})


def _pass_seconds(engine: Engine, tokens: Sequence[int], position: int) -> float:
    """Engine seconds of one pass over tokens; then drop them from the cache."""
    step = engine.step([Entry(token, position + index, 0, True) for index, token in enumerate(tokens)])
    engine.keep(position)
    return step.seconds


def expected_tokens(acceptance: float, n_draft: int) -> float:
    """Expected tokens of a round if each proposal is accepted independently with probability a = `acceptance`.

    (1 - a^(n_draft + 1)) / (1 - a)        (Leviathan 2023, equation 1)
    """
    return n_draft + 1.0 if acceptance == 1 else (1 - acceptance ** (n_draft + 1)) / (1 - acceptance)
