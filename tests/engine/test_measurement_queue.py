"""The queue of measurements: who is first, who is dead, what is shown, and what a turn records."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fakes import TurnedClock

from inferlab import progress
from inferlab.engine import cpu_time, measurement_queue
from inferlab.engine.client import LlamaEngine
from inferlab.engine.cpu_time import machine_busy_seconds, own_seconds
from inferlab.engine.measurement_queue import Place, Turn
from inferlab.errors import QueueUnavailable

MEASURES = """
import sys, time
from pathlib import Path
from inferlab.engine import cpu_time, measurement_queue
with measurement_queue.turn():
    with open("measured.txt", "a") as file:
        file.write(sys.argv[1] + " began\\n")
    time.sleep(float(sys.argv[2]))
    with open("measured.txt", "a") as file:
        file.write(sys.argv[1] + " ended\\n")
"""
SPINS = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nprint()\ninput()"


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A queue in a folder of its own."""
    monkeypatch.setenv(measurement_queue.VARIABLE, str(tmp_path / "queue"))
    return tmp_path / "queue"


class Students:
    """Processes that measure one after another in a queue."""

    def __init__(self, folder: Path, queue: Path) -> None:
        self.folder, self.queue, self.children = folder, queue, []

    def come(self, name: str, seconds: float = 0.1) -> subprocess.Popen:
        """Start a process that measures, and wait until it has its place."""
        n_before = len(list(self.queue.glob("*.place")))
        child = subprocess.Popen([sys.executable, "-c", MEASURES, name, str(seconds)], cwd=self.folder)
        self.children.append(child)
        wait_until(lambda: child.poll() is not None or len(list(self.queue.glob("*.place"))) > n_before)
        return child

    def leave(self) -> list[str]:
        """Wait for all of them; what they wrote."""
        for child in self.children:
            child.wait(60)
        return (self.folder / "measured.txt").read_text().splitlines()


@pytest.fixture
def students(tmp_path, queue):
    students = Students(tmp_path, queue)
    yield students
    for child in students.children:
        child.kill()
        child.wait()


def wait_until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)


# --- who is first -----------------------------------------------------------------------------


def test_without_the_variable_there_is_no_queue(monkeypatch, tmp_path):
    """Nothing waits and nothing is recorded; an engine is reserved by its own lock alone."""
    monkeypatch.delenv(measurement_queue.VARIABLE, raising=False)
    engine = LlamaEngine()
    with measurement_queue.turn():
        assert measurement_queue.present_turn() is None
    assert engine.exclusive() is engine._lock


def test_measurements_come_one_after_another_in_the_order_of_arrival(students, queue):
    """While one measures, the others wait, and the first who came is the next."""
    with measurement_queue.turn():
        for name in ("one", "two", "three"):
            students.come(name)
        assert not (students.folder / "measured.txt").exists()
    order = [f"{name} {what}" for name in ("one", "two", "three") for what in ("began", "ended")]
    assert students.leave() == order
    assert list(queue.glob("*.place")) == []


def test_nobody_waits_for_the_dead(students):
    """A process that is killed while it measures or waits has no place in the queue any more."""
    measuring = students.come("killed", 600)
    wait_until((students.folder / "measured.txt").exists)
    waiting, _ = students.come("killed too"), students.come("alive")
    waiting.kill()
    measuring.kill()
    assert students.leave() == ["killed began", "alive began", "alive ended"]


def test_a_cheap_look_sees_when_it_is_ones_turn(queue):
    """Who waits looks at the foremost place alone; the dead behind it count until they are the foremost."""
    queue.mkdir()
    (queue / "1.place").touch()  # as a killed process leaves it
    places = [measurement_queue.Place(queue) for _ in range(3)]
    assert [place.n_before() for place in places] == [0, 1, 2]
    (queue / f"{places[1].number}.place").rename(queue / "moved")
    (queue / f"{places[1].number}.place").touch()
    assert (places[2].n_before(), places[2].n_ahead()) == (2, 1)
    places[0].leave()
    assert places[2].n_before() == 0


def test_one_process_has_one_turn(queue):
    """A measurement inside another, of another engine or in another thread, does not wait for the outer one."""
    inside = []

    def measure():
        with measurement_queue.turn():
            inside.append(len(list(queue.glob("*.place"))))

    with measurement_queue.turn():
        measure()
        thread = threading.Thread(target=measure)
        thread.start()
        thread.join(60)
    assert inside == [1, 1]
    assert list(queue.glob("*.place")) == []


