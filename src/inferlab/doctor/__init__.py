"""Whether this machine is ready: what the book and its labs need, what was found, and the command that mends it.

`check_machine` asks the system and the engine, which decodes once for real, and returns a `Checkup`.
It changes nothing, downloads nothing, and no finding names the user, the host or the home folder.

    findings   what a check-up says
    host       what is asked of the system and of the engine
    remedies   the commands that mend something
    checks     one function a subject
"""

from __future__ import annotations

from dataclasses import replace

from inferlab.doctor.checks import CHECKS
from inferlab.doctor.findings import Checkup, Finding
from inferlab.doctor.host import Host, Seen
from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine

PATIENCE_SECONDS = 120.0

__all__ = ["Checkup", "Finding", "Host", "check_machine"]


def check_machine(host: Host | None = None, engine: Engine | None = None) -> Checkup:
    """Look at everything that the book and its labs need on this machine; takes a second or two.

    A subject that does not apply here, such as the CUDA toolkit without a GPU, has no finding.
    The decode runs in an engine of its own, so a model that the session has open stays open.
    """
    if engine is not None:
        return _look(Seen(host or Host(), engine))
    own = LlamaEngine(timeout_seconds=PATIENCE_SECONDS)
    try:
        return _look(Seen(host or Host(), own))
    finally:
        own.close()


def _look(seen: Seen) -> Checkup:
    findings = [finding for check in CHECKS if (finding := check(seen)) is not None]
    nameless = tuple(_nameless(finding, seen.host) for finding in findings)
    return Checkup(nameless, seen.machine, _next_step(nameless, seen.host))


def _nameless(finding: Finding, host: Host) -> Finding:
    remedy, command = (text and host.without_names(text) for text in (finding.remedy, finding.command))
    return replace(finding, found=host.without_names(finding.found), remedy=remedy, command=command)


def _next_step(findings: tuple[Finding, ...], host: Host) -> str:
    problems = [f.subject for f in findings if f.state == "problem"]
    warnings = [f.subject for f in findings if f.state == "warning"]
    if problems:
        return f"Next: mend what is a problem ({', '.join(problems)}), then check again with `inferlab doctor`."
    go_on = "`make lab`, and the labs in the order of their numbers" if host.root else "`inferlab measure`"
    if warnings:
        return f"Ready, with a warning about: {', '.join(warnings)}. Next: {go_on}."
    return f"Ready. Next: {go_on}."
