"""The line that a participant sends to the teacher, and what the lines of a room say together.

    inferlab 0.1.0 | half-day, cpu | ready | Linux x86_64 | Python 3.11.7 | 2 cores | 23.5 GiB RAM | 60.2 GB free |
    cpu; no GPU | kernels: F16 plain | prefill 5230 decode 1240 tokens/s

It is one line, its fields between bars, so that a person reads it and a spreadsheet splits it. No user, host or path is
in it. It is read again where a mail quotes it or breaks it into several lines, and where a chat puts a name before it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from inferlab.doctor.findings import Finding
from inferlab.doctor.host import Seen
from inferlab.errors import InferlabError
from inferlab.measurement.run import Run
from inferlab.units import GB, GIB, count_text, factor_text, number_text

BAR = " | "
READY, WARNED, NOT_READY = "ready", "ready, with a warning", "not ready"
STATES = {"ok": READY, "warning": WARNED, "problem": NOT_READY}
RATES = re.compile(r"prefill (\d+|\?) decode (\d+|\?) tokens/s")
LINE = re.compile(rf"(?P<line>inferlab \S+ \|(?: [^|]+ \|){{9}} {RATES.pattern})(?P<rest>.*)")
BEGIN = re.compile(r"(?:\[[^\]]*\] )?(?P<name>.*?)(?P<line>inferlab \S+ \|.*)")
"""A name before the line, and before it the time in brackets that some chats write."""
QUOTED = re.compile(r"^[>\s]+")
UNKNOWN = "?"


@dataclass(frozen=True)
class RoomLine:
    """One participant's machine.

    state      ready; or "not ready: …" and "ready, with a warning: …", with the subjects
    kernels    that multiplied the matrices of the embedded model on the processor
    rates      its prefill and decode, in tokens per second; they end the line
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
    kernels: str
    rates: str

    def __str__(self) -> str:
        return BAR.join(vars(self).values())

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
        rates = RATES.fullmatch(self.rates)
        return float(rates[2]) if rates and rates[2] != UNKNOWN else None


def line_for(
    workshop: str, version: str, findings: Sequence[Finding], seen: Seen, free: int | None, run: Run | InferlabError
) -> RoomLine:
    """The line about a machine of which the check-up found this.

    workshop  its name and the kind of room
    free      bytes free for the labs
    run       a measurement of the embedded model, or why it failed
    """
    machine = seen.machine
    gpus = ", ".join(f"{gpu.description} {_in(GIB, gpu.memory_bytes)} GiB" for gpu in machine.gpus) or "no GPU"
    texts = (
        f"inferlab {version}",
        workshop,
        state_text(findings),
        f"{seen.host.system} {seen.host.architecture}",
        f"Python {'.'.join(map(str, seen.host.python))}",
        f"{UNKNOWN if machine.n_cores is None else machine.n_cores} cores",
        f"{_in(GIB, machine.ram_bytes)} GiB RAM",
        f"{_in(GB, free)} GB free",
        f"{', '.join(seen.gpu_backends) or 'cpu' if seen.backends else 'no llama.cpp'}; {gpus}",
        kernels_text(run),
        rates_text(run),
    )
    return RoomLine(*(seen.host.without_names(_one_field(text)) for text in texts))


def kernels_text(run: Run | InferlabError) -> str:
    """`kernels: F16 plain`: what multiplied on the processor, without which a rate of it says little."""
    if not isinstance(run, Run):
        return "kernels: not measured"
    return f"kernels: {run.kernels_text or 'on the GPU'}"


def rates_text(run: Run | InferlabError) -> str:
    """`prefill 5230 decode 1240 tokens/s`, with ? for what was not measured."""
    rates = (run.prefill_tokens_per_second, run.decode_tokens_per_second) if isinstance(run, Run) else (None, None)
    return "prefill {} decode {} tokens/s".format(*(UNKNOWN if rate is None else f"{rate:.0f}" for rate in rates))


def state_text(findings: Sequence[Finding]) -> str:
    """`ready`, or the worst state with the subjects that are in it."""
    worst = max((finding.state for finding in findings), key=list(STATES).index, default="ok")
    subjects = [finding.subject for finding in findings if finding.state == worst != "ok"]
    return ": ".join(filter(None, (STATES[worst], ", ".join(subjects))))


def _one_field(text: str) -> str:
    """A text without bars, and with single spaces, since a mail may break a line at a space."""
    return " ".join(text.replace("|", "/").split())


def _in(unit: int, n_bytes: int | None) -> str:
    return UNKNOWN if n_bytes is None else f"{n_bytes / unit:.1f}"


