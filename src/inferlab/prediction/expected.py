"""The rate that a card should reach, with a band that is set so that nine of ten published results lie inside.

    rate = tokens / (seconds of `card_model` x factor of the card)

The factor is what public results of the card show beyond the model; without any it is 1. The band is as wide as the
errors were for results that took no part in the fit: of cards with results of their own, of cards whose chip others
have, of new chips, and of models with a part in RAM.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from inferlab.errors import InferlabError
from inferlab.model.dimensions import has_latent_cache
from inferlab.model.gguf import Model
from inferlab.prediction.card_model import prompt_seconds, token_seconds
from inferlab.prediction.card_rates import (
    USUAL,
    Arithmetic,
    CardRecord,
    Case,
    arithmetic,
    card_record,
    fitted,
    kind_of,
    prompt_rates,
    token_rates,
)
from inferlab.prediction.card_work import CardWork
from inferlab.prediction.cards import KnownCard, known_cards
from inferlab.prediction.fit import Fit
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.prediction.memory.plan import MemoryPlan
from inferlab.prediction.place import Place
from inferlab.settings import Settings
from inferlab.units import GB, count_text, number_text, rate_text

PROMPT_TOKENS = 512
"""Tokens of the prompt whose rate is told, as llama-bench measures by default."""
MOST_APART = 8
"""Of a band: the most over the least; beyond it no rate is told."""
KNOWN, SIBLINGS, OTHERS, PARTIAL = "known", "siblings", "others", "partial"
"""What is known of a card: its own results, those of cards with its chip, only those of other chips; or that a part of
the model lies in RAM."""


@dataclass(frozen=True)
class Expected:
    """Tokens per second, and the least and most of the band.

    basis       KNOWN, SIBLINGS, OTHERS or PARTIAL
    n_rows      published results of the card in this phase; n_siblings: of other cards with its chip
    """

    rate: float
    low: float
    high: float
    basis: str
    n_rows: int
    n_siblings: int

    @property
    def is_told(self) -> bool:
        """Whether published rates agree so far that one is told."""
        return self.high <= MOST_APART * self.low

    @property
    def range_text(self) -> str:
        """`between 44 and 60`."""
        return f"between {number_text(self.low)} and {number_text(self.high)}"

    @property
    def text(self) -> str:
        """`about 52 tokens/s, between 44 and 60`; no rate where published ones differ too much."""
        if not self.is_told:
            return f"published rates differ too much to tell one, by up to a factor of {self.high / self.low:.0f}"
        return f"about {rate_text(self.rate)}, {self.range_text}"

    def at_most(self, bound: float) -> Expected:
        """The same below a bound on the rate."""
        rate, low, high = (min(one, bound) for one in (self.rate, self.low, self.high))
        return replace(self, rate=rate, low=low, high=high)


@dataclass(frozen=True)
class Question:
    """A placed model on a card of the list: what `expected_decode` and `expected_prompt` are asked.

    type    a mix of its weights in place of the model's own; `factor`: its bytes over the model's
    """

    work: CardWork
    card: KnownCard
    settings: Settings
    type: str = ""
    factor: float = 1.0

    @property
    def backend(self) -> str:
        """The card's usual backend, under llama.cpp's name."""
        return USUAL[self.card.backend]

    @property
    def arithmetic(self) -> Arithmetic:
        return arithmetic()[self.card.name]

    @property
    def case(self) -> Case:
        model, settings = self.work.model, self.settings
        return Case(
            self.backend,
            self.arithmetic.chip,
            kind_of(self.type) if self.type else _kind(model),
            has_latent_cache(model),
            quantized_cache=settings.type_k != "f16",
            flash_attn=settings.flash_attn != "off",
        )

    @property
    def record(self) -> CardRecord:
        return card_record(self.card.name, self.backend)


@dataclass(frozen=True)
class ExpectedRates:
    """The rates of a plan: decode at the beginning and at the end of its context, and a prompt of n_prompt tokens."""

    start: Expected
    end: Expected
    prompt: Expected
    n_prompt: int
    question: Question

    @property
    def fields(self) -> dict[str, Any]:
        """In JSON's kinds, tokens per second."""
        rates = {"decode_at_start": self.start, "decode_at_end": self.end, "prompt": self.prompt}
        found = {name: {part: getattr(one, part) for part in ("rate", "low", "high")} for name, one in rates.items()}
        rows = {"n_rows": self.start.n_rows, "n_siblings": self.start.n_siblings, "basis": self.start.basis}
        return {**found, "n_prompt": self.n_prompt, **rows}


def question_for(plan: MemoryPlan, model: Model, card: KnownCard) -> Question:
    """A plan's placement on a card."""
    return question_of(CardWork(model, plan.layer_devices, plan.moved), card, plan.settings)


def question_of(work: CardWork, card: KnownCard, settings: Settings, type: str = "", factor: float = 1.0) -> Question:
    """A placed model on a card; what lies on the host of unified memory is read as fast as the rest."""
    return Question(CardWork(work.model) if card.unified else work, card, settings, type, factor)


