"""What one step of each setting, up or down, would cost or free in the fullest memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.model.catalog import KnownModel
from inferlab.model.quant_mixes import MIXES
from inferlab.prediction.free_memory import room_for
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.prediction.search import CACHE_TYPES, MOST_N_CTX, PlanFor, Search
from inferlab.settings import Settings

WEIGHT_TYPES = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M", "Q2_K")
"""The types of weights that a step goes through, from the largest to the smallest."""

NATIVE = "MXFP4_MOE"
"""Weights that a model is trained in: larger types have nothing more, and none of `WEIGHT_TYPES` is much smaller."""

Plans = tuple[PlanFor, PlanFor]
"""What makes a plan quickly, and what makes the plan that is asked where the quick one leaves open whether it fits."""


@dataclass(frozen=True)
class SettingStep:
    """One setting changed by one step.

    setting           n_ctx, n_gpu_layers, n_cpu_moe, flash_attn, n_seq_max or n_ubatch; cache_type (type_k and type_v
                      together); type (of the weights, which `settings` do not have)
    value             what it would be
    difference_bytes  more bytes in the memory that is fullest as planned, fewer if negative; by the most of a bound,
                      and without a compute buffer of unknown size
    least_bytes       the least that the difference can be, where one of the two plans is a bound; else the difference
    most_bytes        the most that it can be
    fits              "yes", "no" or "unsure", for all memories
    """

    setting: str
    value: int | str
    settings: Settings
    difference_bytes: int
    least_bytes: int
    most_bytes: int
    fits: str


def steps(search: Search, other_weights: Mapping[str, Plans] | None = None) -> tuple[SettingStep, ...]:
    """Each step from the requested settings that is possible and changes the bytes in the fullest memory.

    other_weights  plans of the same model with other types of weights, by the type
    A step to or from a plan that leaves a compute buffer open, when the other does not, has no known difference and is
    left out.
    """
    asked = _plan_for(search)(search.settings)
    memory = asked.fullest_memory(search.usable_bytes)
    changed = []
    for setting, value, settings, (quick_for, plan_for) in _changes(search, other_weights or {}):
        try:
            plan = quick_for(settings)
        except (InvalidSettings, UnsupportedArchitecture):
            continue
        difference = plan.most_bytes(memory) - asked.most_bytes(memory)
        if difference and plan.is_open(memory) == asked.is_open(memory):
            ends = (
                plan.least_bytes(memory) - asked.most_bytes(memory),
                plan.most_bytes(memory) - asked.least_bytes(memory),
            )
            fits = plan.fits(room_for(plan, search.usable_bytes))
            if fits == "unsure":
                sure = plan_for(settings)
                fits = sure.fits(room_for(sure, search.usable_bytes))
            changed.append(SettingStep(setting, value, settings, difference, *ends, fits))
    return tuple(changed)


def _plan_for(search: Search) -> PlanFor:
    """Both ends of a step are planned alike: quickly where the plan of the requested settings is a range itself."""
    return search.quick_for if search.planned.compute_range else search.plan


def weight_types(known: KnownModel) -> tuple[str, ...]:
    """`WEIGHT_TYPES`, or the one type of a model that was trained in it."""
    return (NATIVE,) if known.usual_type == NATIVE else WEIGHT_TYPES


def neighbouring_types(type: str) -> tuple[str, ...]:
    """The next larger and the next smaller of `WEIGHT_TYPES`, by the order of `MIXES`."""
    order = list(MIXES)
    larger = [other for other in WEIGHT_TYPES if order.index(other) < order.index(type)]
    smaller = [other for other in WEIGHT_TYPES if order.index(other) > order.index(type)]
    return (*larger[-1:], *smaller[:1])


def _changes(search: Search, other_weights: Mapping[str, Plans]) -> Iterator[tuple[str, int | str, Settings, Plans]]:
    asked = search.settings
    for setting, value in _values(search):
        names = ("type_k", "type_v") if setting == "cache_type" else (setting,)
        try:
            settings = asked.but(**dict.fromkeys(names, value))
        except InvalidSettings:
            continue
        yield setting, value, settings, (_plan_for(search), search.plan)
    for type, plans in other_weights.items():
        yield "type", type, asked, plans


def _values(search: Search) -> Iterator[tuple[str, int | str]]:
    """Each setting with a value one step lower or higher, as far as there are such values."""
    asked, planned, step = search.settings, search.planned.settings, search.context_step
    n_ctx = n_ctx_of(planned)
    contexts = n_ctx // 2 // step * step, n_ctx * 2
    yield from (("n_ctx", n) for n in contexts if 0 < n <= MOST_N_CTX)
    if search.has_gpu:
        every = search.n_blocks + 1
        n_layers = every if asked.n_gpu_layers < 0 else min(asked.n_gpu_layers, every)
        yield from (("n_gpu_layers", n) for n in (n_layers - 1, n_layers + 1) if 0 <= n <= every)
        if not asked.cpu_moe:
            yield from (("n_cpu_moe", n) for n in (asked.n_cpu_moe - 1, asked.n_cpu_moe + 1) if n >= 0)
    if asked.type_k == asked.type_v and asked.type_k in CACHE_TYPES:
        at = CACHE_TYPES.index(asked.type_k)
        yield from (("cache_type", CACHE_TYPES[i]) for i in (at - 1, at + 1) if 0 <= i < len(CACHE_TYPES))
    yield "flash_attn", "on" if asked.flash_attn == "off" else "off"
    yield from (("n_seq_max", n) for n in (asked.n_seq_max - 1, asked.n_seq_max + 1) if n)
    yield from (("n_ubatch", n) for n in (planned.n_ubatch // 2, planned.n_ubatch * 2) if 0 < n <= asked.n_batch)
