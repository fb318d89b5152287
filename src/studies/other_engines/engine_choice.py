"""Inference engines as their source and documentation describe them, and the least time outside the card.

The descriptions lie in data/facts/engines.toml, each with the version that was read; no engine is run here.
For a model that is larger than the card, an engine does one of three things with the part that does not fit:

    computed   the processor multiplies it in RAM:     seconds of a pass >= bytes / rate of RAM
    sent       the GPU gets it over the bus:           seconds of a pass >= bytes / rate of the bus
    refused    the engine does not start
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inferlab.errors import InvalidSettings
from inferlab.facts import read_table

COMPUTED, SENT, REFUSED = "computed", "sent", "refused"
LARGER = (COMPUTED, SENT, REFUSED)


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """One engine in words; `source` is a key of the bibliography, in its state of `date`.

    larger    what happens with a model that is larger than the card, one of LARGER
    batches   whether its server lets new requests join a running batch by default (continuous batching)
    """

    key: str
    title: str
    larger: str
    batches: bool
    hardware: str
    weights: str
    offload: str
    serving: str
    api: str
    licence: str
    defaults: str
    version: str
    source: str
    date: str


@cache
def known_engines() -> dict[str, EngineFacts]:
    """The engines of data/facts/engines.toml by their keys."""
    table = read_table("engines")
    return {key: EngineFacts(key=key, **entry) for key, entry in table.items()}


def least_seconds(n_bytes: float, bytes_per_second: float) -> float:
    """The least seconds of a pass for the part that is not on the card, read once from RAM or sent once over a bus."""
    if bytes_per_second <= 0:
        raise InvalidSettings(f"bytes_per_second={bytes_per_second!r} is no rate. It must be more than 0.")
    return n_bytes / bytes_per_second
