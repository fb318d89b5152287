"""A lab's question is answered by this machine's run, or by a recorded one, and says which."""

from fakes import made_run

from inferlab.measurement.paired import Paired
from inferlab.measurement.recorded import measured_or_recorded
from inferlab.measurement.sweep import Point, Sweep


def refuse():
    raise AssertionError("the record is not read where it is not needed")


def test_a_run_that_answers_is_shown_as_it_is():
    """The record is not even read."""
    measured = [made_run()]
    assert measured_or_recorded(measured, True, refuse) == (measured, "Measured on this machine.")


def test_another_machines_record_names_its_processor():
    """Runs, pairs and sweeps alike."""
    run = made_run()
    for recorded in ([run], Paired((run,), (run,)), Sweep({"n_ctx": (512,)}, (Point({"n_ctx": 512}, run),))):
        shown, note = measured_or_recorded([], False, lambda found=recorded: found)
        assert shown is recorded
        assert note.endswith(f"recorded run of another: {run.machine.cpu}.")
