"""Strangers' loads beside their plans: how many buffers agree on each backend, and why the others do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from inferlab.prediction.memory.request import COPIES_IN_FLIGHT
from inferlab.prediction.memory.shared import OFF_WHOLE
from inferlab.units import MIB
from studies.strangers_loads.loads import (
    CACHE,
    COMPUTE,
    EXACT,
    HOST,
    INSIDE,
    OFF,
    OUTPUT,
    PRINTED,
    VERDICTS,
    WEIGHTS,
    Load,
    Reserve,
    first_counts,
    loads,
    reserves,
)

HEADS = ("backend", "loads", "weights", "cache", "output", "compute, newer builds", "compute, older builds")
RESERVE_HEADS = ("build", "layers on the card", "cache", "buffers", "compared", *VERDICTS, "at first")
CAUSE_HEADS = ("what differs", "why", "loads")
SOURCE_HEADS = ("repository", "what", "how many")
DEFAULT_CACHE, LIKELY_CACHE = "f16", "q8_0"
PER_LAYER = ("gemma-4-e4b",)
"""Models with an embedding of the tokens for each layer."""


def rows() -> list[Sequence[str | int]]:
    """By HEADS: loads of which every buffer of a kind agrees, of those that were compared."""
    backends = list(dict.fromkeys(load.backend for load in loads()))
    return [_row(name, [load for load in loads() if load.backend == name]) for name in backends] + [
        _row("all", loads())
    ]


def _row(name: str, some: Sequence[Load]) -> Sequence[str | int]:
    near, older = ([load for load in some if load.is_near == is_near] for is_near in (True, False))
    exact = (_agree(count(some, kind)) for kind in (WEIGHTS, CACHE, OUTPUT))
    return (name, len(some), *exact, _agree(count(near, COMPUTE)), _agree(count(older, COMPUTE)))


def count(some: Iterable[Load], kind: str) -> Counter[str]:
    """How many loads have each verdict, of those of which this kind was compared."""
    return Counter(verdict for load in some if (verdict := load.verdict(kind)))


def _agree(counts: Counter[str]) -> str:
    """ "3 of 5", and how many of them only lie inside a range."""
    if not counts.total():
        return "none compared"
    inside = f", {counts[INSIDE]} inside a range" if counts[INSIDE] else ""
    return f"{counts[EXACT]} of {counts.total()} exact{inside}"


def cause_of(load: Load, kind: str, causes: Mapping[str, tuple[str, Callable[[Load], bool]]]) -> str | None:
    """The first cause that holds of a load whose buffers of this kind differ; None where they do not."""
    if load.verdict(kind) != OFF:
        return None
    return next(name for name, (_, holds) in causes.items() if holds(load))


def _has_wide_mask(load: Load) -> bool:
    """Whether the host's compute buffer is larger than planned by just the mask: 2 bytes a cell and token.

    Several cards keep copies of it, one for each batch in flight.
    """
    one = next(one for one in load.compared if (one.device, one.kind) == (HOST, COMPUTE))
    settings = load.settings
    n_cells = settings.n_ctx // (1 if settings.kv_unified else settings.n_seq_max)
    n_copies = COPIES_IN_FLIGHT if load.n_cards > 1 else 1
    without = one.logged - n_copies * 2 * n_cells * settings.n_ubatch / MIB
    return one.verdict == OFF and one.least - 2 * PRINTED <= without <= one.most + 2 * PRINTED


CAUSES: dict[str, tuple[str, Callable[[Load], bool]]] = {
    "older build": ("its graph of a batch is not that of the pinned version", lambda load: not load.is_near),
    "flash attention": (
        "the log says that `auto` turned it off, which the backend lacked then; the plan takes `auto` for on",
        lambda load: load.flash_attn_set == "off",
    ),
    "mask": ("4 bytes a value until May 2026, also with flash attention, and on the card a copy in 2", _has_wide_mask),
    "embedding of each layer": (
        "the build keeps it on the card, newer ones on the host; and its masks have 4 bytes a value",
        lambda load: load.model in PER_LAYER,
    ),
    "not explained": ("one build without flash attention: its host buffer is smaller", lambda load: True),
}
WEIGHT_CAUSES: dict[str, tuple[str, Callable[[Load], bool]]] = {
    "embedding of each layer": (
        "on the card in that build; and the maker left two matrices of each layer in F32",
        lambda load: load.model in PER_LAYER,
    ),
    "a layer's types": (
        "a larger matrix lies on the neighbouring card; the sum agrees",
        lambda load: load.n_cards > 1,
    ),
    "not explained": ("", lambda load: True),
}


def cause_rows() -> list[Sequence[str | int]]:
    """By CAUSE_HEADS: the loads whose weights were not compared, and those that differ, by cause."""
    mixes = sum(bool(load.compared) and not load.has_plain_mix for load in loads())
    rows: list[Sequence[str | int]] = [("weights: not compared", "the types of a maker's own mix are not known", mixes)]
    for kind, causes in ((WEIGHTS, WEIGHT_CAUSES), (COMPUTE, CAUSES)):
        found = Counter(cause_of(load, kind, causes) for load in loads())
        rows += [(f"{kind}: {name}", why, found[name]) for name, (why, _) in causes.items() if found[name]]
    return rows


def reserve_rows() -> list[Sequence[str | int]]:
    """By RESERVE_HEADS: published compute buffers of builds near the pinned version."""
    first = first_counts()
    return [
        (
            build,
            layers,
            said,
            len(group),
            *_counts(group, type),
            _listed(first[f"{build}, {layers} layers, {said}", COMPUTE]),
        )
        for build, layers, said, type, group in _groups()
    ]


def _listed(counted: Mapping[str, int]) -> str:
    """ "16, 0, 3": exact, inside and off."""
    return ", ".join(str(counted[verdict]) for verdict in VERDICTS)


def _groups() -> Iterator[tuple[str, str, str, str, list[Reserve]]]:
    """Build, layers on the card, the cache in words, its type, and the buffers of each group."""
    for build, full in dict.fromkeys((one.build, one.is_full) for one in reserves()):
        for cache in dict.fromkeys(one.cache for one in reserves() if one.build == build):
            group = [one for one in reserves() if (one.build, one.is_full, one.cache) == (build, full, cache)]
            for type in [cache] if cache else [DEFAULT_CACHE, LIKELY_CACHE]:
                yield build, "all" if full else "a few", cache or f"not stated; as {type}", type, group


def _counts(group: Iterable[Reserve], type: str) -> Sequence[int]:
    found = Counter(one.verdict for reserve in group if (one := reserve.compared(type)))
    return found.total(), *(found[verdict] for verdict in VERDICTS)


def counts() -> dict[tuple[str, str], dict[str, int]]:
    """By group and kind, as `first_counts` has them."""
    found = {}
    for backend, near in dict.fromkeys((load.backend, load.is_near) for load in loads()):
        some = [load for load in loads() if (load.backend, load.is_near) == (backend, near)]
        for kind in (WEIGHTS, CACHE, OUTPUT, COMPUTE):
            if (of_kind := count(some, kind)).total():
                name = f"{backend}, {'newer' if near else 'older'} builds"
                found[name, kind] = {verdict: of_kind[verdict] for verdict in VERDICTS}
    for build, layers, said, type, group in _groups():
        verdicts = dict(zip(VERDICTS, _counts(group, type)[1:], strict=True))
        found[f"{build}, {layers} layers, {said}", COMPUTE] = verdicts
    return found


def source_rows() -> list[Sequence[str | int]]:
    """By SOURCE_HEADS: each repository at its commit, and what was read there."""
    read = Counter((load.repo, load.commit) for load in loads())
    told = Counter((one.repo, one.commit) for one in reserves())
    return [
        (f"[{repo}](https://github.com/{repo}/tree/{commit})", what, n)
        for found, what in ((read, "loads"), (told, "compute buffers"))
        for (repo, commit), n in found.items()
    ]


def numbers() -> dict[str, int | float]:
    """Loads, builds and buffers, how many agree, and what a plan of a newer build lacks at most."""
    return {
        "n_stranger_loads": len(loads()),
        "n_stranger_buffers": sum(len(load.lines) for load in loads()),
        "n_stranger_builds": len({load.build for load in loads()}),
        "n_cache_exact": count(loads(), CACHE)[EXACT],
        "n_cache_compared": count(loads(), CACHE).total(),
        "n_weights_exact": count(loads(), WEIGHTS)[EXACT],
        "n_weights_compared": count(loads(), WEIGHTS).total(),
        "n_reserves": len(reserves()),
        "whole_margin_percent": 100 * OFF_WHOLE,
        "most_missing_mib": max(_missing_mib(load) for load in loads() if load.is_near),
    }


def _missing_mib(load: Load) -> float:
    """MiB of the compute buffers on one card beyond the most that was planned."""
    return max(
        (one.logged - one.most for one in load.compared if one.kind == COMPUTE and one.device != HOST), default=0
    )
