"""The load test's own arithmetic: what is counted of a lesson, and the file that it writes."""

import json

from simulated_students import Student, result, write


def turn(waited=0.0, quiet=True, n_interrupted=0):
    counts = {"n_ahead": 1, "n_interrupted": n_interrupted}
    values = {**counts, "waited_seconds": waited, "quiet": quiet, "others": 0.05 if quiet else 0.5}
    return {"cell": "run", "turn": values}


LESSON = [
    Student("ada", 5.0, 60.0, 30, 30, 30, "", [turn(), *2 * [turn(4.0, quiet=False, n_interrupted=1)]]),
    Student("ben", 7.0, 80.0, 30, 30, 30, "", [turn(2.0)]),
    Student("cleo", None, None, 9, 4, 4, "HTTPError: 503"),
]
KILLS = [{"seconds": 9.0, "student": "ada", "busiest": True}]


def test_who_did_not_finish_is_counted_as_such():
    """Students who finished, labs that were saved, and the reason of the one who did not."""
    summary = result(LESSON, KILLS, 2, 90.0, 10**9)["summary"]
    assert (summary["students"], summary["finished"], summary["cells_run"], summary["cells_saved"]) == (3, 2, 64, 64)
    assert summary["problems"] == {"cleo": "HTTPError: 503"}
    assert (summary["ready_seconds_median"], summary["finished_seconds_median"]) == (6.0, 70.0)
    assert (summary["kills"], summary["kills_wanted"]) == (1, 2)


def test_every_measurement_is_counted_by_its_label():
    """Each record counts with its label; measurements of one turn waited once, and were queued again together."""
    summary = result(LESSON, KILLS, 2, 90.0, 10**9)["summary"]
    assert (summary["measurements"], summary["quiet"], summary["disturbed"]) == (4, 2, 2)
    assert (summary["turns"], summary["queued_again"], summary["others_median"]) == (3, 1, 0.05)
    assert (summary["waited_seconds_median"], summary["waited_seconds_most"]) == (2.0, 4.0)


def test_the_file_is_json_with_a_line_for_each_student(tmp_path):
    """What is read back is what was found."""
    report = result(LESSON, KILLS, 2, 90.0, 10**9)
    write(report, tmp_path / "room" / "found.json")
    text = (tmp_path / "room" / "found.json").read_text()
    assert json.loads(text) == report
    assert sum(line.startswith('{"name"') for line in text.splitlines()) == 3


def test_a_lesson_without_a_measurement_has_no_waiting_time():
    """Unknown is None, and not 0."""
    assert result([LESSON[2]], [], 0, 1.0, 0)["summary"]["waited_seconds_median"] is None
