"""Rows of the page on error messages, from data/log_findings/: the message, what it means, what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable

from inferlab.log_reader.rules import GROUPS as TABLES
from inferlab.log_reader.rules import Rule, fix_for, rules

GROUPS = {group: [rule.id for rule in rules().values() if rule.any and rule.group == group] for group in TABLES}
"""The rules with a message by their tables."""
HEADS = ("message", "what it means", "what to do")
READ_FROM_THE_LOG = re.compile(r"\{\w+(?::[^{}]{0,10})?\}")
"""A part of a sentence that the log reader takes from the line."""


def message_rows(group: str) -> list[tuple[str, str, str]]:
    """One row for each rule of a group, by the columns HEADS, with llama.cpp's own names of the settings.

    Raises KeyError for an unknown group.
    """
    return rows(GROUPS[group])


def rows(names: Iterable[str]) -> list[tuple[str, str, str]]:
    """One row for each named rule. Raises KeyError for an unknown rule."""
    return [_row(rules()[name]) for name in names]


def _row(rule: Rule) -> tuple[str, str, str]:
    return f"`{rule.any[0].strip()}`", READ_FROM_THE_LOG.sub("…", rule.what), " ".join(fix_for(rule, "cli"))
