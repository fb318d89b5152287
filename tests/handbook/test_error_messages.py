"""The rows of the page on error messages are complete and without gaps."""

from __future__ import annotations

import pytest

from handbook.error_messages import GROUPS, HEADS, message_rows, without_group
from inferlab.log_reader.rules import rules

NAMES = [name for names in GROUPS.values() for name in names]


def test_every_rule_with_a_message_stands_in_one_group():
    assert without_group() == set()
    assert len(NAMES) == len(set(NAMES))
    assert all(rules()[name].any for name in NAMES)


@pytest.mark.parametrize("group", GROUPS)
def test_a_row_has_a_message_a_meaning_and_a_fix_without_gaps(group):
    rows = message_rows(group)
    assert [len(row) for row in rows] == [len(HEADS)] * len(GROUPS[group])
    for row in rows:
        assert all(row)
        assert not set("{}<>") & set("".join(row[1:])), row


def test_a_rule_without_a_group_is_noticed(monkeypatch):
    monkeypatch.setitem(GROUPS, "file", GROUPS["file"][1:])
    assert without_group() == {"html-page"}


def test_an_unknown_group_is_refused():
    with pytest.raises(KeyError, match="weather"):
        message_rows("weather")
