"""Where to plan for: one card or several, or one memory that host and GPU share, beside so much RAM.

A Mac's memory is shared, and its system leaves the GPU only a part of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.prediction.cards import KnownCard, sized_card
from inferlab.prediction.free_memory import DEFAULT_BACKEND, SYSTEM_BYTES, HostRam
from inferlab.prediction.gpu_share import GpuShare
from inferlab.units import GIB, bytes_text

DEFAULT_RAM_BYTES = 32 * GIB
"""RAM beside a card where nobody says how much; whoever assumes it says so."""
MOST_CARDS = 15
"""GGML_SCHED_MAX_BACKENDS (ggml-backend.cpp:764) without the host's."""


@dataclass(frozen=True)
class Place:
    """The memory to plan for.

    sizes      bytes that each card offers; one size for a memory that host and GPU share
    ram        the machine's RAM, all of the memory where it is shared; None: not compared
    bandwidth  bytes per second of each card, None where it is not known
    title      the card in words
    limit      how much of a shared memory the GPU may use, and who says so, in a sentence; "" where it may use all
    card       the card of the list, where all cards are of that kind
    """

    sizes: tuple[int, ...]
    shared: bool
    backend: str = DEFAULT_BACKEND
    ram: HostRam | None = None
    bandwidth: float | None = None
    title: str = ""
    limit: str = ""
    card: KnownCard | None = None

    @property
    def devices(self) -> dict[str, Any]:
        """The cards or the shared memory as `fit` and `machine_for` take them."""
        memory = {"unified": self.sizes[0]} if self.shared else {"vram": self.sizes}
        return {**memory, "backend": self.backend}

    def with_cards(self, sizes: Sequence[int], title: str, **changes: Any) -> Place:
        """The place with cards of these sizes, under another title."""
        return replace(self, sizes=tuple(sizes), title=title, **changes)


def place_of_card(
    name: str,
    ram_bytes: int | None = None,
    system_bytes: int = SYSTEM_BYTES,
    prompt_cache_bytes: int | None = None,
    gpu_bytes: int | None = None,
) -> Place:
    """The place of a card of the list, named as `sized_card` takes it, beside so much RAM.

    ram_bytes  of the machine; None: DEFAULT_RAM_BYTES, or the card's own memory where it shares that
    gpu_bytes  what the GPU may use; None: all of a card's memory, and of a Mac's the share of its system
    The others are those of `HostRam`. Raises InvalidSettings for an unknown card, for more than the card has, and for
    other RAM than what it shares.
    """
    card, size = sized_card(name)
    usable = card.gpu_bytes(size) if gpu_bytes is None else gpu_bytes
    if not 0 < usable <= size:
        raise InvalidSettings(
            f"{bytes_text(usable)} for the GPU is not possible: {card.title} has {bytes_text(size)}. Give less."
        )
    title, usual = f"{card.title}, {size // GIB} GiB", size if card.unified else DEFAULT_RAM_BYTES
    if card.unified and ram_bytes not in (None, size):
        raise InvalidSettings(
            f"{bytes_text(ram_bytes or 0)} of RAM is not possible: {title}, shares its memory with the processor. "
            "Leave it out, or name the size of the memory with the card."
        )
    ram = HostRam(usual if ram_bytes is None else ram_bytes, system_bytes, prompt_cache_bytes)
    limit = _limit_text(card.gpu_share(size), card.older_share(size), usable, size)
    return Place((usable,), card.unified, card.backend, ram, card.bandwidth_bytes_per_second, title, limit, card)


def place_of_cards(
    names: Sequence[str], ram_bytes: int | None, system_bytes: int, prompt_cache_bytes: int | None
) -> Place:
    """The place of several cards of the list in one machine. Raises InvalidSettings as `place_of_card`.

    And for a card that shares its memory, for cards of different backends, which no one build of llama.cpp is for, and
    for more cards than MOST_CARDS.
    """
    if len(names) > MOST_CARDS:
        raise InvalidSettings(f"{len(names)} cards: llama.cpp takes at most {MOST_CARDS} devices beside the host.")
    places = [place_of_card(name, ram_bytes, system_bytes, prompt_cache_bytes) for name in names]
    counted = Counter(place.title for place in places)
    titles = " and ".join(f"{n} x {title}" if n > 1 else title for title, n in counted.items())
    if any(place.shared for place in places) or len({place.backend for place in places}) > 1:
        raise InvalidSettings(f"{titles} cannot share a model here. Name cards of one maker with memory of their own.")
    slowest = [place.bandwidth for place in places if place.bandwidth]
    sizes = [size for place in places for size in place.sizes]
    card = places[0].card if len(counted) == 1 else None
    return places[0].with_cards(sizes, titles, bandwidth=min(slowest, default=None), card=card)


def described_place(
    sizes: Sequence[int], shared: bool, ram: HostRam, backend: str = DEFAULT_BACKEND, bandwidth: float | None = None
) -> Place:
    """The place of cards with these sizes, or of one shared memory of which the GPU may use so much."""
    return Place(tuple(sizes), shared, backend, ram, bandwidth, f"card with {bytes_text(sizes[0])}")


def _limit_text(share: GpuShare | None, older: GpuShare | None, usable: int, size: int) -> str:
    """How much of a memory the GPU may use, who says so, and what older systems leave it; empty where it is all."""
    if usable == size:
        return ""
    told = f"The GPU may use {bytes_text(usable)} of {bytes_text(size)}"
    if share is None or share.gpu_bytes != usable:
        return f"{told}."
    by_log = "a public log of such a machine" if share.logged else "a public log of the next smaller size"
    less = f" With {older.system} it is {bytes_text(older.gpu_bytes)}." if older and older != share else ""
    return f"{told}: so much does {share.system} leave it, by {by_log} ({share.date}).{less}"
