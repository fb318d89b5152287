"""Computes how long a cold start takes from the bytes of the file and where it is, and how long to wait for it.

    seconds = constant + entries * seconds per entry + file bytes / rate of the place + file bytes * seconds per byte
    wait    = margin * seconds

constant           process, list of tensors, context: the median of recorded starts
seconds per entry  header and vocabulary, for each entry of the vocabulary: the median of recorded starts
rate of the place  of one plain read of the file from there; it is no result of a start
seconds per byte   mapping, rearranging and the first pass, file in the page cache: the median of recorded starts
margin             the largest measured time over the computed time among the same recorded starts

The sum assumes that no part overlaps another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import median

from inferlab.errors import InvalidSettings
from inferlab.measurement.cold_start import ColdStart
from inferlab.records import load

OF_ENTRIES = ("check", "header", "vocabulary")
OF_BYTES = ("map_and_buffers", "weights", "warm_up")
CACHED = 0.99
"""The share of a file in the page cache from which on a start counts as one without the disk."""
RECORDED = "epyc-2c/cold-start-seen"
"""The recorded starts that `recorded_rates` reads."""


@dataclass(frozen=True)
class Rate:
    """Bytes per second of a place, and the origin of that number: measured, cited or given."""

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
    margin: float = 1.0

    def seconds(self, file_bytes: int, n_vocab: int, place: Rate) -> float:
        """Computed seconds from the creation of the process to the first token. Raises InvalidSettings."""
        if file_bytes <= 0 or n_vocab < 0:
            raise InvalidSettings(
                f"file_bytes={file_bytes} and n_vocab={n_vocab} are no model. Give the file's size in bytes, above 0."
            )
        entries = n_vocab * self.seconds_per_entry
        return self.constant_seconds + entries + place.seconds(file_bytes) + file_bytes * self.seconds_per_byte

    def wait(self, file_bytes: int, n_vocab: int, place: Rate) -> float:
        """Seconds to wait before the start counts as failed: `margin` times `seconds`. Raises InvalidSettings."""
        return self.margin * self.seconds(file_bytes, n_vocab, place)


def is_cached(start: ColdStart) -> bool:
    """Whether the page cache had the whole file when the start began."""
    return (start.cached_before or 0) >= CACHED


def place_rate(starts: Sequence[ColdStart]) -> Rate:
    """The median rate of the plain reads before these starts, bytes over seconds."""
    return Rate(median(start.file_bytes / start.read_seconds for start in starts), f"{len(starts)} plain reads")


def fit_starts(starts: Sequence[ColdStart], places: Mapping[bool, Rate]) -> StartRates:
    """Constant, rates and margin from recorded starts, some of them with the file in the page cache.

    places: the rate of plain reads with the file in the page cache (True) and without (False).
    """
    cached = [start for start in starts if is_cached(start)]
    fitted = StartRates(
        median(start.wall_seconds - _sum(start, OF_ENTRIES) - _sum(start, OF_BYTES) for start in starts),
        median(_sum(start, OF_ENTRIES) / start.n_vocab for start in starts),
        median(
            max(0.0, _sum(start, OF_BYTES) - places[True].seconds(start.file_bytes)) / start.file_bytes
            for start in cached
        ),
    )
    return replace(fitted, margin=max(1.0, *(ratio(fitted, start, places[is_cached(start)]) for start in starts)))


def recorded_places() -> dict[bool, Rate]:
    """The rates of the recorded plain reads with the file in the page cache (True) and from the disk (False)."""
    starts = load(RECORDED)
    return {cached: place_rate([start for start in starts if is_cached(start) is cached]) for cached in (True, False)}


def recorded_rates() -> StartRates:
    """Constant, rates and margin from the recorded starts of this library."""
    return fit_starts(load(RECORDED), recorded_places())


def ratio(rates: StartRates, start: ColdStart, place: Rate) -> float:
    """Measured over computed seconds of a start: above `rates.margin` it would have been given up."""
    return start.wall_seconds / rates.seconds(start.file_bytes, start.n_vocab, place)


def _sum(start: ColdStart, phases: Sequence[str]) -> float:
    return sum(start.phases.get(name, 0.0) for name in phases)
