"""The line that a participant sends to the teacher, and what the lines of a room say together.

    inferlab 0.1.0 | half-day, cpu | ready | Linux x86_64 | Python 3.11.7 | 2 cores | 23.5 GiB RAM | 60.2 GB free |
    cpu, rpc; no GPU | prefill 5230 decode 1240 tokens/s | kernels: F16 plain, Q8_0 repacked

It is one line, its fields between bars, so that a person reads it and a spreadsheet splits it. No user, host or path is
in it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from statistics import median

from inferlab.doctor.findings import Finding
from inferlab.doctor.host import Seen
from inferlab.errors import InferlabError
from inferlab.measurement.run import Run
from inferlab.units import GB, GIB

BAR = " | "
READY, WARNED, NOT_READY = "ready", "ready, with a warning", "not ready"
STATES = {"ok": READY, "warning": WARNED, "problem": NOT_READY}
RATES = re.compile(r"prefill (\S+) decode (\S+) tokens/s")
UNKNOWN = "?"


@dataclass(frozen=True)
class RoomLine:
    """One participant's machine.

    state      ready; or "not ready: …" and "ready, with a warning: …", with the subjects
    rates      prefill and decode of the embedded model, in tokens per second
    kernels    that multiplied its matrices
    """

    version: str
    workshop: str
    state: str
    system: str
    python: str
    cores: str
    memory: str
    disk: str
    devices: str
    rates: str
    kernels: str

    def __str__(self) -> str:
        return BAR.join(getattr(self, one.name) for one in fields(self))

    @property
    def is_ready(self) -> bool:
        return not self.state.startswith(NOT_READY)

    @property
    def subjects(self) -> list[str]:
        """What is a problem or a warning."""
        return [subject.strip() for subject in self.state.partition(": ")[2].split(",") if subject.strip()]

    @property
    def decode_tokens_per_second(self) -> float | None:
        """Of the embedded model; None where it was not measured."""
        found = RATES.search(self.rates)
        return float(found[2]) if found and found[2] != UNKNOWN else None


def line_for(
    workshop: str, version: str, found: Sequence[Finding], seen: Seen, free: int | None, run: Run | InferlabError
) -> RoomLine:
    """The line about a machine of which the check-up found this.

    workshop  its name and the kind of room
    free      bytes free for the labs
    run       a measurement of the embedded model, or why it failed
    """
    machine = seen.machine
    gpus = ", ".join(f"{one.description} {one.memory_text}" for one in machine.gpus) or "no GPU"
    measured = isinstance(run, Run)
    rates = (run.prefill_tokens_per_second, run.decode_tokens_per_second) if measured else (None, None)
    prefill, decode = (UNKNOWN if rate is None else f"{rate:.0f}" for rate in rates)
    texts = (
        f"inferlab {version}",
        workshop,
        state_text(found),
        f"{seen.host.system} {seen.host.architecture}",
        f"Python {'.'.join(map(str, seen.host.python))}",
        f"{machine.n_cores} cores",
        f"{_of(machine.ram_bytes, GIB)} GiB RAM",
        f"{_of(free, GB)} GB free",
        f"{', '.join(seen.backends) or 'no llama.cpp'}; {gpus}",
        f"prefill {prefill} decode {decode} tokens/s",
        f"kernels: {run.kernels_text or 'none on the processor'}" if measured else "kernels: not measured",
    )
    return RoomLine(*(seen.host.without_names(text.replace("|", "/")) for text in texts))


def state_text(found: Sequence[Finding]) -> str:
    """`ready`, or the worst state with the subjects that are in it."""
    worst = max((one.state for one in found), key=list(STATES).index, default="ok")
    subjects = [one.subject for one in found if one.state == worst != "ok"]
    return ": ".join(filter(None, (STATES[worst], ", ".join(subjects))))


def _of(n_bytes: int | None, unit: int) -> str:
    return UNKNOWN if n_bytes is None else f"{n_bytes / unit:.1f}"


def read_line(text: str) -> RoomLine | None:
    """The line in a text, also behind the marks of a quoted mail; None where there is none."""
    parts = [part.strip() for part in text.strip().lstrip("> ").split(BAR.strip())]
    whole = len(parts) == len(fields(RoomLine)) and parts[0].startswith("inferlab ")
    return RoomLine(*parts) if whole else None


@dataclass(frozen=True)
class Room:
    """All lines of a room; `unread` has the lines that are no such line."""

    lines: list[RoomLine] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)

    @property
    def missing(self) -> Counter[str]:
        """How often each subject is a problem or a warning."""
        return Counter(subject for line in self.lines for subject in line.subjects)

    def sentences(self) -> list[str]:
        """What the teacher wants to know, a sentence each."""
        ready = [line for line in self.lines if line.is_ready]
        rates = [rate for line in self.lines if (rate := line.decode_tokens_per_second)]
        said = [f"{len(ready)} of {len(self.lines)} machines are ready."]
        said += [f"{count} times: {subject}." for subject, count in self.missing.most_common()]
        if rates:
            slow, mid, fast = min(rates), median(rates), max(rates)
            said.append(
                f"Decode of the embedded model: slowest {slow:.0f}, median {mid:.0f}, fastest {fast:.0f} tokens/s."
            )
        if broken := len(self.lines) - len(ready):
            alone = max(0, broken - len(ready))
            said.append(f"Form {broken - alone} pairs" + (f"; {alone} people need a machine." if alone else "."))
        return [*said, *(f"Not read: {text}" for text in self.unread)]


def read_room(text: str) -> Room:
    """The lines of a file that a teacher collected, one participant each; empty lines are left out."""
    room = Room()
    for one in filter(str.strip, text.splitlines()):
        found = read_line(one)
        room.lines.append(found) if found else room.unread.append(one.strip())
    return room
