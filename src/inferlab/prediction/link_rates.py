"""Rungs of the ladder of link rates, and what each would allow if every token read its bytes across it.

    seconds for one pass        = bytes / rate
    most tokens per second      = rate / bytes

A chain of links is no faster than its slowest link that the bytes must cross. A cited rate is a specification or a
rating, so it is an upper bound; a measured rate is one machine's. No arithmetic, latency or overlap is modeled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.facts import read_table
from inferlab.prediction.cards import known_card
from inferlab.units import MB

PLACES = ("network", "disk", "page cache", "bus", "host RAM", "VRAM", "cache")
"""What a rung belongs to, from the slowest kind to the fastest on most machines."""
CARDS = ("rtx-4060", "rtx-4090", "rtx-5090", "h100")


@dataclass(frozen=True)
class Rung:
    """One link or memory: bytes per second in one direction, and where the number is from.

    place   one of PLACES
    source  key of the bibliography, in its state of `date`; None for a rate that was measured
    """

    name: str
    place: str
    bytes_per_second: float
    source: str | None = None
    date: str = ""

    @property
    def measured(self) -> bool:
        return self.source is None

    def seconds(self, n_bytes: float) -> float:
        """The least seconds in which so many bytes cross this rung."""
        return n_bytes / self.bytes_per_second

    def most_tokens_per_second(self, token_bytes: float) -> float:
        """The most tokens per second of one sequence if each token brings `token_bytes` across this rung.

        Raises InvalidSettings for a token without bytes.
        """
        if token_bytes <= 0:
            raise InvalidSettings(f"token_bytes={token_bytes} sets no bound. It must be more than 0.")
        return self.bytes_per_second / token_bytes


def cited_rungs(cards: Iterable[str] = CARDS) -> tuple[Rung, ...]:
    """The rungs of data/facts/links.toml and the memory of some known cards, slowest first."""
    links = [
        Rung(entry["title"], entry["place"], link_rate(entry), entry["source"], entry["date"])
        for entry in read_table("links").values()
    ]
    return ordered([*links, *map(card_rung, cards)])


def card_rung(name: str) -> Rung:
    """The memory of a known card as its maker rates it. Raises InvalidSettings for an unknown name."""
    card = known_card(name)
    place = "host RAM" if card.unified else "VRAM"
    return Rung(card.title, place, card.bandwidth_bytes_per_second, card.source, card.date)


def measured_rungs(rates: Mapping[str, tuple[str, float | None]]) -> tuple[Rung, ...]:
    """Rungs from measured rates, name -> (place, bytes per second); a rate that could not be measured is left out."""
    return ordered(Rung(name, place, rate) for name, (place, rate) in rates.items() if rate is not None)


def ordered(rungs: Iterable[Rung]) -> tuple[Rung, ...]:
    """The rungs, slowest first."""
    return tuple(sorted(rungs, key=lambda rung: rung.bytes_per_second))


def slowest(rungs: Iterable[Rung]) -> Rung:
    """The rung that decides for bytes that must cross all of these. Raises InvalidSettings for none."""
    ladder = ordered(rungs)
    if not ladder:
        raise InvalidSettings("There is no rung to compare. Name at least one that the bytes cross.")
    return ladder[0]


def link_rate(entry: dict[str, Any]) -> float:
    """Bytes per second of an entry of links.toml: stated, from bits per second, or from transfers on several wires."""
    if "value" in entry:
        return entry["value"] * MB
    if "mbit" in entry:
        return entry["mbit"] * 1e6 / 8
    carried, sent = entry["coded"]
    return entry["mega"] * 1e6 * entry["wires"] * carried / sent / 8