def expected_rates(fit: Fit, model: Model, place: Place) -> ExpectedRates | None:
    """What a plan should reach on a place: at the beginning and the end of its context, and for a prompt.

    None where the place is no card of the list, or several of different kinds, and for a cache that lies in RAM, of
    which there are no results. Several of one kind work one after another, so a token takes as long as on one. Raises
    UnsupportedArchitecture as `decode_bound`.
    """
    if place.card is None or not (place.card.unified or fit.plan.settings.offload_kqv):
        return None
    question, n_ctx = question_for(fit.plan, model, place.card), n_ctx_of(fit.plan.settings)
    n_prompt = min(PROMPT_TOKENS, n_ctx)
    start, end = (expected_decode(question, depth) for depth in (0, n_ctx - 1))
    return ExpectedRates(start, end, expected_prompt(question, n_prompt), n_prompt, question)


def expected_fields(fit: Fit, model: Model, place: Place) -> dict[str, Any] | None:
    """The expected rates in JSON's kinds; None where there are none."""
    try:
        rates = expected_rates(fit, model, place)
    except InferlabError:
        return None
    return rates.fields if rates else None


def expected_decode(question: Question, depth: int = 0) -> Expected:
    """One token of one sequence on top of `depth` cells. Raises UnsupportedArchitecture as `decode_bound`."""
    settings, bandwidth = question.settings, question.card.bandwidth_bytes_per_second
    work = question.work.token(depth, settings.type_k, settings.type_v, question.factor)
    seconds = token_seconds(work, token_rates(question.case), bandwidth, question.arithmetic.flops)
    on_card = work.weight_bytes + work.cache_bytes
    bound = bandwidth / on_card if on_card else float("inf")
    record = question.record
    return _expected(question, "token", 1 / (seconds * record.token), record.n_token).at_most(bound)


def expected_prompt(question: Question, n_tokens: int = PROMPT_TOKENS, depth: int = 0) -> Expected:
    """A prompt of n_tokens on top of `depth` cells."""
    card, record = question.card, question.record
    work = question.work.prompt(n_tokens, question.settings.n_ubatch, depth, question.factor)
    rates = prompt_rates(question.case)
    seconds = prompt_seconds(work, rates, card.bandwidth_bytes_per_second, question.arithmetic.flops)
    return _expected(question, "prompt", n_tokens / (seconds * record.prompt), record.n_prompt)


def _expected(question: Question, phase: str, rate: float, n_rows: int) -> Expected:
    siblings = n_siblings(question.card.name, question.backend, phase)
    known = KNOWN if n_rows else SIBLINGS if siblings else OTHERS
    basis = PARTIAL if question.work.is_partial else known
    low, high = fitted()["bands"][phase][basis]
    return Expected(rate, rate * low, rate * high, basis, n_rows, siblings)


def siblings(card: str) -> list[str]:
    """The other cards with the same chip."""
    chip = arithmetic()[card].chip
    return [name for name in known_cards() if name != card and arithmetic()[name].chip == chip]


def n_siblings(card: str, backend: str, phase: str) -> int:
    """Published results of other cards with the same chip, in one backend."""
    return sum(getattr(card_record(other, backend), f"n_{phase}") for other in siblings(card))


def held_text() -> str:
    """How many rates of models whole on cards that had been set aside lie in the bands, a sentence without its stop.

    Each card counts once.
    """
    token, prompt = (f"{100 * fitted()['held'][phase]:.0f} %" for phase in ("token", "prompt"))
    return f"Of cards set aside before the fit, {token} of decode rates and {prompt} of prompts lie in such a band"


def rows_text(rates: ExpectedRates) -> str:
    """From how many public results a rate is, and why its band is as wide as it is, in sentences."""
    start, backend = rates.start, rates.question.backend
    own, others = (count_text(n, f"public {backend} result") for n in (start.n_rows, start.n_siblings))
    if start.n_rows:
        others = f" and {start.n_siblings:,} of cards of its generation" if start.n_siblings else ""
        told = f"From {own} of this card{others}."
    elif start.n_siblings:
        told = f"From {others} of cards of its generation; of this card there is none with the whole model on it."
    else:
        told = f"From {backend} results of cards of other generations: of its own there is none, so the band is wide."
    if start.basis != PARTIAL:
        return told
    host = fitted()["token"]["host_rate"] / GB
    return (
        f"{told} A part lies in RAM, whose rate differs from machine to machine, so the band is wide: a token is taken "
        f"to read it at {host:.0f} GB/s, as in the published results."
    )


def _kind(model: Model) -> str:
    """The kind of a model's weights: by its mix, or by the type of most of its bytes."""
    if model.shape and not model.file:
        return kind_of(model.shape.mix)
    n_bytes: dict[str, int] = {}
    for tensor in model.tensors:
        n_bytes[tensor.type] = n_bytes.get(tensor.type, 0) + tensor.n_bytes
    largest = max(n_bytes, key=n_bytes.__getitem__)
    return kind_of({"MXFP4": "MXFP4_MOE"}.get(largest, largest))
