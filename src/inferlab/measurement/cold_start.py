"""A cold start, phase by phase: from no process to the first decoded token."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

from inferlab.engine.client import LlamaEngine
from inferlab.engine.registry import close_engines_with_model
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.page_cache import cached_share, empty_cache, fill_cache, read_once
from inferlab.measurement.queued import queued
from inferlab.measurement.turns import in_turns
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import seconds_text

PAGE_CACHE = ("empty", "full", "as is")
PHASES = (
    "process",
    "check",
    "header",
    "vocabulary",
    "tensor_list",
    "map_and_buffers",
    "weights",
    "kv_cache",
    "graph_reserve",
    "warm_up",
)
FILE_PHASES = ("map_and_buffers", "weights")
"""The phases that get at the weights: what is not in the page cache is read from the disk in them."""


@dataclass(frozen=True, kw_only=True)
class ColdStart(Measurement):
    """One cold start: seconds of each phase in order, and the wall time of all of them together.

    cached_before and cached_after are the shares of the file in the page cache; None where unknown.
    read_seconds is the time of one plain read of the whole file just before, from the same state; None if not timed.
    file_bytes and n_vocab describe the file; None in records made before they were kept.
    """

    phases: dict[str, float]
    wall_seconds: float
    page_cache: str
    cached_before: float | None
    cached_after: float | None
    read_seconds: float | None = None
    file_bytes: int | None = None
    n_vocab: int | None = None

    @property
    def page_cache_text(self) -> str:
        """The share of the file in the page cache at the start; where it is unknown, the requested state."""
        if self.cached_before is None:
            return f"page cache {self.page_cache}, unconfirmed"
        return f"{100 * self.cached_before:.0f} % of the file cached"


@dataclass(frozen=True)
class ColdStartPairs(Shown):
    """Cold starts in pairs, one with an empty and one with a full page cache; every second pair in reverse order."""

    empty: tuple[ColdStart, ...]
    full: tuple[ColdStart, ...]

    @property
    def typical(self) -> tuple[ColdStart, ColdStart]:
        """Of each kind, the start with the median wall time."""
        return _median_start(self.empty), _median_start(self.full)

    def seconds(self, *phases: str) -> tuple[list[float], list[float]]:
        """Seconds of some phases together, empty and full, by pair; without any phase, of the whole start."""
        return [_seconds(start, phases) for start in self.empty], [_seconds(start, phases) for start in self.full]

    def n_slower_when_empty(self, *phases: str) -> int:
        """Pairs in which those phases took longer with the empty page cache."""
        return sum(empty > full for empty, full in zip(*self.seconds(*phases), strict=True))

    def spread_seconds(self, *phases: str) -> float:
        """Longest minus shortest time of those phases, over all starts."""
        empty, full = self.seconds(*phases)
        return max(*empty, *full) - min(*empty, *full)

    @property
    def finding(self) -> str:
        """What the disk added by these pairs, whether the whole start can show it, and how the first passes varied."""
        if any(start.cached_before is None for start in self.empty):
            return "This system does not say whether the file was forgotten, so these starts cannot show the disk."
        (file_empty, file_full), (empty, full) = (map(median, self.seconds(*one)) for one in (FILE_PHASES, ()))
        first_passes = [seconds for one in self.seconds("warm_up") for seconds in one]
        slower, longer, n_pairs = self.n_slower_when_empty(*FILE_PHASES), self.n_slower_when_empty(), len(self.empty)
        shorter = " The whole start was even shorter after forgetting: other phases varied by more than the disk took."
        return (
            f"Getting at the weights took {seconds_text(file_empty)} after the file was forgotten and "
            f"{seconds_text(file_full)} after it was read, in the median. It took longer after forgetting in {slower} "
            f"of {n_pairs} pairs.\n{self._verdict(file_empty - file_full)}\n"
            f"The whole start took {seconds_text(empty)} and {seconds_text(full)}, and longer after forgetting in "
            f"{longer} of {n_pairs} pairs.{shorter if empty < full else ''}\n"
            f"The first pass took {seconds_text(min(first_passes))} to {seconds_text(max(first_passes))}. "
            "Its threads wait for each other, so a long one usually means that another program used a core."
        )

    def _verdict(self, added_seconds: float) -> str:
        """Whether the disk shows in most pairs, and in the whole start."""
        if added_seconds <= 0 or self.n_slower_when_empty(*FILE_PHASES) <= len(self.empty) / 2:
            return "The disk cannot be seen in this run: a small file is read faster than the system varies."
        spread = self.spread_seconds("process")
        hidden = added_seconds < spread
        return (
            f"The disk added about {seconds_text(added_seconds)}. Making the process varied by {seconds_text(spread)}, "
            + ("so only that phase shows the disk, not the whole start." if hidden else "which is less.")
        )


@queued
def cold_start_pairs(
    model: str | Path | None = None, settings: Settings | None = None, n_pairs: int = 5
) -> ColdStartPairs:
    """Pairs of cold starts with an empty and a full page cache, interleaved, so that noise and drift meet both alike.

    Raises what `cold_start` raises.
    """
    return ColdStartPairs(*in_turns(partial(cold_start, model, settings), ("empty", "full"), range(n_pairs)))


def _median_start(starts: tuple[ColdStart, ...]) -> ColdStart:
    return sorted(starts, key=lambda start: start.wall_seconds)[len(starts) // 2]


def _seconds(start: ColdStart, phases: tuple[str, ...]) -> float:
    return sum(start.phases.get(name, 0.0) for name in phases) if phases else start.wall_seconds


@queued
def cold_start(
    model: str | Path | None = None,
    settings: Settings | None = None,
    page_cache: str = "as is",
    time_read: bool = False,
) -> ColdStart:
    """Start a process, load the model, create the context, decode one token; time every phase.

    page_cache: `empty` first drops the file from the page cache, which ends this session's engines that map it;
    `full` first reads the file; `as is` does neither.
    time_read: before that, bring the page cache into the same state and time one plain read of the file.
    The phases inside llama.cpp are described at `inferlab.engine.log.phases_in`;
    `process` starts Python and loads llama.cpp's libraries, `check` is inferlab's own check of the header
    before llama.cpp opens the file, `warm_up` decodes the first token.
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    if page_cache not in PAGE_CACHE:
        raise InvalidSettings(f"page_cache={page_cache!r} is not one of {', '.join(PAGE_CACHE)}.")
    path = find_model(model)
    header = read_gguf(path)
    read_seconds = _read_seconds(path, page_cache) if time_read else None
    cached_before = _prepare_page_cache(path, page_cache)
    engine = LlamaEngine()
    try:
        began = time.perf_counter()
        engine.ready()
        started = time.perf_counter()
        opening = engine.open(path, (settings or Settings()).but(n_ctx=(settings and settings.n_ctx) or 512))
        opened = time.perf_counter()
        engine.generate(engine.random_prompt(1), 1)
        ended = time.perf_counter()
        common = common_fields(engine, opening, header)
    finally:
        engine.close()
    phases = {name.removesuffix("_seconds"): seconds for name, seconds in opening.phases.items()}
    return ColdStart(
        **common,
        phases={"process": started - began, **phases, "warm_up": ended - opened},
        wall_seconds=ended - began,
        page_cache=page_cache,
        cached_before=cached_before,
        cached_after=cached_share(path),
        read_seconds=read_seconds,
        file_bytes=header.file_bytes,
        n_vocab=header.n_vocab,
    )


def _read_seconds(path: Path, page_cache: str) -> float:
    """Seconds of one plain read of the file, from the requested state of the page cache."""
    _prepare_page_cache(path, page_cache)
    began = time.perf_counter()
    read_once(path)
    return time.perf_counter() - began


def _prepare_page_cache(path: Path, page_cache: str) -> float | None:
    """Bring the page cache into the requested state; returns the share of the file that is then cached."""
    if page_cache == "empty":
        close_engines_with_model(path)
        return empty_cache(path)
    if page_cache == "full":
        return fill_cache(path)
    return cached_share(path)
