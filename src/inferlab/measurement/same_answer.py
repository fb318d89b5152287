"""What leaves an answer the same to the last bit, and what does not.

A sum in floating point depends on the order of its terms, so a change of threads or of batches may change the last
bits of the logits. The next token changes only where two candidates were nearly as likely, and with it all later ones.

Two comparisons: the cost in nats of every token of a text, which shows each bit, and greedy answers, token by token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Entry, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.queued import queued
from inferlab.model.find import find_model, held_out_text
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings

REFERENCE = Settings(n_threads=2, n_threads_batch=2, devices=())
PIECE = 32


class Change(NamedTuple):
    """Two sides that compute the same answers.

    before, after  their settings
    one_by_one     whether the text is scored token by token, as in decode; otherwise in batches, as in prefill
    beside         answers that are computed in the same batches as the second side's
    """

    before: Settings
    after: Settings
    one_by_one: bool = True
    beside: int = 0


def threads(settings: Settings, n: int) -> Settings:
    """Settings with n threads in prefill and decode."""
    return settings.but(n_threads=n, n_threads_batch=n)


OFF = REFERENCE.but(flash_attn="off")
Q8 = REFERENCE.but(flash_attn="on", type_k="q8_0", type_v="q8_0")
CHANGES: Mapping[str, Change] = {
    "nothing": Change(REFERENCE, REFERENCE),
    "1 thread, not 2": Change(REFERENCE, threads(REFERENCE, 1)),
    "1 thread, not 2, without flash attention": Change(OFF, threads(OFF, 1)),
    "1 thread, not 2, KV cache in q8_0": Change(Q8, threads(Q8, 1)),
    f"prompt in pieces of {PIECE}": Change(REFERENCE, REFERENCE.but(n_batch=PIECE, n_ubatch=PIECE), one_by_one=False),
    "flash attention off, not on": Change(REFERENCE.but(flash_attn="on"), OFF, one_by_one=False),
    "three other answers beside": Change(REFERENCE, REFERENCE, beside=3),
}
"""Names of the changes -> both sides. All but the first and the last change the arithmetic by a setting."""


@dataclass(frozen=True)
class Compared:
    """One change, measured.

    nats_apart  |cost before - cost after| of each token of the text but its first, in nats; 0.0 means the same bits;
                empty where other answers are beside, because a text is scored alone
    n_same      for each prompt, how many tokens of the answer agree before the first that differs
    """

    change: str
    nats_apart: tuple[float, ...]
    n_same: tuple[int, ...]

    @property
    def n_other_bits(self) -> int:
        """Tokens of the text whose cost is not the same to the last bit."""
        return sum(apart > 0 for apart in self.nats_apart)

    @property
    def first_other(self) -> int | None:
        """Number of the first such token, counted from 1 in the text; None if there is none.

        The cost of token n comes from the pass over token n - 1, which reads n - 1 cells.
        """
        return next((i for i, apart in enumerate(self.nats_apart, 2) if apart), None)

    @property
    def bits_text(self) -> str:
        """`other bits at 63 of 319 tokens, from token 258, at most 0.0025 nats apart`."""
        if not self.n_other_bits:
            return "the same bits" if self.nats_apart else "not scored"
        most = f"at most {max(self.nats_apart):.2g} nats apart"
        where = f"{self.n_other_bits} of {len(self.nats_apart)} tokens, from token {self.first_other}"
        return f"other bits at {where}, {most}"


@dataclass(frozen=True, kw_only=True)
class SameAnswers(Measurement):
    """All changes on one model; `settings` are the reference's.

    n_prompt, n_gen  tokens of a prompt and of its answer
    """

    n_prompt: int
    n_gen: int
    compared: tuple[Compared, ...]

    def change(self, change: str) -> Compared:
        """One change by its name. Raises InvalidSettings for one that was not measured."""
        for compared in self.compared:
            if compared.change == change:
                return compared
        raise InvalidSettings(
            f"{change!r} was not compared, only {', '.join(compared.change for compared in self.compared)}."
        )

    def n_other_answers(self, change: str) -> int:
        """Answers that are not the same to the end."""
        return sum(n < self.n_gen for n in self.change(change).n_same)


@queued
def same_answers(
    model: str | Path | None = None,
    text: str | None = None,
    changes: Mapping[str, Change] = CHANGES,
    n_prompts: int = 8,
    n_prompt: int = 320,
    n_gen: int = 64,
    engine: LlamaEngine | None = None,
    progress: bool | None = None,
) -> SameAnswers:
    """Compare both sides of each change on `n_prompts` consecutive pieces of a text, of `n_prompt` tokens each.

    text  None: the held-out text of the embedded model
    The first piece is scored, each piece is answered greedily with `n_gen` tokens.
    Raises InvalidSettings for a text that is too short, ModelError, EngineRefused or EngineCrashed.
    """
    engine, path = engine or default_engine(), find_model(model)
    with engine.exclusive():
        engine.open_vocabulary(path)
        prompts = pieces(engine.tokenize(text or held_out_text()), n_prompts, n_prompt)
        sides = _Sides(engine, path, prompts, n_gen)
        rows = track(changes.items(), len(changes), "comparing", progress)
        compared = tuple(_compared(name, change, sides) for name, change in rows)
        opening = engine.open(path, sides.roomy(REFERENCE))
        common = common_fields(engine, opening, read_gguf(path))
    return SameAnswers(**common, n_prompt=n_prompt, n_gen=n_gen, compared=compared)


def pieces(tokens: Sequence[int], n: int, length: int) -> list[Sequence[int]]:
    """The first n consecutive pieces of `length` tokens. Raises InvalidSettings where there are fewer."""
    if min(n, length) < 1 or len(tokens) < n * length:
        raise InvalidSettings(
            f"The text has {len(tokens)} tokens, and {n} prompts of {length} are asked for. Give a longer text."
        )
    return [tokens[i * length : (i + 1) * length] for i in range(n)]


def _compared(name: str, change: Change, sides: _Sides) -> Compared:
    costs = (
        [[], []]
        if change.beside
        else [sides.costs_before(change.before, change.one_by_one), sides.costs(change.after, change.one_by_one)]
    )
    answers = [sides.answers_before(change.before), sides.answers(change.after, change.beside)]
    return Compared(
        name,
        tuple(abs(before - after) for before, after in zip(*costs, strict=True)),
        tuple(n_same(before, after) for before, after in zip(*answers, strict=True)),
    )


def n_same(before: Sequence[int], after: Sequence[int]) -> int:
    """Tokens that agree before the first one that differs, or before the shorter one's end."""
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))))


