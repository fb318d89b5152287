"""The list of public logs and its counts."""

import pytest

from studies.public_logs.study import ASIDE, HEADS, SEEN, VERDICTS, half, numbers, rows, source_rows, trials

TOPICS = {"crash", "out of memory", "start failure", "context", "slow", "healthy", "other"}


def test_every_log_has_a_public_source_and_a_verdict():
    """Address, date, half, topic and verdict are of the forms that the list promises."""
    for trial in trials():
        assert trial.url.startswith("https://")
        assert trial.date[:4].isdigit()
        assert trial.half in (ASIDE, SEEN)
        assert trial.kind in ("whole", "part")
        assert trial.topic in TOPICS
        assert trial.verdict in VERDICTS
        assert trial.before in (VERDICTS if trial.half == ASIDE else ("",))


def test_half_of_at_least_sixty_logs_was_set_aside():
    """The half that no rule has seen is as large as the other, but for one."""
    assert len(trials()) >= 60
    assert abs(len(half(ASIDE)) - len(half(SEEN))) <= 1


@pytest.mark.parametrize("name", [ASIDE, SEEN])
def test_the_counts_of_a_table_add_up(name):
    """Each row's verdicts are its logs, and the last row sums the others."""
    *programs, everything = rows(name)
    assert all(row[2] == sum(row[3:]) for row in [*programs, everything])
    assert [sum(row[column] for row in programs) for column in range(2, len(HEADS))] == list(everything[2:])


def test_the_numbers_follow_from_the_list():
    """Percentages of right answers, and years in order."""
    found = numbers()
    assert found["right_aside"] == 100 * sum(trial.verdict == "right" for trial in half(ASIDE)) / found["n_aside"]
    assert found["first_year"] <= found["last_year"]
    assert len(source_rows()) == found["n_logs"]
