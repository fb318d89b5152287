"""Inference engines as their source and documentation describe them, and which of them can do a given job.

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

HARDWARE = {
    "nvidia": "NVIDIA GPU",
    "amd": "AMD GPU",
    "intel": "Intel GPU",
    "apple": "Apple GPU",
    "cpu": "no GPU",
}
COMPUTED, SENT, REFUSED = "computed", "sent", "refused"
LARGER = (COMPUTED, SENT, REFUSED)


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """One engine in words; `source` is a key of the bibliography, in its state of `date`.

    runs_on   keys of HARDWARE; "cpu" if it can do without a GPU
    larger    what happens with a model that is larger than the card, one of LARGER
    batches   whether its server lets new requests join a running batch by default (continuous batching)
    """

    key: str
    title: str
    runs_on: tuple[str, ...]
    larger: str
    batches: bool
    hardware: str
    weights: str
    offload: str
    cache: str
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
    return {key: EngineFacts(key=key, **{**entry, "runs_on": tuple(entry["runs_on"])}) for key, entry in table.items()}


def able(hardware: str, larger: bool = False, many: bool = False) -> tuple[EngineFacts, ...]:
    """The engines that can serve a model there; those that compute in RAM come before those that send over the bus.

    hardware  a key of HARDWARE; on "apple" and "cpu" all memory is RAM, so `larger` excludes nothing
    larger    the model is larger than the card's memory, but RAM can hold the rest
    many      several users at once, whom the server batches without being asked
    Raises InvalidSettings for other hardware.
    """
    if hardware not in HARDWARE:
        raise InvalidSettings(f"There is no hardware {hardware!r} in the table. There are: {', '.join(HARDWARE)}.")
    found = [one for one in known_engines().values() if hardware in one.runs_on and (one.batches or not many)]
    if not larger or not has_card(hardware):
        return tuple(found)
    return tuple(one for kind in (COMPUTED, SENT) for one in found if one.larger == kind)


def has_card(hardware: str) -> bool:
    """Whether the GPU has memory of its own, which a model can exceed while RAM holds the rest."""
    return hardware not in ("apple", "cpu")


def least_seconds(n_bytes: float, bytes_per_second: float) -> float:
    """The least seconds of a pass for the part that is not on the card, read once from RAM or sent once over a bus."""
    if bytes_per_second <= 0:
        raise InvalidSettings(f"bytes_per_second={bytes_per_second!r} is no rate. It must be more than 0.")
    return n_bytes / bytes_per_second
