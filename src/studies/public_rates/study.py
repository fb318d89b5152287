"""Published rates beside their predictions: how far these are off, which are worst, and which rates disagree."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from inferlab.model.catalog import known_models
from inferlab.model.dimensions import has_latent_cache
from inferlab.prediction.card_model import TokenWork
from inferlab.prediction.card_rates import arithmetic, fitted
from inferlab.prediction.cards import known_cards
from inferlab.prediction.expected import KNOWN, OTHERS, PARTIAL, SIBLINGS
from inferlab.results.public_rates import DECODE, PROMPT, PublicRate, n_sources, public_rates, sources
from studies.public_rates.fit import backend_of, placed, work_of
from studies.public_rates.judge import (
    ASIDE,
    HOLDS,
    Judged,
    aside,
    band_of,
    each_card_once,
    inside,
    judged,
    of_split,
    quantile,
)

Row = Sequence[str | int | float]

PHASES = (DECODE, PROMPT)
LEFT_OUT = {
    "cards": "the card",
    "chips": "every card of its generation",
    "models": "the model",
    "sources": "the repository",
    ASIDE: "the cards set aside",
}
ERROR_HEADS = (
    "left out",
    "phase",
    "rows",
    "cards",
    "half within, %",
    "nine of ten within, %",
    "each card once: half, %",
    "each card once: nine of ten, %",
    "in the band, %",
)
GOAL_HEADS = ("left out", "what", "goal", "of the rows", "each card once")
MISS_HEADS = ("card", "test", "measured", "predicted", "off", "why, as far as the row shows", "source")
APART_HEADS = ("card", "test", "slower", "faster", "ratio", "what differs")
BAND_HEADS = ("what is known", "decode, least", "decode, most", "prompt, least", "prompt, most")
ROW_HEADS = ("backend", "rows", "cards", "models", "repositories", "decode", "prompt", "part in RAM", "deep")
KIND_HEADS = ("models", "how many", "rows", "cards")
LICENCE_HEADS = ("licence that the repository states", "sources", "rows")
SOURCE_HEADS = ("repository", "licence", "rows", "cards")
DEEP = 32768
"""Tokens in the cache from which on a row counts as deep."""
APART, MOST_APART = 1.25, 15
WORST, MOST_OF_ONE = 20, 2


# --- how far predictions are off ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Errors:
    """By what share the predicted rates of some judged rows are off, without the sign."""

    found: tuple[Judged, ...]

    @property
    def cards(self) -> int:
        return len({one.row.card for one in self.found})

    def quantile(self, share: float, *, once: bool) -> float:
        """The share below which so many lie; `once`: each card counts once, however many rows it has."""
        return quantile(np.abs([one.share for one in self.found]), self._weights(once), share)

    def inside(self, *, once: bool) -> float:
        """The share of the rows whose measured rate lies in the band."""
        hits = [inside(one, band_of(one)) for one in self.found]
        return float(np.average(hits, weights=self._weights(once)))

    def _weights(self, once: bool) -> np.ndarray:
        return each_card_once(self.found) if once else np.ones(len(self.found))


@cache
def errors(split: str, phase: str, partial: bool = False) -> Errors:
    """The errors of a split and a phase, of models whole on the card or with a part in RAM."""
    return Errors(of_split(split, phase, partial=partial))


def whole_rows() -> list[Row]:
    """By ERROR_HEADS: models whole on their card."""
    return [_error_row(split, phase, errors(split, phase)) for split in LEFT_OUT for phase in PHASES]


def partial_rows() -> list[Row]:
    """By ERROR_HEADS: models with layers or experts in RAM."""
    return [_error_row(split, phase, errors(split, phase, True)) for split in LEFT_OUT for phase in PHASES]


def _error_row(split: str, phase: str, found: Errors) -> Row:
    ends = (round(100 * found.quantile(share, once=once), 1) for once in (False, True) for share in (0.5, 0.9))
    return (LEFT_OUT[split], phase, len(found.found), found.cards, *ends, round(100 * found.inside(once=False), 1))


@dataclass(frozen=True)
class Goal:
    """What the model shall reach: a bound for a share of its errors, or for the rows in its bands.

    share  of the errors that shall stay below `percent`; None: at least `percent` of the rows lie in their bands
    """

    what: str
    split: str
    phase: str
    partial: bool
    share: float | None
    percent: float

    def found(self, *, once: bool) -> float:
        """In percent."""
        own = errors(self.split, self.phase, self.partial)
        return 100 * (own.inside(once=once) if self.share is None else own.quantile(self.share, once=once))

    def is_met(self, *, once: bool) -> bool:
        found = self.found(once=once)
        return found >= self.percent if self.share is None else found <= self.percent

    @property
    def row(self) -> Row:
        """By GOAL_HEADS."""
        goal = f"{'at least' if self.share is None else 'at most'} {self.percent:g} %"
        results = (
            f"{self.found(once=once):.1f} %, {'met' if self.is_met(once=once) else 'missed'}" for once in (False, True)
        )
        return (LEFT_OUT[self.split], self.what, goal, *results)


def goals() -> list[Goal]:
    """Every goal, for cards that were left out in turn, and for those that were set aside."""
    found = []
    for split in ("cards", ASIDE):
        found += [
            Goal("decode: half of the errors", split, DECODE, False, 0.5, 8),
            Goal("decode: nine of ten errors", split, DECODE, False, 0.9, 18),
            Goal("decode: rows in the band", split, DECODE, False, None, 100 * HOLDS),
            Goal("prompt: half of the errors", split, PROMPT, False, 0.5, 20),
            Goal("prompt: rows in the band", split, PROMPT, False, None, 100 * HOLDS),
            Goal("decode with a part in RAM: half", split, DECODE, True, 0.5, 20),
            Goal("prompt with a part in RAM: half", split, PROMPT, True, 0.5, 20),
        ]
    return found


def goal_rows() -> list[Row]:
    """By GOAL_HEADS."""
    return [goal.row for goal in goals()]


def band_rows() -> list[Row]:
    """By BAND_HEADS: factors of the predicted rate."""
    known = {
        KNOWN: "rows of the card itself",
        SIBLINGS: "rows of cards with its chip",
        OTHERS: "only rows of other chips",
        PARTIAL: "a part of the model lies in RAM",
    }
    bands = fitted()["bands"]
    return [(text, *bands["token"][name], *bands["prompt"][name]) for name, text in known.items()]


# --- the worst ------------------------------------------------------------------------------------------------

NOT_KNOWN = "not known"


def _is_overfull(one: Judged) -> bool:
    """Whether more bytes of weights are meant for the card than it has; experts of every layer there count."""
    row = one.row
    shape = placed(row.model, row.type, -1 if row.n_gpu_layers is None else row.n_gpu_layers, row.n_cpu_moe)
    factor = row.n_bytes / shape.model.tensor_bytes if row.n_bytes else 1.0
    many = 1 << 20
    n_bytes = shape.prompt(many, many, 0, factor).touched_bytes
    return not known_cards()[row.card].unified and n_bytes > max(known_cards()[row.card].memory_bytes)


def _is_vulkan_on(row: PublicRate, *chips: str) -> bool:
    return row.backend == "Vulkan" and arithmetic()[row.card].chip.startswith(chips)


def _is_latent(row: PublicRate) -> bool:
    return has_latent_cache(placed(row.model, row.type, -1, 0).model)


def _has_mamba(row: PublicRate) -> bool:
    return placed(row.model, row.type, -1, 0).model.architecture.startswith(("nemotron_h", "granitehybrid"))


REASONS: dict[str, Callable[[Judged], bool]] = {
    "more weights for the card than it holds, so some cross the bus; the host has DDR3": (
        lambda one: _is_overfull(one) and "DDR3" in one.row.host
    ),
    "more weights for the card than it holds, so some cross the bus": _is_overfull,
    "a build from before 2025, whose kernels changed more than the model's yearly factor": (
        lambda one: one.row.year < 2025
    ),
    "a part in RAM: the model has one rate of the bus and one of RAM for every host": lambda one: one.row.is_partial,
    "Vulkan of mid-2025, with no code for the matrix units of Intel's cards or its first": (
        lambda one: one.row.phase == PROMPT and _is_vulkan_on(one.row, "xe") and one.row.year < 2025.6
    ),
    "BF16, which Vulkan's driver for this card does not multiply": (
        lambda one: one.row.type == "BF16" and _is_vulkan_on(one.row, "rdna")
    ),
    "a cache of IQ4_NL: its thread reports that build as a fault of Vulkan": (
        lambda one: one.row.backend == "Vulkan" and "iq4_nl" in (one.row.type_k, one.row.type_v)
    ),
    "a deep cache in Vulkan's prompts on AMD: ROCm is faster there": (
        lambda one: one.row.phase == PROMPT and one.row.depth >= DEEP and _is_vulkan_on(one.row, "rdna")
    ),
    "Vulkan on AMD, before its matrix products were tuned in January 2026": (
        lambda one: one.row.phase == PROMPT and _is_vulkan_on(one.row, "rdna3") and one.row.year < 2026.0
    ),
    "SYCL, before this type had a layout that is read fast": (
        lambda one: one.row.backend == "SYCL" and one.row.type in ("Q8_0", "IQ4_NL") and one.row.year < 2026.35
    ),
    "a latent cache, whose kernels differ much between builds": lambda one: _is_latent(one.row),
    "Mamba layers, for which the model has the coefficient of other recurrent layers": (
        lambda one: _has_mamba(one.row)
    ),
}
"""What a row shows that can explain its error, the first that holds. Pull requests of llama.cpp say so: 14001 of
Intel's matrix units, 18749 of AMD's, 21527 of SYCL's layouts; logs beside them print `bf16: 0` of a driver; 23681 is
the thread of the cache."""


def reason_of(one: Judged) -> str:
    """The first of REASONS that holds, or that none is known."""
    return next((reason for reason, holds in REASONS.items() if holds(one)), NOT_KNOWN)


def worst() -> list[Judged]:
    """The cards left out whose predictions are off by the largest factor, at most two rows of a source and card."""
    found, seen = [], Counter[tuple[str, str]]()
    rows = (one for one in judged() if one.split == "cards")
    for one in sorted(rows, key=lambda one: -abs(one.error)):
        seen[one.row.source, one.row.card] += 1
        if seen[one.row.source, one.row.card] <= MOST_OF_ONE:
            found.append(one)
    return found[:WORST]


def miss_rows() -> list[Row]:
    """By MISS_HEADS."""
    return [
        (
            f"{card_title(one.row)}, {backend_of(one.row)}",
            case_of(one.row),
            rate_text(one.row.rate),
            rate_text(one.row.rate * (1 + one.share)),
            f"{100 * one.share:+.0f} %",
            reason_of(one),
            link(one.row),
        )
        for one in worst()
    ]


# --- rates that disagree --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """The slowest and the fastest rate of one test of a model on a card."""

    slower: PublicRate
    faster: PublicRate

    @property
    def ratio(self) -> float:
        return self.faster.rate / self.slower.rate

    @property
    def differs(self) -> list[str]:
        """What the two do not have in common, in words."""
        texts = {
            "backend": backend_of(self.slower) != backend_of(self.faster),
            "source": repository_of(self.slower) != repository_of(self.faster),
            "build": self.slower.build != self.faster.build or self.slower.date != self.faster.date,
            "flash attention": self.slower.flash_attn != self.faster.flash_attn,
            "type of the cache": _cache(self.slower) != _cache(self.faster),
            "ubatch": self.slower.n_ubatch != self.faster.n_ubatch,
            "size of the file": _differ(self.slower.n_bytes, self.faster.n_bytes),
        }
        return [text for text, holds in texts.items() if holds]


def pairs() -> list[Pair]:
    """Of each test with rates of several sources, backends or builds the slowest and the fastest."""
    tests: dict[tuple[str | int, ...], list[PublicRate]] = defaultdict(list)
    for row in public_rates():
        if not row.is_partial:
            tests[row.card, row.model, row.type, row.phase, row.n_tokens, row.depth].append(row)
    found = (Pair(min(some, key=_rate), max(some, key=_rate)) for some in tests.values())
    return [pair for pair in found if {"backend", "source", "build"} & {*pair.differs}]


def apart() -> list[Pair]:
    """The pairs that differ by more than a quarter, the largest ratio first."""
    return sorted((pair for pair in pairs() if pair.ratio > APART), key=lambda pair: -pair.ratio)


def apart_rows() -> list[Row]:
    """By APART_HEADS: of a card, a model and a phase the pair with the largest ratio."""
    first: dict[tuple[str, str, str], Pair] = {}
    for pair in apart():
        first.setdefault((pair.slower.card, pair.slower.model, pair.slower.phase), pair)
    return [
        (
            card_title(pair.slower),
            case_of(pair.slower),
            _side(pair.slower),
            _side(pair.faster),
            round(pair.ratio, 2),
            ", ".join(pair.differs),
        )
        for pair in list(first.values())[:MOST_APART]
    ]


def _side(row: PublicRate) -> str:
    return f"{rate_text(row.rate)} by {backend_of(row)}, {int(row.year)}: {link(row)}"


def _rate(row: PublicRate) -> float:
    return row.rate


def _cache(row: PublicRate) -> tuple[str, str]:
    return row.type_k, row.type_v


def _differ(one: float | None, other: float | None) -> bool:
    """Whether two sizes that are stated differ by more than a hundredth."""
    return one is not None and other is not None and abs(one / other - 1) > 0.01


# --- what the rows are ----------------------------------------------------------------------------------------


def backend_rows() -> list[Row]:
    """By ROW_HEADS: how many rows of each backend, those of sources that do not say under the card's usual one."""
    names = [name for name, _ in Counter(backend_of(row) for row in public_rates()).most_common()]
    return [_backend_row(name, [row for row in public_rates() if backend_of(row) == name]) for name in names] + [
        _backend_row("all", public_rates())
    ]


