"""Rates of llama.cpp that others measured on their cards and published, each with where it was read.

data/public_rates/rows.csv has one row for each: of several alike in one source the middle one, and how many there are.
sources.toml names each source. A row is of one card; what is empty was not stated, or is llama.cpp's default.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log
from typing import TypeVar
from urllib.parse import quote

from inferlab.facts import read_table
from inferlab.prediction.cards import known_cards
from inferlab.settings import Settings
from inferlab.units import GIB

FOLDER = "public_rates"
DECODE, PROMPT = "decode", "prompt"
NEAREST = 12


@dataclass(frozen=True)
class Source:
    """A repository or a thread; `commit` is the state that was read, "" for a thread."""

    name: str
    repository: str
    url: str
    commit: str
    licence: str
    read: str


@dataclass(frozen=True)
class PublicRate:
    """One published rate of a card of the list with a known model.

    source        a key of sources.toml; `place` is the file and line there, or who wrote it in a thread
    backend       "" where the source does not say; then the card's usual one is likely
    n_bytes       of the model's file, None where it is not stated; makers have mixes of their own
    n_gpu_layers  layers on the card, None: all; n_cpu_moe: layers whose experts lie in RAM
    flash_attn    None: not known; off where a llama-bench of before May 2026 does not print it, by its default
    depth         tokens in the cache before; a decode of n_tokens adds its own
    rate          tokens per second; n_alike: rows of this source of which it is the middle one
    year          of the build, or of the result where that is not known
    """

    source: str
    place: str
    card: str
    backend: str
    model: str
    type: str
    n_bytes: float | None
    n_gpu_layers: int | None
    n_cpu_moe: int
    flash_attn: bool | None
    n_ubatch: int
    type_k: str
    type_v: str
    depth: int
    phase: str
    n_tokens: int
    rate: float
    n_alike: int
    build: str
    date: str
    host: str
    year: float

    @property
    def is_partial(self) -> bool:
        """Whether layers or experts lie in RAM."""
        return self.n_gpu_layers is not None or self.n_cpu_moe > 0

    @property
    def in_ram_text(self) -> str:
        """What lies in RAM, in words; "" where nothing does."""
        layers = f"{self.n_gpu_layers} layers on the card" if self.n_gpu_layers is not None else ""
        experts = f"experts of {self.n_cpu_moe} layers in RAM" if self.n_cpu_moe else ""
        return " and ".join(filter(None, (layers, experts)))

    @property
    def test(self) -> str:
        """As llama-bench writes it: "tg128 @ d8192"."""
        name = f"{'tg' if self.phase == DECODE else 'pp'}{self.n_tokens}"
        return f"{name} @ d{self.depth}" if self.depth else name

    @property
    def owner(self) -> str:
        """Whose repository it is from."""
        return sources()[self.source].repository.split("/")[0]

    @property
    def link(self) -> str:
        """Whose it is and when it was measured, as a link to it."""
        return f"[{self.owner}, {self.date}]({self.address})"

    @property
    def address(self) -> str:
        """Where a reader can open it."""
        source = sources()[self.source]
        if not source.commit:
            return source.url
        path, _, line = self.place.rpartition(":")
        if not path:
            path, line = line, ""
        anchor = f"?plain=1#L{line}" if line.isdecimal() else ""
        return f"{source.url}/blob/{source.commit}/{quote(path)}{anchor}"


Row = TypeVar("Row")


def one_row(rows: Iterable[Row], **wanted: object) -> Row:
    """The row with these fields, of published rates or of a record like them.

    Raises LookupError if none has them or several have.
    """
    found = [row for row in rows if all(getattr(row, name) == value for name, value in wanted.items())]
    if len(found) != 1:
        raise LookupError(f"{len(found)} rows have {wanted}, and a page tells one: name more fields, or add the row.")
    return found[0]


@cache
def public_rates() -> tuple[PublicRate, ...]:
    """Every row, by card, backend, model, type, phase and depth."""
    text = (files("inferlab") / "data" / FOLDER / "rows.csv").read_text(encoding="utf-8")
    return tuple(map(_row, csv.DictReader(text.splitlines())))


@cache
def sources() -> dict[str, Source]:
    """Every source by its key."""
    table = read_table("sources", FOLDER)
    return {name: Source(name=name, **{"commit": "", **entry}) for name, entry in table.items()}


def of_card(card: str, phase: str = DECODE) -> tuple[PublicRate, ...]:
    """The rows of a card and a phase."""
    return tuple(row for row in public_rates() if (row.card, row.phase) == (card, phase))


def nearest(card: str, alike: Iterable[str], model: str, *, is_partial: bool = False) -> list[PublicRate]:
    """At most NEAREST decodes to look at beside an expected rate, those placed alike first.

    Of the card with the model, of the card, of the model on the cards `alike`, then of those with nearly its bandwidth.
    """
    cards = known_cards()
    others, own = {*alike, card}, cards[card].bandwidth_bytes_per_second

    def rank(row: PublicRate) -> tuple[float, ...]:
        apart = abs(log(cards[row.card].bandwidth_bytes_per_second / own))
        rest = row.depth > 0, -row.year
        return row.is_partial != is_partial, row.card != card, row.model != model, apart, *rest

    found = [row for row in public_rates() if row.phase == DECODE and row.card in others]
    return sorted(found, key=rank)[:NEAREST]


def n_sources(rows: Iterable[PublicRate]) -> int:
    """How many repositories the rows come from; threads of one repository are one."""
    return len({sources()[row.source].repository for row in rows})


def _row(cells: dict[str, str]) -> PublicRate:
    return PublicRate(
        source=cells["source"],
        place=cells["place"],
        card=cells["card"],
        backend=cells["backend"],
        model=cells["model"],
        type=cells["type"],
        n_bytes=float(cells["gib"]) * GIB if cells["gib"] else None,
        n_gpu_layers=int(cells["n_gpu_layers"]) if cells["n_gpu_layers"] else None,
        n_cpu_moe=int(cells["n_cpu_moe"] or 0),
        flash_attn=bool(int(cells["flash_attn"])) if cells["flash_attn"] else None,
        n_ubatch=int(cells["n_ubatch"] or Settings.n_ubatch),
        type_k=cells["type_k"] or Settings.type_k,
        type_v=cells["type_v"] or Settings.type_v,
        depth=int(cells["depth"] or 0),
        phase=cells["phase"],
        n_tokens=int(cells["n_tokens"]),
        rate=float(cells["rate"]),
        n_alike=int(cells["n_alike"] or 1),
        build=cells["build"],
        date=cells["date"],
        host=cells["host"],
        year=float(cells["year"]),
    )
