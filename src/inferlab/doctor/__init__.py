"""Whether this machine is ready: what the book and its labs need, what was found, and the command that fixes it.

`check_machine` examines the system and the engine, which decodes once for real, and returns a `Checkup`.
It changes nothing, downloads nothing, and no finding names the user, the host or the home folder.

    findings   what the checks report
    host       questions to the operating system and to the engine
    remedies   the commands that fix something
    building   which backend, CUDA toolkit and build command fit this machine
    checks     one function for each subject
    workshops  what a workshop asks of a participant's machine
    room_line  the line that a participant sends to the teacher, and a room of them
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial

from inferlab.doctor.checks import CHECKS, FOR_BUILDING, compiler
from inferlab.doctor.findings import Checkup, Finding
from inferlab.doctor.host import Host, Seen
from inferlab.doctor.room_line import UNKNOWN, RoomLine, line_for
from inferlab.doctor.workshops import check_workshop, first_run, syllabus
from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine
from inferlab.machine import installed_version
from inferlab.measurement.run import measure
from inferlab.model.find import cache_folder, tiny_model

TIMEOUT_SECONDS = 120.0
LABS_MAY_NEED_LESS = ("disk", "warning")
"""Left out for a workshop, which asks for the disk of its own labs; a full disk stays a problem."""

__all__ = ["Checkup", "Finding", "Host", "check_for_workshop", "check_machine"]


def check_machine(
    host: Host | None = None, engine: Engine | None = None, new_engine: Callable[[float], Engine] = LlamaEngine
) -> Checkup:
    """Examine everything that the book and its labs need on this machine; takes a second or two.

    host        the system to examine (default: this one)
    engine      the engine that decodes; it stays open (default: one from `new_engine`, closed at the end)
    new_engine  called with the seconds after which a request is given up

    A subject that does not apply here, such as the CUDA toolkit without a GPU, has no finding.
    The default engine is not the session's: a model that the session has open stays open.
    """
    with closing(new_engine(TIMEOUT_SECONDS)) if engine is None else nullcontext(engine) as used:
        seen = Seen(host or Host(), used)
        return _checkup(seen, _findings(seen, CHECKS))


def check_for_workshop(
    name: str, room: str = "cpu", host: Host | None = None, new_engine: Callable[[float], Engine] = LlamaEngine
) -> tuple[Checkup, RoomLine]:
    """Examine what a workshop needs of this machine, and measure once; takes some seconds.

    name  of a syllabus in data/workshops.toml
    room  one of `workshops.ROOMS`

    What only a build of the book needs is left out. The second part of the answer is the line for the teacher.
    Raises UnknownSyllabus.
    """
    asked = syllabus(name)
    with closing(new_engine(TIMEOUT_SECONDS)) as own:
        seen = Seen(host or Host(), own)
        run = first_run(partial(measure, tiny_model(), engine=own))
        here = [check for check in CHECKS if check not in FOR_BUILDING and not (check is compiler and seen.backends)]
        general = [
            finding for finding in _findings(seen, here) if (finding.subject, finding.state) != LABS_MAY_NEED_LESS
        ]
        findings = [*general, *check_workshop(asked, room, seen, run)]
        checkup = replace(_checkup(seen, findings), next_step=_before_the_day(findings, name, room, seen.host))
        free, book = seen.host.free_bytes(cache_folder()), installed_version("inferlab") or UNKNOWN
        return checkup, line_for(f"{name}, {room}", book, checkup.findings, seen, free, run)


def _before_the_day(findings: Iterable[Finding], name: str, room: str, host: Host) -> str:
    """What a participant does next."""
    states = {finding.state for finding in findings}
    program = ".venv/bin/inferlab" if host.is_book_environment else "inferlab"
    again = f"`{program} doctor --workshop {name}{'' if room == 'cpu' else f' --room {room}'}`"
    if "problem" in states:
        return f"Not ready for {name}. Next: do what stands after `To fix`, then check again with {again}."
    warned = ", with a warning that need not be fixed" if "warning" in states else ""
    return f"Ready for {name}{warned}. Next: send the line."


def _findings(seen: Seen, checks: Iterable[Callable[[Seen], Finding | None]]) -> list[Finding]:
    return [finding for check in checks if (finding := check(seen)) is not None]


def _checkup(seen: Seen, findings: list[Finding]) -> Checkup:
    anonymous = tuple(_without_names(finding, seen.host) for finding in findings)
    return Checkup(anonymous, seen.machine, _next_step(anonymous, seen.host))


def _without_names(finding: Finding, host: Host) -> Finding:
    remedy, command = (text and host.without_names(text) for text in (finding.remedy, finding.command))
    return replace(finding, found=host.without_names(finding.found), remedy=remedy, command=command)


def _next_step(findings: tuple[Finding, ...], host: Host) -> str:
    problems = [f.subject for f in findings if f.state == "problem"]
    warnings = [f.subject for f in findings if f.state == "warning"]
    if problems:
        return f"Next: fix what is a problem ({', '.join(problems)}), then check again with `inferlab doctor`."
    next_command = "`make lab`, and the labs in the order of their numbers" if host.root else "`inferlab measure`"
    if warnings:
        return f"Ready, with a warning about: {', '.join(warnings)}. Next: {next_command}."
    return f"Ready. Next: {next_command}."
