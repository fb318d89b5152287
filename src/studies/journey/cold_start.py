"""Computes how long a cold start takes from the bytes of the file and where it is, and how long to wait for it.

    seconds = constant + entries * seconds per entry + file bytes / rate of the place
              + file bytes * seconds per byte + link bytes / rate of the link
    wait    = margin * seconds

constant           process, list of tensors, context: the median of recorded starts
seconds per entry  header and vocabulary, for each entry of the vocabulary: the median of recorded starts
rate of the place  of one plain read of the file from there; it is no result of a start
seconds per byte   mapping, rearranging and the first pass, file in the page cache: the median of recorded starts
link               to a device, where layers are offloaded; its rate is given
margin             the largest measured time over the computed time among the same recorded starts

The sum assumes that no part overlaps another. Every rate carries its origin as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import median
from typing import Protocol

from inferlab.errors import InvalidSettings
from inferlab.records import load

OF_ENTRIES = ("check", "header", "vocabulary")
OF_BYTES = ("map_and_buffers", "weights", "warm_up")
CACHED = 0.99
"""The share of a file in the page cache from which on a start counts as one without the disk."""
RECORDED = "epyc-2c/cold-start-seen"
"""The recorded starts that `recorded_rates` reads."""


class Start(Protocol):
    """What is read of a recorded start: seconds of its phases and as a whole, and of a plain read of its file."""

    phases: Mapping[str, float]
    wall_seconds: float
    cached_before: float | None
    read_seconds: float | None
    file_bytes: int | None
    n_vocab: int | None


@dataclass(frozen=True)
class Rate:
    """Bytes per second of a place or a link, and the origin of that number: measured, cited or given."""

    bytes_per_second: float
    origin: str

    def __post_init__(self) -> None:
        if not (isfinite(self.bytes_per_second) and self.bytes_per_second > 0):
            raise InvalidSettings(
                f"A rate of {self.bytes_per_second:g} bytes/s moves no file. Give bytes per second above 0."
            )

    def seconds(self, n_bytes: float) -> float:
        """Seconds that so many bytes take."""
        return n_bytes / self.bytes_per_second


@dataclass(frozen=True)
class StartRates:
    """Constant and rates of the equation above, as fitted to recorded starts, and the margin over them."""

    constant_seconds: float
    seconds_per_entry: float
    seconds_per_byte: float
    margin: float
    origin: str

    def parts(
        self, file_bytes: int, n_vocab: int, place: Rate, link: Rate | None = None, link_bytes: int = 0
    ) -> dict[str, float]:
        """Seconds of each part of a start, by name. Raises InvalidSettings for sizes that no file has."""
        _check(file_bytes, n_vocab, link, link_bytes)
        return {
            "constant": self.constant_seconds,
            "vocabulary": n_vocab * self.seconds_per_entry,
            "reading": place.seconds(file_bytes),
            "loading": file_bytes * self.seconds_per_byte,
            "link": link.seconds(link_bytes) if link else 0.0,
        }

    def seconds(
        self, file_bytes: int, n_vocab: int, place: Rate, link: Rate | None = None, link_bytes: int = 0
    ) -> float:
        """Computed seconds from the creation of the process to the first token. Raises InvalidSettings."""
        return sum(self.parts(file_bytes, n_vocab, place, link, link_bytes).values())

    def wait(self, file_bytes: int, n_vocab: int, place: Rate, link: Rate | None = None, link_bytes: int = 0) -> float:
        """Seconds to wait before the start counts as failed: `margin` times `seconds`. Raises InvalidSettings."""
        return self.margin * self.seconds(file_bytes, n_vocab, place, link, link_bytes)


def _check(file_bytes: int, n_vocab: int, link: Rate | None, link_bytes: int) -> None:
    if file_bytes <= 0 or n_vocab < 0:
        raise InvalidSettings(
            f"file_bytes={file_bytes} and n_vocab={n_vocab} are no model. Give the file's size in bytes, above 0."
        )
    if link_bytes < 0 or (link_bytes and link is None):
        raise InvalidSettings(
            f"link_bytes={link_bytes} with {'no' if link is None else 'a'} link. Give bytes of at least 0 and a link."
        )


def place_rate(starts: Sequence[Start], place: str) -> Rate:
    """The median rate of the plain reads before these starts, bytes over seconds. Raises InvalidSettings if none."""
    found = [one.file_bytes / one.read_seconds for one in starts if one.file_bytes and one.read_seconds]
    if not found:
        raise InvalidSettings(f"No plain read of {place} was timed. Record starts with time_read=True.")
    return Rate(median(found), f"measured: median of {len(found)} plain reads, {place}")


def is_cached(start: Start) -> bool:
    """Whether the page cache had the whole file when the start began."""
    return (start.cached_before or 0) >= CACHED


def fit_starts(starts: Sequence[Start], places: Mapping[bool, Rate]) -> StartRates:
    """Constant, rates and margin from recorded starts, some of them with the file in the page cache.

    places: the rate of plain reads with the file in the page cache (True) and without (False).
    Raises InvalidSettings without a start of either kind, or for records without sizes.
    """
    cached = [one for one in starts if is_cached(one)]
    if not cached or len(cached) == len(starts):
        raise InvalidSettings("Rates need recorded starts with the file in the page cache and without. Record both.")
    if any(not one.file_bytes or not one.n_vocab for one in starts):
        raise InvalidSettings("A recorded start has no size of file or vocabulary. Record it again.")
    fitted = StartRates(
        median(_rest(one) for one in starts),
        median(_sum(one, OF_ENTRIES) / one.n_vocab for one in starts),
        median(max(0.0, _sum(one, OF_BYTES) - places[True].seconds(one.file_bytes)) / one.file_bytes for one in cached),
        1.0,
        f"measured: {len(starts)} recorded starts",
    )
    worst = max(ratio(fitted, one, places[is_cached(one)]) for one in starts)
    return StartRates(
        fitted.constant_seconds, fitted.seconds_per_entry, fitted.seconds_per_byte, max(1.0, worst), fitted.origin
    )


def recorded_places(starts: Sequence[Start]) -> dict[bool, Rate]:
    """The rates of plain reads with the file in the page cache (True) and without (False). Raises InvalidSettings."""
    names = {True: "page cache", False: "recorded disk"}
    return {cached: place_rate([s for s in starts if is_cached(s) is cached], names[cached]) for cached in names}


def recorded_rates() -> StartRates:
    """Constant, rates and margin from the recorded starts of this library."""
    starts = load(RECORDED)
    return fit_starts(starts, recorded_places(starts))


def ratio(rates: StartRates, start: Start, place: Rate) -> float:
    """Measured over computed seconds of a start: above `rates.margin` it would have been given up."""
    return start.wall_seconds / rates.seconds(start.file_bytes, start.n_vocab, place)


def _sum(start: Start, phases: Sequence[str]) -> float:
    return sum(start.phases.get(name, 0.0) for name in phases)


def _rest(start: Start) -> float:
    """Seconds of what depends on neither the vocabulary nor the file."""
    return start.wall_seconds - _sum(start, OF_ENTRIES) - _sum(start, OF_BYTES)
