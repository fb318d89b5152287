"""What a log shows as done already, so that no fix advises it again.

A sentence of data/log_findings/*.toml that begins with `[unless one slot, headroom]` is left out where either is
so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from inferlab.log_reader.observed import Observed

UNLESS = re.compile(r"\[unless ([a-z0-9, ]+)\] ")
LARGE_TYPES = ("f16", "bf16", "f32")
SPARE = 1.1
"""Free memory over what is needed, from which on all layers surely fit."""


def _one_slot(seen: Observed) -> bool:
    return seen.context.n_slots == 1


def _no_shares(seen: Observed) -> bool:
    """Whether no slot has only a share of the context."""
    return _one_slot(seen) or seen.context.kv_unified is True


def _headroom(seen: Observed) -> bool:
    """Whether all weights, the cache and the compute buffers are less than the devices had free."""
    free = sum(device.free_bytes or 0 for device in seen.devices)
    others = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind != "weights")
    weights = seen.model.weights_bytes
    return bool(weights and seen.buffers) and free > SPARE * ((weights or 0) + others)


def _small_cache(seen: Observed) -> bool:
    types = (seen.context.type_k, seen.context.type_v)
    return all(types) and not set(types) & set(LARGE_TYPES)


DONE: dict[str, Callable[[Observed], bool]] = {
    "one slot": _one_slot,
    "no shares": _no_shares,
    "headroom": _headroom,
    "no headroom": lambda seen: not _headroom(seen),
    "no experts": lambda seen: seen.model.n_expert == 0,
    "flash attention": lambda seen: seen.context.flash_attn == "on",
    "small cache": _small_cache,
}


def still_to_do(sentences: Iterable[str], seen: Observed | None) -> list[str]:
    """The sentences without their conditions, and without what the log shows as done; all of them without a log."""
    kept = (text for text in sentences if seen is None or not any(DONE[name](seen) for name in named(text)))
    return [UNLESS.sub("", text) for text in kept]


def named(sentence: str) -> list[str]:
    """The conditions of a sentence."""
    match = UNLESS.match(sentence)
    return match[1].split(", ") if match else []
