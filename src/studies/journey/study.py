"""Recorded conversations on two cores, and their predictions by two calibrations, one made days before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from statistics import median
from typing import Protocol

from inferlab.engine.protocol import Pass
from inferlab.measurement.base import Measurement
from inferlab.model.synthetic_model import shape
from inferlab.prediction.calibration import Calibration
from inferlab.records import load
from studies.journey.chain import predicted_phases

CACHED, ON_DISK, ALL = "CPU, file cached", "CPU, file on disk", "all layers on it"
PHASES = ("start", "prefill", "decode", "whole")
Phases = Mapping[str, Mapping[str, float]]
"""Seconds of each phase, by case."""


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
            "prefill": tuple(taken.prefill_seconds for taken in self.passes),
            "decode": tuple(sum(taken.decode_seconds) for taken in self.passes),
            "whole": tuple(start + taken.token_seconds[-1] for start, taken in zip(starts, self.passes, strict=True)),
        }

    @property
    def clocks(self) -> list[list[tuple[float, int]]]:
        """Of each repetition: (seconds since the process was started, tokens in the context), in engine time."""
        return [self._clock(sum(load.values()), taken) for load, taken in zip(self.loads, self.passes, strict=True)]

    def _clock(self, start: float, taken: Pass) -> list[tuple[float, int]]:
        at = start + taken.prefill_seconds
        points = [(start, 0), (at, self.n_prompt)]
        for index, seconds in enumerate(taken.decode_seconds, 1):
            at += seconds
            points.append((at, self.n_prompt + index))
        return points


class StartRates(Protocol):
    """What is asked about the start: seconds for a file of so many bytes and entries from a place."""

    def seconds(self, file_bytes: int, n_vocab: int, place: object) -> float: ...


@cache
def recorded() -> dict[str, Journey]:
    """The recorded conversations by case."""
    return {journey.case.replace("layers there", "layers on it"): journey for journey in load("epyc-2c/journey")}


def calibrations() -> tuple[Calibration, Calibration]:
    """The machine as it was calibrated on the day of the conversations, and before."""
    return load("epyc-2c/journey-calibration", Calibration), Calibration.load("epyc-2c")


def predictions(rates: StartRates, places: Mapping[bool, object]) -> tuple[Phases, Phases]:
    """Predicted seconds of each phase, by case: with the calibration of the day, and with the older one.

    rates, places  of cold starts, such as a study of them fits; the places by whether the page cache has the file
    """
    fresh, older = calibrations()
    return _predicted(fresh, rates, places), _predicted(older, rates, places)


def _predicted(calibration: Calibration, rates: StartRates, places: Mapping[bool, object]) -> Phases:
    phases = {}
    for name, journey in recorded().items():
        made = journey.model.shape
        model = shape(made.name, made.mix, **made.dimensions)
        start = rates.seconds(model.file_bytes, model.n_vocab, places[journey.page_cache == "full"])
        phases[name] = predicted_phases(model, journey.settings, calibration, start, journey.n_prompt, journey.n_gen)
    return phases


def numbers(expected: Phases, stale: Phases) -> dict[str, float | str]:
    """The numbers about the recorded conversations; `expected` and `stale` are `predictions`."""
    groups, (fresh, older) = recorded(), calibrations()
    journey, whole, stale_whole = groups[CACHED], _typical_error(expected), _typical_error(stale)
    spreads = [max(each.phase_seconds["whole"]) / min(each.phase_seconds["whole"]) - 1 for each in groups.values()]
    return _order_numbers() | {
        "whole_error": whole,
        "stale_error": stale_whole,
        "stale_days": (date.fromisoformat(journey.date) - date.fromisoformat(older.date)).days,
        "stale_verdict": (
            "So the day of the calibration mattered more than the equations"
            if whole < stale_whole / 2
            else "So a newer calibration alone does not remove the error"
        ),
        "prefill_ratio": median(stale[name]["prefill"] / expected[name]["prefill"] for name in groups),
        "decode_ratio": median(stale[name]["decode"] / expected[name]["decode"] for name in groups),
        "n_groups": len(groups),
        "n_each": min(len(each.passes) for each in groups.values()),
        "n_prompt": journey.n_prompt,
        "n_gen": journey.n_gen,
        "band_prefill": 100 * fresh.bands["prefill"],
        "band_decode": 100 * fresh.bands["decode"],
        "spread": 100 * median(spreads),
    }


def _order_numbers() -> dict[str, float | str]:
    """Which of the three ways to a longer context has the slowest answer, and whether the other two differ."""
    times = {name: _measured(name, "decode") for name in recorded()}
    control = 100 * abs(times[ON_DISK] / times[CACHED] - 1)
    first, second, slowest = sorted(times.keys() - {CACHED, ON_DISK, ALL}, key=times.__getitem__)
    apart = 100 * (times[second] / times[first] - 1)
    return {
        "control": control,
        "slowest_way": slowest,
        "fast_ways": f"{first} and {second}",
        "fast_apart": apart,
        "order_verdict": (
            "so the order of these two is not resolved" if apart < 2 * control else "so these two differ"
        ),
    }


def errors_table(expected: Phases, stale: Phases) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: each case, its measured seconds, and the errors of the predicted phases in percent."""
    heads = (
        "case",
        "measured whole, s",
        "error start, %",
        "prompt, %",
        "answer, %",
        "whole, %",
        "whole, older calibration, %",
    )
    return heads, [
        (
            name,
            f"{_measured(name, 'whole'):.2f}",
            *(f"{round(_error(expected, name, phase)):+d}" for phase in PHASES),
            f"{round(_error(stale, name, 'whole')):+d}",
        )
        for name in recorded()
    ]


def predicted_clocks(expected: Phases, stale: Phases) -> dict[str, list[tuple[float, int]]]:
    """(seconds, tokens in the context) after start, prompt and answer of the first case, by prediction."""
    journey = recorded()[CACHED]
    tokens = 0, journey.n_prompt, journey.n_prompt + journey.n_gen - 1
    predicted = {"predicted that day": expected[CACHED], "predicted earlier": stale[CACHED]}
    return {
        name: list(zip((of["start"], of["start"] + of["prefill"], of["whole"]), tokens, strict=True))
        for name, of in predicted.items()
    }


def _measured(name: str, phase: str) -> float:
    return median(recorded()[name].phase_seconds[phase])


def _error(computed: Phases, name: str, phase: str) -> float:
    """Predicted over measured seconds, minus 1, in percent."""
    return 100 * (computed[name][phase] / _measured(name, phase) - 1)


def _typical_error(computed: Phases) -> float:
    return median(abs(_error(computed, name, "whole")) for name in computed)
