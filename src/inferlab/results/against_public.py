"""A test of a reader beside the public rows of its card and model, and beside the model of the card.

A row is alike if phase, card, model, type, backend, types of the cache and what lies in RAM agree, and the test is
nearly as deep and as long. Models with the same tensors count as one, and makers' own mixes as their type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import compress
from statistics import median
from typing import Any

from inferlab.errors import InferlabError
from inferlab.model.synthetic_model import shape
from inferlab.prediction.card_rates import BACKENDS, USUAL
from inferlab.prediction.card_work import CardWork, placed_work
from inferlab.prediction.cards import KnownCard
from inferlab.prediction.expected import Expected, expected_decode, expected_prompt, question_of
from inferlab.prediction.memory.placement import has_experts
from inferlab.results.bound import is_named, known_names_of, type_of
from inferlab.results.public_rates import DECODE, PROMPT, PublicRate, of_card
from inferlab.results.result import Result
from inferlab.settings import KV_TYPES, Settings
from inferlab.units import GIB

DIFFERENCES = (
    "another type of weights",
    "another backend",
    "another depth or length",
    "another type of cache",
    "another part in RAM",
)
"""What may differ in a row of the card and the model, the least harm first."""
BELOW, INSIDE, ABOVE = "below", "inside", "above"
NEAR_DEPTH, NEAR_LENGTH, DEEP = 2048, 2.0, 4096
"""Tokens between the middles of two tests that are alike, the factor between their prompts, and the middle from which
on flash attention matters."""
LEAST_PROMPT = 128
"""Tokens of the shortest prompt of a public row."""
MOST_APART = 2.0
"""The factor between the bytes of a file and those of its type above which the type is not what the file has."""
FILLED = 0.5
"""Share of a card's memory from which on the weights may not lie there as a whole."""
NAMES = {**{name: name for name in BACKENDS}, "HIP": "ROCm", "MTL": "Metal"}
"""What llama.cpp calls its backends -> their names here."""
CACHED = 32


