"""The rows of the page on error messages are complete and without gaps."""

from __future__ import annotations

import pytest

from handbook.error_messages import GROUPS, HEADS, message_rows
from inferlab.log_reader.rules import rules

NAMES = [name for names in GROUPS.values() for name in names]


def test_every_rule_with_a_message_stands_in_one_group():
    assert sorted(NAMES) == sorted(name for name, rule in rules().items() if rule.any)


@pytest.mark.parametrize("group", GROUPS)
def test_a_row_has_a_message_a_meaning_and_a_fix_without_gaps(group):
    rows = message_rows(group)
    assert [len(row) for row in rows] == [len(HEADS)] * len(GROUPS[group])
    for row in rows:
        assert all(row)
        assert not set("{}<>") & set("".join(row[1:])), row


def test_an_unknown_group_is_refused():
    with pytest.raises(KeyError, match="weather"):
        message_rows("weather")
