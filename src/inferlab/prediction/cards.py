"""The cards and machines that a reader chooses from: memory and bandwidth as their makers rate them, each cited.

The numbers lie in data/facts/devices.toml. A rating is an upper bound: no program reads memory that fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.facts import cited_facts, read_table
from inferlab.units import GB, GIB


@dataclass(frozen=True)
class KnownCard:
    """A card, or a machine whose processor shares its memory (`unified`), by its ratings.

    name           short name, e.g. `rtx-4060`; `title` is the one for readers
    memory_bytes   each size sold, ascending; a rated GB is read as the GiB that the chips hold
    backend        llama.cpp's usual backend there: cuda, rocm, metal, sycl or vulkan
    source         key of the bibliography for the bandwidth, in its state of `date`
    memory_source  key of the bibliography for the memory, mostly the same
    """

    name: str
    title: str
    memory_bytes: tuple[int, ...]
    bandwidth_bytes_per_second: float
    backend: str
    unified: bool
    source: str
    date: str
    memory_source: str


@cache
def known_cards() -> dict[str, KnownCard]:
    """Every card of data/facts/devices.toml by its short name, in the order of the file."""
    return {name: _card(name, entry) for name, entry in entries().items()}


def known_card(name: str) -> KnownCard:
    """A card by its short name or its title, in any case, e.g. `known_card("rtx-4060")`.

    Raises InvalidSettings for another name, with the nearest known ones.
    """
    wanted = _plain(name)
    names = {_plain(alias): card for card in known_cards().values() for alias in (card.title, card.name)}
    if wanted in names:
        return names[wanted]
    near = list(dict.fromkeys(names[close].name for close in get_close_matches(wanted, names, n=4, cutoff=0.5)))
    listed = f"Nearest: {', '.join(near)}." if near else f"Known: {', '.join(known_cards())}."
    raise InvalidSettings(f"There is no known card {name!r}. {listed} For another card, give its memory instead.")


def sized_cards() -> dict[str, tuple[KnownCard, int]]:
    """Each card with each size of its memory in bytes: `rtx-4060`, or `apple-m4:24` where several are sold."""
    return {
        name if len(card.memory_bytes) == 1 else f"{name}:{n_bytes // GIB}": (card, n_bytes)
        for name, card in known_cards().items()
        for n_bytes in card.memory_bytes
    }


def sized_card(name: str) -> tuple[KnownCard, int]:
    """A card with a size of its memory, as `sized_cards` names them. Raises InvalidSettings for another name."""
    if name in sized_cards():
        return sized_cards()[name]
    card = known_card(name.partition(":")[0])
    sizes = ", ".join(sized for sized, (other, _) in sized_cards().items() if other == card)
    raise InvalidSettings(f"{name!r} does not say how much memory {card.title} has. Name one of {sizes}.")


def entries() -> dict[str, dict[str, Any]]:
    """The cards as they are written, short name -> keys, each with those of its family."""
    return {
        name: {key: value for key, value in family.items() if key != "cards"} | entry
        for family in read_table("devices").values()
        for name, entry in family["cards"].items()
    }


def bus_bandwidth(bits: float, gigabits_per_second: float) -> float:
    """Bytes per second of a memory bus that is `bits` wide, at so many Gbit/s for each of them."""
    return bits / 8 * gigabits_per_second * GB


def _card(name: str, entry: dict[str, Any]) -> KnownCard:
    bandwidth, source, date = _bandwidth(entry)
    sizes = tuple(size * GIB for size in entry["memory"])
    from_where = entry.get("memory_source", source)
    return KnownCard(
        name, entry["title"], sizes, bandwidth, entry["backend"], entry["unified"], source, date, from_where
    )


def _bandwidth(entry: dict[str, Any]) -> tuple[float, str, str]:
    """Bytes per second with source and date: shared with cards.toml, stated, or computed from bus and rate."""
    if "fact" in entry:
        fact = cited_facts("cards")[entry["fact"]]
        return fact.value * GB, fact.source, fact.date
    if "bandwidth" in entry:
        return entry["bandwidth"] * GB, entry["source"], entry["date"]
    return bus_bandwidth(entry["bus"], entry["rate"]), entry["source"], entry["date"]


def _plain(name: str) -> str:
    return "-".join(name.lower().replace("-", " ").split())