class _Sides:
    """Computes costs and answers with given settings: once for changes that begin alike, anew for each second side."""

    def __init__(self, engine: LlamaEngine, path: Path, prompts: Sequence[Sequence[int]], n_gen: int) -> None:
        self.engine, self.path, self.prompts, self.n_gen = engine, path, prompts, n_gen
        self.costs_before, self.answers_before = cache(self.costs), cache(self.answers)

    def roomy(self, settings: Settings, n_sequences: int = 1) -> Settings:
        """Settings with cells for the answers, the same for all that are compared."""
        return settings.but(n_seq_max=n_sequences, n_ctx=n_sequences * (len(self.prompts[0]) + self.n_gen))

    def costs(self, settings: Settings, one_by_one: bool) -> list[float]:
        """Nats of each token of the first prompt but its first."""
        self.engine.open(self.path, self.roomy(settings.but(n_batch=1, n_ubatch=1) if one_by_one else settings))
        return self.engine.score(self.prompts[0])

    def answers(self, settings: Settings, beside: int = 0) -> list[Sequence[int]]:
        """A greedy answer to each prompt; `beside` other prompts are answered in the same batches."""
        self.engine.open(self.path, self.roomy(settings, 1 + beside))
        if not beside:
            return [self.engine.generate(prompt, self.n_gen).tokens for prompt in self.prompts]
        n = len(self.prompts)
        return [self._answer_of_first([self.prompts[(i + k) % n] for k in range(1 + beside)]) for i in range(n)]

    def _answer_of_first(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """The answer to the first prompt while the others are answered in the same batches."""
        self.engine.keep(0)
        picks = [self.engine.step(entries_of(prompt, 0, i)).picks[-1] for i, prompt in enumerate(prompts)]
        answer = [picks[0]]
        for position in range(len(prompts[0]), len(prompts[0]) + self.n_gen - 1):
            step = self.engine.step([Entry(token, position, i, True) for i, token in enumerate(picks)])
            picks = list(step.picks)
            answer.append(picks[0])
        return answer
