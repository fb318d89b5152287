"""The cards and machines that a reader chooses from: memory and bandwidth as their makers rate them, each cited.

The numbers lie in data/facts/devices.toml. A rating is an upper bound: no program reads memory that fast.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.facts import cited_facts, read_table
from inferlab.prediction.gpu_share import GpuShare, gpu_share, older_share
from inferlab.units import GB, GIB

BRANDS = re.compile(
    r"\b(mac ?book( air| pro)?|mac (mini|studio|pro)|imac|air"
    r"|radeon (ai )?pro|arc pro|ryzen ai|geforce|radeon|ryzen|tesla|instinct|arc|[rg]tx|rx|gpu"
    r"|nvidia|amd|intel|apple)\b"
)
"""Words beside a card's number that people leave out, and the computers that a chip of Apple's is in."""
SIZE = re.compile(r"[ :-]*\b(\d{1,3}) ?(?:gi?b?)?$")
"""The memory that may follow a card's name."""


@dataclass(frozen=True)
class KnownCard:
    """A card, or a machine whose processor shares its memory (`unified`), by its ratings.

    name           short name, e.g. `rtx-4060`; `title` is the one for readers
    memory_bytes   each size sold, ascending; a rated GB is read as the GiB that the chips hold
    backend        llama.cpp's usual backend there: cuda, rocm, metal, sycl or vulkan
    source         key of the bibliography for the bandwidth, in its state of `date`
    memory_source  key of the bibliography for the memory, mostly the same
    system         whose limit for the GPU holds there, in data/facts/gpu_shares.toml; None where none is known
    aliases        other names that people write
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
    system: str | None = None
    aliases: tuple[str, ...] = ()

    def gpu_share(self, memory_bytes: int) -> GpuShare | None:
        """What the system lets the GPU have of such a memory; None where no limit is known."""
        return gpu_share(self.system, memory_bytes) if self.system else None

    def older_share(self, memory_bytes: int) -> GpuShare | None:
        """What the systems before let the GPU have of it; None where that is not known."""
        return older_share(self.system, memory_bytes) if self.system else None

    def gpu_bytes(self, memory_bytes: int) -> int:
        """Bytes that the GPU may use of such a memory: all of them where no limit is known."""
        share = self.gpu_share(memory_bytes)
        return share.gpu_bytes if share else memory_bytes


@cache
def known_cards() -> dict[str, KnownCard]:
    """Every card of data/facts/devices.toml by its short name, in the order of the file."""
    return {name: _card(name, entry) for name, entry in entries().items()}


def looked_at() -> str:
    """The month in which the list was last held against what is sold."""
    return str(read_table("devices")["looked_at"])


def known_card(name: str) -> KnownCard:
    """A card by its short name, its title or what people write of them: "rtx-4060", "4060", "7900xtx", "gb10".

    Raises InvalidSettings for another name, with the nearest known ones, and for one that several cards bear.
    """
    cards = _cards_called(name)
    if len(cards) == 1:
        return cards[0]
    if cards:
        raise InvalidSettings(f"{name!r} is the name of several cards. Name one of {_listed(cards)}.")
    wanted, names = _plain(name), {_plain(alias): card for card in known_cards().values() for alias in _names(card)}
    close = [names[found] for found in get_close_matches(wanted, names, n=4, cutoff=0.5)]
    near = list(dict.fromkeys(card.name for card in (*_cards_with_words(wanted), *close)))[:4]
    listed = f"Nearest: {', '.join(near)}." if near else f"Known: {', '.join(known_cards())}."
    raise InvalidSettings(
        f"There is no known card {name!r}. {listed} For another card, give its memory instead: --vram 8GiB."
    )


def sized_cards() -> dict[str, tuple[KnownCard, int]]:
    """Each card with each size of its memory in bytes: `rtx-4060`, or `apple-m4:24` where several are sold."""
    return {name: (card, n_bytes) for card in known_cards().values() for name, n_bytes in _sizes(card)}


def sized_card(name: str) -> tuple[KnownCard, int]:
    """A card with a size of its memory, as `sized_cards` names them or as people do: "m4 max 64", "4060 ti 16gb".

    Raises InvalidSettings for another name, and for one that does not say which size.
    """
    if name in sized_cards():
        return sized_cards()[name]
    name = " ".join(re.sub(r"[()]", " ", name).split())
    called = _cards_called(name)
    if not called and (size := SIZE.search(name.lower().rstrip())):
        called = _called_by(_without_size).get(_short(name[: size.start()]), ())
        return _only_size(name, called or (known_card(name),), int(size[1]))
    return _only_size(name, called or (known_card(name),), None)


def entries() -> dict[str, dict[str, Any]]:
    """The cards as they are written, short name -> keys, each with those of its family."""
    return {
        name: {key: value for key, value in family.items() if key != "cards"} | entry
        for family in families().values()
        for name, entry in family["cards"].items()
    }


def families() -> dict[str, dict[str, Any]]:
    """The families of the file with what their cards have in common."""
    return {name: family for name, family in read_table("devices").items() if isinstance(family, dict)}


def bus_bandwidth(bits: float, gigabits_per_second: float) -> float:
    """Bytes per second of a memory bus that is `bits` wide, at so many Gbit/s for each of them."""
    return bits / 8 * gigabits_per_second * GB


def _card(name: str, entry: dict[str, Any]) -> KnownCard:
    bandwidth, source, date = _bandwidth(entry)
    sizes = tuple(size * GIB for size in entry["memory"])
    from_where = entry.get("memory_source", source)
    return KnownCard(
        name,
        entry["title"],
        sizes,
        bandwidth,
        entry["backend"],
        entry["unified"],
        source,
        date,
        memory_source=from_where,
        system=entry.get("system"),
        aliases=tuple(entry.get("aliases", ())),
    )


def _bandwidth(entry: dict[str, Any]) -> tuple[float, str, str]:
    """Bytes per second with source and date: shared with cards.toml, stated, or computed from bus and rate."""
    if "fact" in entry:
        fact = cited_facts("cards")[entry["fact"]]
        return fact.value * GB, fact.source, fact.date
    if "bandwidth" in entry:
        return entry["bandwidth"] * GB, entry["source"], entry["date"]
    return bus_bandwidth(entry["bus"], entry["rate"]), entry["source"], entry["date"]


# --- names ------------------------------------------------------------------------------------------


def _cards_called(name: str) -> tuple[KnownCard, ...]:
    """The cards of that name: whose whole name it is, else that people call so, else with any memory."""
    short = _short(name)
    return (
        _called_by(_plain).get(_plain(name), ())
        or _called_by(_short).get(short, ())
        or _called_by(_without_size).get(short, ())
    )


@cache
def _called_by(form: Callable[[str], str]) -> dict[str, tuple[KnownCard, ...]]:
    called: dict[str, dict[str, KnownCard]] = {}
    for card in known_cards().values():
        for alias in _names(card):
            called.setdefault(form(alias), {})[card.name] = card
    return {name: tuple(cards.values()) for name, cards in called.items()}


def _cards_with_words(name: str) -> list[KnownCard]:
    """The cards in whose names all these words stand, in any order."""
    words = set(name.split("-")) - {""}
    return [
        card for card in known_cards().values() if words and words <= set(_plain(" ".join(_names(card))).split("-"))
    ]


def _names(card: KnownCard) -> Iterable[str]:
    return card.title, card.name, *card.aliases


def _plain(name: str) -> str:
    return "-".join(name.lower().replace("-", " ").split())


def _short(name: str) -> str:
    """A name without brands, spaces and signs: "GeForce RTX 4060 Ti" and "4060ti" are one."""
    words = re.sub(r"(rtx|gtx|rx)(?=\d)", r"\1 ", name.lower().replace("-", " "))
    return re.sub(r"[^a-z0-9]", "", BRANDS.sub(" ", words))


def _without_size(name: str) -> str:
    return _short(SIZE.sub("", name.lower()) if name.lower().endswith("gb") else name)


def _sizes(card: KnownCard) -> list[tuple[str, int]]:
    several = len(card.memory_bytes) > 1
    return [(f"{card.name}:{size // GIB}" if several else card.name, size) for size in card.memory_bytes]


def _only_size(name: str, cards: Iterable[KnownCard], gib: int | None) -> tuple[KnownCard, int]:
    """The only size of these cards, or their only one of so many GiB."""
    every = [(card, size) for card in cards for _, size in _sizes(card)]
    found = [(card, size) for card, size in every if gib in (None, size // GIB)]
    if len(found) == 1:
        return found[0]
    title, known = every[0][0].title, _listed(cards)
    if gib is not None and not found:
        other = f"Name one of {known}, or give --vram {gib}GiB."
        raise InvalidSettings(f"{name!r}: the list has no {title} of {gib} GiB. {other}")
    raise InvalidSettings(f"{name!r} does not say how much memory {title} has. Name one of {known}.")


def _listed(cards: Iterable[KnownCard]) -> str:
    return ", ".join(name for card in cards for name, _ in _sizes(card))
