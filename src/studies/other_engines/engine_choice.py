"""Inference engines as their source and documentation describe them.

The descriptions lie in data/facts/engines.toml, each with the version that was read; no engine is run here.
For a model that is larger than the card, an engine does one of three things with the part that does not fit:

    computed   the processor multiplies it in RAM:     seconds of a pass >= bytes / rate of RAM
    sent       the GPU gets it over the bus:           seconds of a pass >= bytes / rate of the bus
    refused    the engine does not start
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from inferlab.facts import read_table

COMPUTED, SENT, REFUSED = "computed", "sent", "refused"


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """One engine in words; `source` is a key of the bibliography, in its state of `date`.

    larger    what happens with a model that is larger than the card: COMPUTED, SENT or REFUSED
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
    return {key: EngineFacts(key=key, **entry) for key, entry in read_table("engines").items()}
