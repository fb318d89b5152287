"""Same answers: the numbers of the page, and the requests that were compared."""

from studies.same_answer import study
from studies.same_answer.measure import REQUESTS


def test_every_pair_repeats_its_request_or_changes_one_thing():
    """So that a difference has one cause."""
    assert all(len(one.more) + (one.beside > 0) <= 1 for one in REQUESTS.values())


def test_the_page_counts_what_the_record_has():
    """A repeated request repeats its answer; other threads change bits, and the count is the table's."""
    found = study.numbers()
    heads, rows = study.bits_table()
    row = {one[0]: dict(zip(heads, one, strict=True)) for one in rows}[study.THREADS]
    assert row["other bits"] == f"{found['threads_bits']} of {found['scored']}"
    assert row["from token"] == str(found["first"])
    assert found["again"] == 0 < found["threads_bits"]


def test_every_second_request_has_a_row():
    """And names the first place where an answer differs, or none."""
    rows = {one[0]: one[1:] for one in study.served_table()[1]}
    assert [*rows] == [*REQUESTS]
    assert all((place == "–") == count.startswith("0 of") for count, place in rows.values())