def _backend_row(name: str, rows: Sequence[PublicRate]) -> Row:
    return (
        name,
        len(rows),
        len({row.card for row in rows}),
        len({row.model for row in rows}),
        n_sources(rows),
        *(sum(row.phase == phase for row in rows) for phase in PHASES),
        sum(row.is_partial for row in rows),
        sum(row.depth >= DEEP for row in rows),
    )


@cache
def kinds_of(name: str) -> tuple[str, ...]:
    """Whether a model is dense or a mixture, and what is special in its cache."""
    shape = placed(name, "Q4_K_M", -1, 0)
    token = shape.token(0)
    found = {
        "dense": not token.expert_layers,
        "a mixture of experts": bool(token.expert_layers),
        "with a latent cache": has_latent_cache(shape.model),
        "hybrid, with recurrent layers": bool(token.state_layers),
    }
    return tuple(kind for kind, holds in found.items() if holds)


def kind_rows() -> list[Row]:
    """By KIND_HEADS; a hybrid or latent model counts there too."""
    by_kind: dict[str, list[PublicRate]] = defaultdict(list)
    for row in public_rates():
        for kind in kinds_of(row.model):
            by_kind[kind].append(row)
    return [
        (kind, len({row.model for row in rows}), len(rows), len({row.card for row in rows}))
        for kind, rows in sorted(by_kind.items(), key=lambda item: -len(item[1]))
    ]


