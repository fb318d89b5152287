"""The log reader on public logs: a verdict for each, and the counts of both halves."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TRIALS = Path(__file__).parent / "records" / "public" / "trials.csv"
VERDICTS = ("right", "partly", "wrong", "silent")
ASIDE, SEEN = "aside", "seen"
PROGRAMS = ("llama-server", "llama.cpp", "llama-cpp-python", "Ollama", "LM Studio")
OTHERS = "others on llama.cpp"
HEADS = ("program", "years", "logs", *VERDICTS)
SOURCE_HEADS = ("where", "date", "program", "about", "half", "verdict")


@dataclass(frozen=True)
class Trial:
    """One public log.

    half     aside: kept from everybody who wrote rules, and judged once; seen: judged on a first version of the
             rules, which were then mended on it
    source   repository, with the path of the file or the number of the thread
    url      its address
    date     year, or year and month, of the log
    program  what wrote it
    kind     whole: a whole log; part: what was pasted
    topic    crash, out of memory, start failure, context, slow, healthy, other
    verdict  one of VERDICTS
    before   the verdict on the log reader before these rules, of the half that was set aside; else ""
    """

    half: str
    source: str
    url: str
    date: str
    program: str
    kind: str
    topic: str
    verdict: str
    before: str

    @property
    def family(self) -> str:
        """Its program, or OTHERS."""
        return self.program if self.program in PROGRAMS else OTHERS


@cache
def trials() -> tuple[Trial, ...]:
    """Every trial, in the order of the list."""
    with TRIALS.open(encoding="utf-8", newline="") as file:
        return tuple(Trial(**row) for row in csv.DictReader(file))


def half(name: str) -> list[Trial]:
    """The trials of one half."""
    return [trial for trial in trials() if trial.half == name]


def rows(name: str) -> Sequence[Sequence[str | int]]:
    """By the columns HEADS: the counts of each program in one half, then of all."""
    families = {family: [trial for trial in half(name) if trial.family == family] for family in (*PROGRAMS, OTHERS)}
    return [(family, *_counts(of_family)) for family, of_family in families.items() if of_family] + [
        ("all", *_counts(half(name)))
    ]


def source_rows() -> list[Sequence[str]]:
    """By the columns SOURCE_HEADS: where each log is."""
    return [
        (f"[{trial.source}]({trial.url})", trial.date, trial.program, trial.topic, trial.half, trial.verdict)
        for trial in trials()
    ]


def _counts(some: Sequence[Trial]) -> tuple[str | int, ...]:
    """Years, logs, and how many of each verdict."""
    verdicts = [trial.verdict for trial in some]
    return _years(some), len(verdicts), *(verdicts.count(verdict) for verdict in VERDICTS)


def _years(some: Iterable[Trial]) -> str:
    years = sorted({trial.date[:4] for trial in some})
    return years[0] if len(years) == 1 else f"{years[0]} to {years[-1]}"


def numbers() -> dict[str, int | float | str]:
    """Logs and their years; of both halves the percentage that was right; what misled in the half set aside."""
    aside, seen = half(ASIDE), half(SEEN)
    years = sorted(trial.date[:4] for trial in trials())
    return {
        "n_logs": len(trials()),
        "n_aside": len(aside),
        "right_aside": _percent(trial.verdict == "right" for trial in aside),
        "right_seen": _percent(trial.verdict == "right" for trial in seen),
        "partly_aside": sum(trial.verdict == "partly" for trial in aside),
        "wrong_aside": sum(trial.verdict == "wrong" for trial in aside),
        "right_before": _percent(trial.before == "right" for trial in aside),
        "wrong_before": sum(trial.before == "wrong" for trial in aside),
        "first_year": years[0],
        "last_year": years[-1],
    }


def _percent(answers: Iterable[bool]) -> float:
    counted = list(answers)
    return 100 * sum(counted) / len(counted)
