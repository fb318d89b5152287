"""The table of findings: what is looked for in a log, what it means, and the fix in each program's own words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from inferlab.facts import read_table
from inferlab.log_reader.advice import still_to_do
from inferlab.log_reader.conditions import CONDITIONS, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.report import SEVERITIES, LogFinding
from inferlab.log_reader.text import Line
from inferlab.options.names import options

SETTING = re.compile(r"<(\w+)>")
TWICE = re.compile(r"(`[^`]+`), \1")
"""Two settings that are one in a program, such as the types of keys and values in Ollama."""


@dataclass(frozen=True)
class Rule:
    """One entry of data/facts/log_findings.toml; its fields are explained there."""

    id: str
    severity: str
    what: str
    fix: tuple[str, ...]
    fixes: dict[str, tuple[str, ...]]
    page: str
    source: tuple[str, ...]
    any: tuple[str, ...] = ()
    pattern: str = ""
    when: str = ""
    unless: tuple[str, ...] = ()


@cache
def rules() -> dict[str, Rule]:
    """Every rule by its name, in the order of the table."""
    return {name: _rule(name, entry) for name, entry in read_table("log_findings").items()}


def _rule(name: str, entry: dict) -> Rule:
    words = {key: entry.get(key, "") for key in ("page", "pattern", "when")}
    lists: dict[str, Any] = {key: tuple(entry.get(key, ())) for key in ("any", "unless", "fix", "source")}
    fixes = {key.removeprefix("fix_"): tuple(value) for key, value in entry.items() if key.startswith("fix_")}
    return Rule(name, entry["severity"], entry["what"], fixes=fixes, **lists, **words)


def findings_in(seen: Observed) -> tuple[LogFinding, ...]:
    """What the rules find in a log, what matters most first."""
    shown = {name: lines for name, rule in rules().items() if (lines := _match(rule, seen))}
    kept = [rules()[name] for name in shown if not set(rules()[name].unless) & (set(shown) | _faults(shown, name))]
    kept.sort(key=lambda rule: SEVERITIES.index(rule.severity))
    return tuple(_finding(rule, shown[rule.id], seen) for rule in kept)


def _faults(names: Iterable[str], but: str) -> set[str]:
    """{"fault"} where something failed by another rule."""
    return {"fault"} & {rules()[name].severity for name in names if name != but}


def message_in(seen: Observed) -> bool:
    """Whether the text has any message of the table, so that one pasted line is enough."""
    return any(seen.log.has(needle) for rule in rules().values() for needle in rule.any)


def _match(rule: Rule, seen: Observed) -> Found | None:
    if rule.when:
        return CONDITIONS[rule.when](seen)
    for needle in rule.any:
        if line := seen.first(needle):
            return _read(rule, line)
    return None


def _read(rule: Rule, line: Line) -> Found | None:
    if not rule.pattern:
        return Found((line,))
    match = re.search(rule.pattern, line.text)
    return Found((line,), {name: value or "" for name, value in match.groupdict().items()}) if match else None


def _finding(rule: Rule, shown: Found, seen: Observed) -> LogFinding:
    page, _, anchor = rule.page.partition("#")
    what = rule.what.format(**shown.values)
    fix = fix_for(rule, seen.program.key, seen)
    return LogFinding(rule.id, rule.severity, what, shown.lines, fix, page, anchor, rule.source)


def fix_for(rule: Rule, program: str, seen: Observed | None = None) -> tuple[str, ...]:
    """The sentences of a fix with a program's names of the settings.

    Those whose setting the program lacks are left out, and those that the log shows as done.
    """
    sentences = still_to_do(rule.fixes.get(program, rule.fix), seen)
    named = (_named(sentence, program) for sentence in sentences)
    return tuple(sentence for sentence in named if sentence)


def _named(sentence: str, program: str) -> str:
    names = {name: name_in(name, program) for name in SETTING.findall(sentence)}
    if not all(names.values()):
        return ""
    return TWICE.sub(r"\1", SETTING.sub(lambda match: f"`{names[match[1]]}`", sentence))


def name_in(setting: str, program: str) -> str:
    """The name of a setting in a program: of LM Studio its title, of Ollama the variable that its server inherits."""
    option = options()[setting]
    name = getattr(option, program) or (option.env if program == "ollama" else "")
    return name.split(", ")[0]