def licence_rows() -> list[Row]:
    """By LICENCE_HEADS: what the sources state; figures are facts, and no text or table of theirs is copied."""
    rows = Counter(sources()[row.source].licence for row in public_rates())
    used = Counter(sources()[name].licence for name in {row.source for row in public_rates()})
    texts = {"thread": "none: a public thread", "none found": "none found"}
    return [(texts.get(name, name), used[name], n) for name, n in rows.most_common()]


def source_rows() -> list[Row]:
    """By SOURCE_HEADS: each repository with its rows."""
    found: dict[str, list[PublicRate]] = defaultdict(list)
    for row in public_rates():
        found[repository_of(row)].append(row)
    return [
        (f"[{name}](https://github.com/{name})", _licences(rows), len(rows), len({row.card for row in rows}))
        for name, rows in sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    ]


def _licences(rows: Iterable[PublicRate]) -> str:
    return ", ".join(dict.fromkeys(sources()[row.source].licence for row in rows))


# --- in words -------------------------------------------------------------------------------------------------


def repository_of(row: PublicRate) -> str:
    return sources()[row.source].repository


def card_title(row: PublicRate) -> str:
    return known_cards()[row.card].title


def case_of(row: PublicRate) -> str:
    """Model, type, test and, with a part in RAM, how much of it: as a cell of a table."""
    layers = "" if row.n_gpu_layers is None else f", {row.n_gpu_layers} layers on the card"
    experts = f", experts of {row.n_cpu_moe} layers in RAM" if row.n_cpu_moe else ""
    return f"{known_models().titles[row.model]} {row.type}, {row.test}{layers}{experts}"


