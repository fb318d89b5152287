"""A whole conversation, several times: from no process over loading, prompt and answer to the last token.

Every repetition starts a process of its own, so nothing is warm but what the system keeps of the file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine, Pass
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement, common_fields, with_context
from inferlab.measurement.page_cache import empty_cache, fill_cache
from inferlab.measurement.queued import queued
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings

PREPARE = {"full": fill_cache, "empty": empty_cache}
DIGITS = 6  # of a second's decimals: the samples of a journey are many


@dataclass(frozen=True, kw_only=True)
class Journey(Measurement):
    """One request after a start of its own, repeated: seconds of each phase of the loads, and the passes.

    case        a name for the reader
    page_cache  "full" or "empty", as before each start
    loads       of each repetition: `process_seconds`, then those of the engine's phases
    passes      of each repetition, without the ids of its tokens
    """

    case: str
    page_cache: str
    n_prompt: int
    n_gen: int
    loads: tuple[dict[str, float], ...]
    passes: tuple[Pass, ...]

    @property
    def phase_seconds(self) -> dict[str, tuple[float, ...]]:
        """Seconds of each repetition: start, prefill and decode in engine time, and the whole with all waits."""
        starts = tuple(sum(load.values()) for load in self.loads)
        return {
            "start": starts,
            "prefill": tuple(one.prefill_seconds for one in self.passes),
            "decode": tuple(sum(one.decode_seconds) for one in self.passes),
            "whole": tuple(start + one.token_seconds[-1] for start, one in zip(starts, self.passes, strict=True)),
        }

    @property
    def clocks(self) -> list[list[tuple[float, int]]]:
        """Of each repetition: (seconds since the process was started, tokens in the context), in engine time."""
        return [self._clock(sum(load.values()), one) for load, one in zip(self.loads, self.passes, strict=True)]

    def _clock(self, start: float, taken: Pass) -> list[tuple[float, int]]:
        at = start + taken.prefill_seconds
        points = [(start, 0), (at, self.n_prompt)]
        for index, seconds in enumerate(taken.decode_seconds, 1):
            at += seconds
            points.append((at, self.n_prompt + index))
        return points

    def and_also(self, other: Journey) -> Journey:
        """This journey with the repetitions of another of the same case."""
        return replace(self, loads=self.loads + other.loads, passes=self.passes + other.passes)


@queued
def journey(
    model: str | Path | None = None,
    settings: Settings | None = None,
    n_prompt: int = 512,
    n_gen: int = 128,
    page_cache: str = "full",
    case: str = "",
    engine: Engine | None = None,
) -> Journey:
    """Start an engine, load the model, prefill a prompt, decode n_gen tokens, once; the engine is closed at the end.

    page_cache  the file is read before the start ("full"), or dropped from the page cache ("empty")
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    if page_cache not in PREPARE:
        raise InvalidSettings(f"page_cache={page_cache!r} is not one of {', '.join(PREPARE)}.")
    path, engine = find_model(model), engine or LlamaEngine()
    wanted = with_context(settings or Settings(), n_prompt, n_gen)
    PREPARE[page_cache](path)
    try:
        began = time.perf_counter()
        engine.ready()
        process = time.perf_counter() - began
        opening = engine.open(path, wanted)
        taken = engine.generate(engine.random_prompt(n_prompt), n_gen)
        common = common_fields(engine, opening, read_gguf(path))
    finally:
        engine.close()
    loads = ({"process_seconds": process, **opening.phases},)
    about = {"case": case, "page_cache": page_cache, "n_prompt": n_prompt, "n_gen": n_gen}
    return Journey(**common, **about, loads=loads, passes=(_short(taken),))


def journeys_in_turns(
    model: str | Path | None, choices: Mapping[str, tuple[Settings, str]], n_prompt: int, n_gen: int, rounds: int
) -> tuple[Journey, ...]:
    """`rounds` of each case, name -> (settings, state of the page cache), in turns; every second round in reverse."""
    found: dict[str, Journey] = {}
    for index in range(rounds):
        for case in list(choices)[:: 1 if index % 2 == 0 else -1]:
            once = journey(model, choices[case][0], n_prompt, n_gen, choices[case][1], case)
            found[case] = found[case].and_also(once) if case in found else once
    return tuple(found.values())


def _short(taken: Pass) -> Pass:
    """The pass with whole microseconds and without its random tokens."""
    rounded = (tuple(round(s, DIGITS) for s in many) for many in (taken.token_seconds, taken.decode_seconds))
    return Pass(round(taken.prefill_seconds, DIGITS), *rounded, tokens=())