@dataclass(frozen=True)
class AgainstPublic:
    """A prompt or a decode of one sequence on a card of the list, with a known model.

    names         of the known models that it may be, as `known_names_of` has them
    type          of the weights; gpt-oss has one, because its files in any type keep the experts as they were trained
    backend       that the file names, or ""; then the card's usual one is taken
    n_gpu_layers  layers on the card, None: all, or not named; n_cpu_moe: layers whose experts lie in RAM
    """

    result: Result
    card: KnownCard
    names: tuple[str, ...]
    type: str
    backend: str
    n_gpu_layers: int | None
    n_cpu_moe: int

    @property
    def phase(self) -> str:
        return DECODE if self.result.is_decode else PROMPT

    @property
    def n_tokens(self) -> int:
        return self.result.n_prompt or self.result.n_gen

    @property
    def alike(self) -> tuple[PublicRate, ...]:
        """The public rows of the same test."""
        return tuple(row for row, differing in self._rows if not differing)

    @property
    def nearest(self) -> tuple[tuple[str, ...], tuple[PublicRate, ...]]:
        """The rows of the card and the model that differ in the least, and in what; nothing where there are none."""
        first = min((differing for _, differing in self._rows), key=_harm, default=())
        return first, tuple(row for row, differing in self._rows if differing == first)

    @property
    def median(self) -> float | None:
        """Tokens per second of the rows that are alike."""
        return median(row.rate for row in self.alike) if self.alike else None

    @cached_property
    def expected(self) -> Expected | None:
        """What the model of the card expects; None without a formula, and for a prompt shorter than any public one."""
        with suppress(InferlabError):
            card = replace(self.card, backend=_key(self.backend)) if self.backend else self.card
            question = question_of(self._work, card, self._settings, self.type, self._factor)
            if self.result.is_decode:
                return expected_decode(question, self._middle)
            if self.n_tokens >= LEAST_PROMPT:
                return expected_prompt(question, self.n_tokens, self.result.n_depth)
        return None

    @property
    def place(self) -> str:
        """BELOW the band that is expected, INSIDE or ABOVE it; "" without one."""
        if not self.expected:
            return ""
        rate = self.result.rate
        return BELOW if rate < self.expected.low else ABOVE if rate > self.expected.high else INSIDE

    @property
    def suspects(self) -> tuple[str, ...]:
        """What explains a rate below the band, the likeliest first, without what the file excludes."""
        settings, has_own_memory = self.result.settings, not self.card.unified
        is_partial = self.n_gpu_layers is not None or self.n_cpu_moe > 0
        weights = self.result.model_bytes or 0
        may_be = {
            "cache": has_own_memory and settings.get("no_kv_offload") == "1",
            "layers": has_own_memory and not self._is_placed,
            "host": has_own_memory and is_partial,
            "spilled": has_own_memory and not is_partial and weights > FILLED * self.card.memory_bytes[0],
            "power": True,
            "build": True,
            "backend": not self.backend,
            "flash": self._middle >= DEEP and settings.get("flash_attn") not in ("on", "auto"),
            "others": True,
            "heat": True,
        }
        return tuple(name for name, is_open in may_be.items() if is_open)

    @property
    def row(self) -> dict[str, Any]:
        """The test with the columns of rows.csv: only what the file states, without paths, names and free texts."""
        result, settings = self.result, self.result.settings
        named = [name for name in self.names if is_named(name, result.file)][:1]
        stated = {
            "card": self.card.name,
            "backend": self.backend,
            "model": " or ".join(named or self.names),
            "type": type_of(result.model),
            "gib": result.model_bytes and round(result.model_bytes / GIB, 2),
            "n_gpu_layers": self.n_gpu_layers,
            "n_cpu_moe": self.n_cpu_moe or None,
            "flash_attn": {"on": 1, "off": 0}.get(settings.get("flash_attn", "")),
            "n_ubatch": _whole(settings, "n_ubatch"),
            **{name: settings[name] for name in ("type_k", "type_v") if settings.get(name) in KV_TYPES},
            "depth": result.n_depth,
            "phase": self.phase,
            "n_tokens": self.n_tokens,
            "rate": round(result.rate, 3),
            "build": result.build if re.fullmatch(r"[0-9a-f]{6,40}", result.build) else None,
            "date": result.date if re.fullmatch(r"\d{4}-\d\d-\d\d", result.date, re.ASCII) else None,
        }
        return {name: value for name, value in stated.items() if value not in (None, "")}

    @cached_property
    def _rows(self) -> list[tuple[PublicRate, tuple[str, ...]]]:
        """The rows of the card, the model and the phase, each with what differs."""
        rows = (row for row in of_card(self.card.name, self.phase) if row.model in self.names)
        return [(row, tuple(compress(DIFFERENCES, self._differs(row)))) for row in rows]

    def _differs(self, row: PublicRate) -> tuple[bool, ...]:
        """Whether each of DIFFERENCES is one."""
        usual, settings = USUAL[self.card.backend], self.result.settings
        return (
            _type(row.model, row.type) != self.type,
            (row.backend or usual) != (self.backend or usual),
            not self._is_near(row),
            any(getattr(row, name) != settings.get(name, "f16") for name in ("type_k", "type_v")),
            not self.card.unified and (row.n_gpu_layers, row.n_cpu_moe) != (self.n_gpu_layers, self.n_cpu_moe),
        )

    def _is_near(self, row: PublicRate) -> bool:
        """Whether a row's test is nearly as deep and, of a prompt, nearly as long and in as large parts."""
        is_as_deep = abs(row.depth + row.n_tokens // 2 - self._middle) <= NEAR_DEPTH
        factor = max(row.n_tokens, self.n_tokens) / min(row.n_tokens, self.n_tokens)
        return is_as_deep and (self.result.is_decode or (factor <= NEAR_LENGTH and row.n_ubatch == self._n_ubatch))

    @property
    def _middle(self) -> int:
        """Tokens in the cache when half of the test is done."""
        return self.result.n_depth + self.n_tokens // 2

    @property
    def _n_ubatch(self) -> int:
        return _whole(self.result.settings, "n_ubatch") or Settings.n_ubatch

    @property
    def _settings(self) -> Settings:
        """What of the settings a rate depends on. Raises InvalidSettings for what llama.cpp would refuse."""
        named = self.result.settings
        types = named.get("type_k", "f16"), named.get("type_v", "f16")
        return Settings(
            n_ubatch=self._n_ubatch, type_k=types[0], type_v=types[1], flash_attn=named.get("flash_attn", "auto")
        )

    @property
    def _work(self) -> CardWork:
        n_gpu_layers = -1 if self.n_gpu_layers is None else self.n_gpu_layers
        return _placed(self.names[0], self.type, n_gpu_layers, self.n_cpu_moe)

    @property
    def _factor(self) -> float:
        """The bytes of the file over those of the plain mix of its type."""
        n_bytes = self.result.model_bytes
        return n_bytes / self._work.model.tensor_bytes if n_bytes else 1.0

    @property
    def _is_placed(self) -> bool:
        """Whether the file says how many layers, and the experts of how many, lie on the card."""
        settings = self.result.settings
        return "n_gpu_layers" in settings and ("n_cpu_moe" in settings or not has_experts(self._work.model))


def against_public(result: Result, card: KnownCard | None) -> AgainstPublic | str:
    """A test with what public rows and the model of a card say of it, or why they say nothing."""
    if card is None:
        return "no card of the list is named"
    if reason := _not_one(result):
        return reason
    names, type = known_names_of(result), type_of(result.model)
    if not names:
        return "the model is not one of the book's"
    if type is None:
        return "the type of the weights is not one of llama-quantize's"
    type, settings = _type(names[0], type), result.settings
    try:
        model = _placed(names[0], type, -1, 0).model
    except InferlabError:
        return f"the model has no {type}"
    if result.model_bytes and not 1 / MOST_APART < result.model_bytes / model.tensor_bytes < MOST_APART:
        return "the file has not the bytes of its type"
    n_layers, n_experts = _whole(settings, "n_gpu_layers"), _whole(settings, "n_cpu_moe") or 0
    return AgainstPublic(
        result,
        card,
        names,
        type,
        _backend(result),
        n_layers if n_layers is not None and n_layers <= model.n_layer and not card.unified else None,
        min(n_experts, model.n_layer) if n_experts and has_experts(model) and not card.unified else 0,
    )


def _not_one(result: Result) -> str:
    """Why a test is none of one sequence on one card; "" where it is."""
    settings = result.settings
    if result.n_prompt and result.n_gen:
        return "a prompt and a decode were timed as one"
    if result.n_sequences > 1:
        return "several sequences were decoded together"
    if result.on_processor or _whole(settings, "n_gpu_layers") == 0:
        return "the processor computed it"
    if ", " in result.gpu and settings.get("split_mode") != "none":
        return "several cards computed it"
    if settings.get("tensor_buft_overrides", "none") != "none":
        return "a pattern says which tensors lie in RAM"
    return ""


def _harm(differing: tuple[str, ...]) -> tuple[int, list[int]]:
    return len(differing), [*map(DIFFERENCES.index, differing)]


def _type(name: str, type: str) -> str:
    return "MXFP4_MOE" if name.startswith("gpt-oss") else type


def _backend(result: Result) -> str:
    """The one backend of cards that a file names; "" where it names none, or several."""
    named = {NAMES[word] for word in re.split(r"[,+\s]+", result.backend) if word in NAMES}
    return named.pop() if len(named) == 1 else ""


def _key(backend: str) -> str:
    return next(key for key, name in USUAL.items() if name == backend)


def _whole(settings: Mapping[str, str], name: str) -> int | None:
    """A setting that is a whole number of at least 0; None where it is not named, or is another."""
    text = settings.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None


@lru_cache(CACHED)
def _placed(name: str, type: str, n_gpu_layers: int, n_cpu_moe: int) -> CardWork:
    """A known model of a type with so many layers on a card, and the experts of so many in RAM."""
    return placed_work(shape(name, type), n_gpu_layers, n_cpu_moe)