def test_a_block_that_computes_nothing_does_not_wait(queue):
    """A tokenizer reserves the engine and waits for nobody; the first computation of a block takes its turn."""
    with LlamaEngine().exclusive():
        assert not queue.exists()
        with measurement_queue.turn():
            pass
        assert len(list(queue.glob("*.place"))) == 1
    assert list(queue.glob("*.place")) == []


def test_an_interrupt_gives_the_place_up(queue, monkeypatch):
    """Who stops waiting is no longer counted by those behind."""
    other = Place(queue)
    monkeypatch.setattr(time, "sleep", lambda seconds: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt), measurement_queue.turn():
        pass
    assert Place(queue).n_ahead() == 1
    other.leave()


def test_a_folder_that_cannot_be_used_is_an_error(monkeypatch, tmp_path):
    """The message names the variable and the folder, instead of measuring out of turn."""
    (tmp_path / "file").touch()
    monkeypatch.setenv(measurement_queue.VARIABLE, str(tmp_path / "file" / "queue"))
    with pytest.raises(QueueUnavailable, match=r"INFERLAB_QUEUE names .*file/queue"), measurement_queue.turn():
        pass


# --- what is shown ----------------------------------------------------------------------------


def test_a_waiting_measurement_says_how_many_are_before_it(queue, monkeypatch):
    """The number falls as the others leave, and the line goes when the turn has come."""
    monkeypatch.setattr(measurement_queue, "LOOK_SECONDS", 0.01)
    others, lines = [Place(queue) for _ in range(3)], []

    def show(line):
        lines.append(line)
        if others:
            others.pop(0).leave()

    with progress.shown_by(show), measurement_queue.turn():
        turn = measurement_queue.present_turn()
    assert lines == [
        "waiting for 3 measurements before this one",
        "waiting for 2 measurements before this one",
        "waiting for 1 measurement before this one",
        "",
    ]
    assert (turn.n_ahead, turn.waited_seconds > 0) == (3, True)


# --- quiet or disturbed -----------------------------------------------------------------------


def test_a_turn_says_whether_others_computed():
    """At most a tenth of a processor is quiet."""
    assert [Turn(0, 0.0, 1.0, others).quiet for others in (0.1, 0.11)] == [True, False]
    assert Turn(0, 0.0, 1.0, 0.02).label == "quiet"
    assert Turn(0, 0.0, 1.0, 1.234).label == "disturbed: others used 1.2 processors"


def test_a_short_turn_is_looked_at_long_enough(queue, monkeypatch):
    """The system counts in hundredths of a second, so no turn is judged by less than thirty of them."""
    clock = TurnedClock()
    for module in (measurement_queue, cpu_time):
        monkeypatch.setattr(module, "time", clock)
    with measurement_queue.turn():
        turn = measurement_queue.present_turn()
    assert turn.seconds == 0.3


def test_the_time_of_a_child_is_this_process_own():
    """What an engine computes is not another's, while it lives and after it ended."""
    before = own_seconds()
    child = subprocess.Popen([sys.executable, "-c", SPINS], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    alive = own_seconds()
    child.communicate(b"\n")
    assert alive - before > 0.35
    assert own_seconds() > alive - 0.05  # counted in hundredths, rounded down for each process


@pytest.mark.skipif(sys.platform != "linux", reason="the child leaves this process's tree by a double fork")
def test_what_another_process_computes_disturbs(queue):
    """A process that this one did not start keeps a processor busy, and the turn says so."""
    orphan = f"import os\nif os.fork() == 0:\n    os.setsid()\n    exec({SPINS.replace('input()', '')!r})"
    with measurement_queue.turn():
        subprocess.run([sys.executable, "-c", orphan], check=True)
        wait_until(lambda: measurement_queue.present_turn().seconds > 0.8)
        turn = measurement_queue.present_turn()
    assert turn.quiet is False


def test_the_machine_counts_what_this_process_computes():
    """The counter of the whole machine rises at least as fast as this process computes, within its resolution."""
    before, end = machine_busy_seconds(), time.process_time() + 0.3
    while time.process_time() < end:
        pass
    assert machine_busy_seconds() - before > 0.3 - 0.02 * (os.cpu_count() or 1)
