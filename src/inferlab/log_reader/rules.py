"""The tables of findings: what is looked for in a log, what it means, and the fix in each program's own words."""

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


GROUPS = ("file", "memory", "device", "request", "crash")
"""The tables of data/log_findings/, what matters most first; a page shows their messages by these groups."""


@dataclass(frozen=True)
class Rule:
    """One entry of data/log_findings/*.toml.

    group     the table in which it stands
    severity  fault: it failed; slow: it costs speed; note: worth knowing
    fatal     the load or the program ended by it, so that no advice on speed stands beside it
    any       strings that only this message has; the first that the last run contains is found, with its line
    pattern   read in that line; its named groups fill {braces} in `what`
    when      a function of log_reader/conditions/ in place of `any`
    unless    rules whose findings make this one needless; "fault": any other rule by which something failed
    what      what it means
    fix       what to do; <name> becomes the program's name for a setting of options.toml, and a sentence whose
              setting the program lacks is left out; so is one that begins with [unless …] where the log shows that
              (log_reader/advice.py). fix_python, fix_ollama, fix_lmstudio replace it for one program
    page      a document and a label in it; "" where the book does not treat the matter
    source    where the message is written: a file and line of the pinned llama.cpp (0c1e57098) or llama-cpp-python
              (0.3.36), a file of Ollama (v0.33), or a public thread
    """

    id: str
    group: str
    severity: str
    what: str
    fix: tuple[str, ...]
    fixes: dict[str, tuple[str, ...]]
    page: str
    source: tuple[str, ...]
    fatal: bool = False
    any: tuple[str, ...] = ()
    pattern: str = ""
    when: str = ""
    unless: tuple[str, ...] = ()


@cache
def rules() -> dict[str, Rule]:
    """Every rule by its name, in the order of the tables."""
    tables = {group: read_table(group, folder="log_findings") for group in GROUPS}
    return {name: _rule(name, group, entry) for group, table in tables.items() for name, entry in table.items()}


def _rule(name: str, group: str, entry: dict) -> Rule:
    words = {key: entry.get(key, "") for key in ("page", "pattern", "when")}
    lists: dict[str, Any] = {key: tuple(entry.get(key, ())) for key in ("any", "unless", "fix", "source")}
    fixes = {key.removeprefix("fix_"): tuple(value) for key, value in entry.items() if key.startswith("fix_")}
    fatal = entry.get("fatal", False)
    return Rule(name, group, entry["severity"], entry["what"], fixes=fixes, fatal=fatal, **lists, **words)


def findings_in(seen: Observed) -> tuple[LogFinding, ...]:
    """What the rules find in a log, what matters most first."""
    shown = {name: lines for name, rule in rules().items() if (lines := _match(rule, seen))}
    kept = [rules()[name] for name in shown if not set(rules()[name].unless) & (set(shown) | _faults(shown, name))]
    if any(rule.fatal for rule in kept):
        kept = [rule for rule in kept if rule.severity != "slow"]
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
