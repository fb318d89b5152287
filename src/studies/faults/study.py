"""Three rounds of runs with one known fault each, recorded with telemetry, and what the diagnosis finds in them.

A round has a healthy baseline and one run for each cause. The rules of `prediction.diagnosis` were written before.

    cold page cache        the model's file is dropped from the page cache before it is loaded
    one thread             the device computes with one thread
    cache on the far side  the KV cache is in host RAM, and attention runs on the device (offload_kqv off)
    wrong cache type       keys and values have a type whose conversion costs more time than its size saves
    throttled link         the link between host and device is slow
    competing load         other processes use the same cores
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.measurement.run import Run
from inferlab.prediction.diagnosis import diagnose
from inferlab.records import load

HEALTHY = "healthy"
FAULTS = (
    "cold page cache",
    "one thread",
    "cache on the far side",
    "wrong cache type",
    "throttled link",
    "competing load",
)
ROUNDS = (1, 2, 3)
IDLE = 0.67
"""The busy cores of a run over those of its baseline, below which cores were idle."""


@dataclass(frozen=True)
class Round:
    """A recorded round: a healthy baseline, and one run for each cause, including healthy."""

    baseline: Run
    runs: dict[str, Run]


def recorded_rounds() -> tuple[Round, ...]:
    """The rounds of two Xeon cores."""
    return tuple(
        Round(
            load(f"xeon-2c/faults/{number}-baseline", Run),
            {cause: load(f"xeon-2c/faults/{number}-{slug(cause)}", Run) for cause in (HEALTHY, *FAULTS)},
        )
        for number in ROUNDS
    )


def slug(cause: str) -> str:
    """A cause as it is written in a record's name."""
    return cause.replace(" ", "-")


def numbers() -> dict[str, int | str]:
    """Numbers of the page *Bottlenecks*: recorded runs with a fault, and those that left cores idle."""
    faulty = [
        (cause, diagnose(run, recorded.baseline).comparison.busy or 1)
        for recorded in recorded_rounds()
        for cause, run in recorded.runs.items()
        if cause != HEALTHY
    ]
    idle = [cause for cause, busy in faulty if busy <= IDLE]
    texts = (f"{cause} ({idle.count(cause)} runs)" for cause in dict.fromkeys(idle))
    return {"n_faulty": len(faulty), "n_idle": len(idle), "idle_causes": ", ".join(texts) or "none"}
