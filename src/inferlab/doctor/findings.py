"""What the checks report: findings, each with the command that fixes it, as text, JSON and HTML."""

from __future__ import annotations

import html
import re
from dataclasses import asdict, dataclass
from typing import Any

from inferlab.machine import Machine
from inferlab.shown import table_html
from inferlab.units import bytes_text

STATES = ("ok", "warning", "problem")
COLOURS = {"ok": "#2e9e5b", "warning": "#d98c00", "problem": "#d64545"}


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    subject  what was checked
    state    ok, warning or problem
    found    what was found, in words
    remedy   the command that fixes it, None for ok
    command  a command worth knowing although nothing needs a fix
    """

    subject: str
    state: str
    found: str
    remedy: str | None = None
    command: str | None = None


@dataclass(frozen=True, repr=False)
class Checkup:
    """All findings about one machine, in the order in which to fix them."""

    findings: tuple[Finding, ...]
    machine: Machine
    next_step: str

    @property
    def state(self) -> str:
        """The worst state among the findings: ok, warning or problem."""
        return max((f.state for f in self.findings), key=STATES.index, default="ok")

    @property
    def title(self) -> str:
        """The machine in one line."""
        m = self.machine
        return f"{m.cpu}, {m.n_cores} cores, {bytes_text(m.ram_bytes)} of memory, {m.system}"

    @property
    def remedies(self) -> dict[str, str]:
        """Each command that fixes something -> the subjects that it fixes, in the order to run them."""
        fixed: dict[str, list[str]] = {}
        for finding in self.findings:
            if finding.remedy:
                fixed.setdefault(finding.remedy, []).append(finding.subject)
        return {command: ", ".join(subjects) for command, subjects in fixed.items()}

    @property
    def commands(self) -> dict[str, str]:
        """Commands worth knowing although nothing needs a fix: subject and what was found -> the command."""
        fixes = self.remedies
        return {f"{f.subject} ({f.found})": f.command for f in self.findings if f.command and f.command not in fixes}

    def about(self, subject: str) -> Finding:
        """The finding about one subject. Raises KeyError when it was not checked on this machine."""
        for finding in self.findings:
            if finding.subject == subject:
                return finding
        raise KeyError(f"{subject!r} was not checked here; {', '.join(f.subject for f in self.findings)} were.")

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; the fields are those of `Finding` and `Machine`."""
        findings = [vars(finding) for finding in self.findings]
        return {
            "state": self.state,
            "findings": findings,
            "machine": asdict(self.machine),
            "next_step": self.next_step,
        }

    def __repr__(self) -> str:
        lines = [f"{f.state:8} {f.subject}: {f.found}" for f in self.findings]
        fixes = [f"to fix {subjects}: {command}" for command, subjects in self.remedies.items()]
        others = [f"{what}: {command}" for what, command in self.commands.items()]
        return "\n".join([self.title, *lines, *fixes, *others, self.next_step])

    def _repr_html_(self) -> str:
        table = table_html(self.title, map(_row, self.findings), ("checked", "state", "found"))
        return f"{table}<p>{_with_code(self.next_step)}</p>"


def _row(finding: Finding) -> tuple[str, str, str]:
    """The cells of a row: the state is a word, and beside it a coloured bar that repeats it."""
    bar = f"border-left:0.3em solid {COLOURS[finding.state]};padding-left:0.4em;font-weight:600"
    remedy = f"<br>To fix it: {_code(html.escape(finding.remedy))}" if finding.remedy else ""
    remedy += f"<br>To build it again: {_code(html.escape(finding.command))}" if finding.command else ""
    state = f"<span style='{bar}'>{finding.state}</span>"
    return html.escape(finding.subject), state, html.escape(finding.found) + remedy


def _code(escaped: str) -> str:
    return f"<code style='overflow-wrap:anywhere'>{escaped}</code>"


def _with_code(text: str) -> str:
    """A sentence as HTML, with text between backticks as code."""
    return re.sub("`([^`]+)`", lambda match: _code(match[1]), html.escape(text))