def link(row: PublicRate) -> str:
    """Whose a row is, with its address."""
    return f"[{repository_of(row)}]({row.address.replace('(', '%28').replace(')', '%29')})"


def rate_text(rate: float) -> str:
    """Tokens per second with three digits."""
    return f"{float(f'{rate:.3g}'):,g}"


def shares_of_bound() -> dict[str, float]:
    """Between which percentages of their bound half of the decode rates lie, whole on the card."""
    whole = ((row, work_of(row)) for row in public_rates() if not row.is_partial)
    shares = [_share_of_bound(row, work) for row, work in whole if isinstance(work, TokenWork)]
    return {"share_low": 100 * float(np.quantile(shares, 0.25)), "share_high": 100 * float(np.quantile(shares, 0.75))}


def _share_of_bound(row: PublicRate, work: TokenWork) -> float:
    """The bytes a second that a row's tokens need, over the card's rating."""
    needed = float(work.weight_bytes + work.cache_bytes)
    return row.rate * needed / known_cards()[row.card].bandwidth_bytes_per_second


def numbers() -> dict[str, int | float]:
    """What the rows are, how far predictions are off in percent, and how many goals are met."""
    found: dict[str, int | float] = {
        "n_rates": len(public_rates()),
        "n_rate_cards": len({row.card for row in public_rates()}),
        "n_rate_models": len({row.model for row in public_rates()}),
        "n_rate_repositories": n_sources(public_rates()),
        "n_rates_partial": sum(row.is_partial for row in public_rates()),
        "n_rates_deep": sum(row.depth >= DEEP for row in public_rates()),
        "n_rated_cards": len(arithmetic()),
        "n_aside": len(aside()),
        "n_goals": len(goals()),
        "n_goals_met": sum(goal.is_met(once=True) for goal in goals()),
        "n_goals_met_rows": sum(goal.is_met(once=False) for goal in goals()),
        "n_pairs": len(pairs()),
        "n_pairs_apart": len(apart()),
        "n_pairs_apart_alike": sum("backend" not in pair.differs for pair in apart()),
        "n_worst": len(worst()),
        "n_worst_not_known": sum(reason_of(one) == NOT_KNOWN for one in worst()),
        "n_worst_prompt": sum(one.row.phase == PROMPT for one in worst()),
    }
    for split in LEFT_OUT:
        for phase in PHASES:
            found[f"{split}_{phase}_inside"] = 100 * errors(split, phase).inside(once=True)
            for share, name in ((0.5, "median"), (0.9, "most")):
                found[f"{split}_{phase}_{name}"] = 100 * errors(split, phase).quantile(share, once=True)
    for once, name in ((False, "rows"), (True, "cards")):
        found[f"partial_decode_{name}"] = 100 * errors("cards", DECODE, True).quantile(0.5, once=once)
    return found