def _parsed(entry: str) -> tuple[str, RoomLine, str] | None:
    """(what stands before the line, the line, what stands behind it); None where an entry has no line."""
    begun = BEGIN.fullmatch(entry)
    line = LINE.fullmatch(begun["line"]) if begun else None
    if begun is None or line is None:
        return None
    return begun["name"], RoomLine(*(part.strip() for part in line["line"].split("|"))), line["rest"]


@dataclass(frozen=True)
class Room:
    """The machines of a room, by the name before each line, else by the number of the line in the file.

    unread  the lines that are no such line, as they are
    """

    machines: dict[str, RoomLine] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)

    @property
    def ready(self) -> list[str]:
        """Who has a machine that works: first those without a warning, of them first the fastest."""
        names = [name for name, line in self.machines.items() if line.is_ready]
        return sorted(names, key=lambda name: (bool(self.machines[name].subjects), -self._rate(name)))

    @property
    def broken(self) -> list[str]:
        """Who has none, in the order of the file."""
        return [name for name, line in self.machines.items() if not line.is_ready]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Who has no working machine, and with whom to sit; nobody is in two pairs."""
        return list(zip(self.broken, self.ready, strict=False))

    @property
    def slowest(self) -> str | None:
        """Whose machine has the lowest rate of decode; None where none was measured."""
        return min(filter(self._rate, self.machines), key=self._rate, default=None)

    def missing(self, ready: bool) -> Counter[str]:
        """How often each subject is a warning on a machine that is ready, or a problem on one that is not."""
        lines = (line for line in self.machines.values() if line.is_ready is ready)
        return Counter(subject for line in lines for subject in line.subjects)

    def sentences(self, here: Run | InferlabError) -> list[str]:
        """What the teacher wants to know, a sentence each; `here` is the same measurement on the teacher's machine."""
        said = [f"{len(self.ready)} of {count_text(len(self.machines), 'machine')} ready."]
        said += [f"{what}: {_counted(missing)}." for what, ready in OF_STATE if (missing := self.missing(ready))]
        said += [self._slowest_text(self.slowest, here)] if self.slowest else []
        said += [f"Pair: {name} ({self.machines[name].state}) with {other}." for name, other in self.pairs]
        if alone := self.broken[len(self.pairs) :]:
            said.append(f"Bring {count_text(len(alone), 'machine')}, for {', '.join(alone)}.")
        if self.unread:
            said.append(f"{count_text(len(self.unread), 'line')} not read:")
        return [*said, *(f"> {text}" for text in self.unread)]

    def _slowest_text(self, name: str, here: Run | InferlabError) -> str:
        """The slowest machine beside this one; by what factor, only where the kernels are the same."""
        line, own = self.machines[name], None if isinstance(here, InferlabError) else here
        text = f"Slowest: {name}, decode {number_text(self._rate(name))} tokens/s ({line.kernels})"
        if own is None or not own.decode_tokens_per_second:
            return f"{text}. This machine was not measured."
        rate = own.decode_tokens_per_second
        text += f"; this machine: {number_text(rate)} tokens/s ({kernels_text(own)})"
        same = line.kernels == kernels_text(own)
        return text + (f", {factor_text(rate / self._rate(name))} times as fast." if same else ".")

    def _rate(self, name: str) -> float:
        return self.machines[name].decode_tokens_per_second or 0.0


OF_STATE = (("Not ready because of", False), ("Ready, with warnings about", True))


def _counted(subjects: Counter[str]) -> str:
    """`labs (2), memory (1)`, the most frequent first."""
    return ", ".join(f"{subject} ({count})" for subject, count in subjects.most_common())


def read_room(text: str) -> Room:
    """The machines in what a teacher collected; the last line of a name counts, and empty lines are left out."""
    room = Room()
    for number, entry in _entries(text.splitlines()):
        parsed = _parsed(entry)
        if parsed is None:
            room.unread.append(entry)
            continue
        name, line, rest = parsed
        room.machines[name.strip(" :,;-*") or f"line {number}"] = line
        room.unread.extend(filter(None, [rest.strip(" .")]))
    return room


def _entries(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The number and the text of each entry, without marks of quoting: a line that a mail broke is one again."""
    number, begun = 0, ""
    for at, raw in enumerate(lines, start=1):
        text = " ".join(QUOTED.sub("", raw).split())
        if begun and (not text or BEGIN.fullmatch(text) or _parsed(begun)):
            yield number, begun
            begun = ""
        if begun or BEGIN.fullmatch(text):
            number, begun = (number, f"{begun} {text}") if begun else (at, text)
        elif text:
            yield at, text
    if begun:
        yield number, begun
