"""The tables of findings: what is looked for in a log, what it means, and the fix in each program's own words."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from inferlab.facts import read_table
from inferlab.log_reader.advice import read_by_runner, still_to_do
from inferlab.log_reader.conditions import CONDITIONS, Found
from inferlab.log_reader.conditions.afterwards import place_of, went_on, went_on_between
from inferlab.log_reader.conditions.crashes import crash
from inferlab.log_reader.conditions.memory import said_of_all
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.report import SEVERITIES, LogFinding
from inferlab.log_reader.runs import until_other_models
from inferlab.log_reader.text import Line
from inferlab.options.names import options

SETTING = re.compile(r"<(\w+)>")
TWICE = re.compile(r"(`[^`]+`), \1")
"""Two settings that are one in a program, such as the types of keys and values in Ollama."""


GROUPS = ("file", "start", "memory", "device", "request", "reuse", "crash")
"""The tables of data/log_findings/, what matters most first; a page shows their messages by these groups."""


@dataclass(frozen=True)
class Rule:
    """One entry of data/log_findings/*.toml.

    group     the table in which it stands
    severity  fault: it failed; slow: it costs speed; note: worth knowing
    fatal     the load or the program ended by it, so that no advice on speed stands beside it
    resort    how little it knows of the cause, from 0: it gives way to a fatal rule of a lower number about one failure
    any       strings that only this message has; the first that the last run contains is found, with its line
    pattern   read in that line; its named groups fill {braces} in `what`
    when      a function of log_reader/conditions/ that decides in place of `any`, which then only lists the messages
    unless    rules whose findings make this one needless; "fault": any other rule by which something failed
    what      what it means
    overcome  what it means where the program went on after it; it is a note then, and `overcome_fix` is what to do;
              a fatal rule without it then says nothing
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
    resort: int = 0
    any: tuple[str, ...] = ()
    pattern: str = ""
    forms: tuple[str, ...] = ()
    ends: bool = False
    when: str = ""
    unless: tuple[str, ...] = ()
    overcome: str = ""
    overcome_fix: tuple[str, ...] = ()


@cache
def rules() -> dict[str, Rule]:
    """Every rule by its name, in the order of the tables."""
    tables = {group: read_table(group, folder="log_findings") for group in GROUPS}
    return {name: _rule(name, group, entry) for group, table in tables.items() for name, entry in table.items()}


LISTS = ("any", "forms", "unless", "fix", "overcome_fix", "source")


def _rule(name: str, group: str, entry: dict) -> Rule:
    words: dict[str, Any] = {key: entry.get(key, "") for key in ("page", "pattern", "when", "overcome")}
    lists: dict[str, Any] = {key: tuple(entry.get(key, ())) for key in LISTS}
    marks: dict[str, Any] = {"fatal": entry.get("fatal", False), "ends": entry.get("ends", False)}
    fixes = {key.removeprefix("fix_"): tuple(value) for key, value in entry.items() if key.startswith("fix_")}
    resort = entry.get("resort", 0)
    return Rule(name, group, entry["severity"], entry["what"], fixes=fixes, resort=resort, **words, **lists, **marks)


Shown = dict[str, Found]
"""What was found, by the names of the rules."""


def findings_in(seen: Observed) -> tuple[LogFinding, ...]:
    """What the rules find in a log, what matters most first; of Ollama, also in the loads of other models."""
    own = _of_the_last_load(seen)
    logs = until_other_models(seen.log) if seen.program.key == "ollama" else []
    others = [finding for log in logs for finding in _of_another_model(Observed(log))]
    first = {finding.id: finding for finding in [*own, *others][::-1]}
    return tuple(sorted([*own, *(one for one in others if first[one.id] is one)], key=_weight))


OF_A_LOAD = ("file", "memory")
ALSO_OF_A_LOAD = ("layers-on-cpu", "few-layers-asked", "experts-on-cpu", "no-layer-asked", "cache-in-ram")


def _of_another_model(seen: Observed) -> list[LogFinding]:
    """What failed or is slow in the load of a model that was not the last one."""
    name = seen.model.name or seen.model.architecture
    which = f"Another model of this log{f', {name}' if name else ''}: "
    found = (one for one in _of_the_last_load(seen) if one.severity != "note")
    of_a_load = (one for one in found if rules()[one.id].group in OF_A_LOAD or one.id in ALSO_OF_A_LOAD)
    return [replace(one, what=f"{which}{one.what}") for one in of_a_load]


def _of_the_last_load(seen: Observed) -> tuple[LogFinding, ...]:
    shown = {name: lines for name, rule in rules().items() if (lines := _match(rule, seen))}
    kept = [name for name in shown if not _needless(name, shown, seen)]
    if any(rules()[name].fatal and not shown[name].overcome for name in kept):
        kept = [name for name in kept if rules()[name].severity != "slow"]
    findings = [_finding(rules()[name], shown[name], seen) for name in kept]
    return tuple(sorted(findings, key=_weight))


def _weight(finding: LogFinding) -> tuple[int, bool]:
    """What ended the program comes before what it survived."""
    return SEVERITIES.index(finding.severity), not rules()[finding.id].fatal


def _needless(name: str, shown: Shown, seen: Observed) -> bool:
    """Whether another rule makes a finding needless, or knows more of its cause."""
    others = {other: found for other, found in shown.items() if other != name}
    if set(rules()[name].unless) & (set(others) | _faults(others)):
        return True
    return any(_explains(rules()[other], found, rules()[name], shown[name], seen) for other, found in others.items())


def _faults(shown: Shown) -> set[str]:
    """{"fault"} where something failed."""
    return {"fault"} & {rules()[name].severity for name, found in shown.items() if not found.overcome}


def _explains(cause: Rule, of_cause: Found, rule: Rule, of_rule: Found, seen: Observed) -> bool:
    """Whether a rule that knows more rests on the same line, or on one of the same failure."""
    if _resort(cause, of_cause) >= _resort(rule, of_rule):
        return False
    if set(of_cause.lines) & set(of_rule.lines):
        return True
    if cause.severity != "fault":
        return False
    if of_cause.overcome and not of_rule.overcome:
        return False
    return cause.fatal and not _worked_between(of_cause.lines, of_rule.lines, seen)


def _resort(rule: Rule, found: Found) -> int:
    return rule.resort if found.resort is None else found.resort


def _worked_between(one: tuple[Line, ...], other: tuple[Line, ...], seen: Observed) -> bool:
    """Whether the program loaded a model or finished a request between two findings."""
    numbers = sorted((one[-1].number, other[-1].number))
    return went_on_between(seen.log, *(place_of(seen.log, number) for number in numbers))


def message_in(seen: Observed) -> bool:
    """Whether the text has any message of the table, so that one pasted line is enough."""
    return any(seen.log.has(needle) for rule in rules().values() if not rule.forms for needle in rule.any)


def _match(rule: Rule, seen: Observed) -> Found | None:
    if rule.forms:
        found = crash(seen, rule.any, rule.forms, rule.ends)
        return replace(found, values=found.values | {"of_all": said_of_all(seen)}) if found else None
    found = CONDITIONS[rule.when](seen) if rule.when else _first(rule, seen)
    if not found or found.overcome or not (rule.overcome or rule.fatal):
        return found
    overcome = went_on(seen.log, place_of(seen.log, found.lines[-1].number))
    return replace(found, overcome=overcome) if rule.overcome or not overcome else None


def _first(rule: Rule, seen: Observed) -> Found | None:
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
    what = (rule.overcome if shown.overcome else rule.what).format(**shown.values)
    severity = "note" if shown.overcome else rule.severity
    fix = _fix_afterwards(rule, seen) if shown.overcome else fix_for(rule, seen.program.key, seen)
    return LogFinding(rule.id, severity, what, shown.lines, fix, page, anchor, rule.source)


NOTHING_TO_DO = ("Nothing needs to be done while it goes on working.",)


def _fix_afterwards(rule: Rule, seen: Observed) -> tuple[str, ...]:
    """What to do about a failure that was overcome."""
    named = (_named(sentence, seen.program.key) for sentence in still_to_do(rule.overcome_fix, seen))
    return read_by_runner([sentence for sentence in named if sentence], seen) or NOTHING_TO_DO


def fix_for(rule: Rule, program: str, seen: Observed | None = None) -> tuple[str, ...]:
    """The sentences of a fix with a program's names of the settings.

    Those whose setting the program lacks are left out, and those that the log shows as done.
    """
    sentences = still_to_do(rule.fixes.get(program, rule.fix), seen)
    named = (_named(sentence, program) for sentence in sentences)
    told = tuple(sentence for sentence in named if sentence)
    return (read_by_runner(told, seen) if seen else told) or told


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
