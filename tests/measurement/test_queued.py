"""Measurements in a queue: which functions wait, what a record keeps of it, and what a killed engine costs."""

import ast
import os
import signal
import threading
from pathlib import Path

import pytest
from fakes import ScriptedEngine, made_run

from inferlab import measurement
from inferlab.engine import measurement_queue
from inferlab.engine.measurement_queue import Turn
from inferlab.errors import EngineCrashed
from inferlab.measurement.queued import MOST_INTERRUPTIONS
from inferlab.measurement.run import measure
from inferlab.model.find import tiny_model
from inferlab.records import load, save

PACKAGE = Path(measurement.__file__).parent


@pytest.fixture
def queue(tmp_path, monkeypatch):
    """A queue in a folder of its own."""
    monkeypatch.setenv(measurement_queue.VARIABLE, str(tmp_path / "queue"))
    return tmp_path / "queue"


def measured(engine):
    return measure(tiny_model(), n_prompt=8, n_gen=3, repeats=2, engine=engine, progress=False)


def test_every_measurement_that_reserves_an_engine_is_queued():
    """Whoever adds a measurement adds `queued` to it, so that a killed engine costs nobody a result."""
    found = {True: [], False: []}
    for path in PACKAGE.glob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            public = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if public and ".exclusive()" in ast.unparse(node):
                decorated = "queued" in {ast.unparse(one) for one in node.decorator_list}
                found[decorated].append(f"{path.stem}.{node.name}")
    apart = {"memory.reserved_bytes", "tune.tune"}  # the first times nothing; a search for minutes would hold the queue
    assert set(found[False]) == apart
    assert "run.measure" in found[True]


def test_a_record_keeps_its_turn(queue, tmp_path):
    """A measurement in a queue says how long it waited and whether it was quiet; its badge says so too."""
    run = measured(ScriptedEngine())
    assert (run.turn.n_ahead, run.turn.n_interrupted) == (0, 0)
    kept = made_run(turn=Turn(3, 1.5, 2.0, 0.7))
    assert kept.badge.split("; kernels")[0].endswith("; disturbed: others used 0.7 processors")
    save(kept, tmp_path / "run.json")
    assert load(tmp_path / "run.json").turn == kept.turn


def test_without_a_queue_a_record_says_nothing_of_it(tmp_path, monkeypatch):
    """Neither the record nor its badge changes where there is no queue."""
    monkeypatch.delenv(measurement_queue.VARIABLE, raising=False)
    run = measured(ScriptedEngine())
    assert run.turn is None
    assert '"turn"' not in save(run, tmp_path / "run.json").read_text()


def test_an_interrupted_measurement_is_queued_again(queue, capsys):
    """A killed engine costs the caller time and no result, and the record and a line say that it happened."""
    run = measured(ScriptedEngine(fails=EngineCrashed("killed", killed=True)))
    assert (run.turn.n_interrupted, len(run.passes)) == (1, 2)
    assert "queued again" in capsys.readouterr().err
    assert measured(ScriptedEngine()).turn.n_interrupted == 0


def test_who_waits_comes_before_a_repeated_measurement(queue):
    """The place is given up, so that nobody behind waits twice as long."""
    numbers = []

    class Noting(ScriptedEngine):
        def generate(self, prompt, n_gen):
            numbers.extend(int(path.stem) for path in queue.glob("*.place"))
            return super().generate(prompt, n_gen)

    behind = []

    def interrupted():
        behind.append(measurement_queue.Place(queue))
        threading.Timer(0.1, behind[0].leave).start()
        return EngineCrashed("killed", killed=True)

    engine = Noting()
    engine.fails, original = True, engine.generate

    def first(prompt, n_gen):
        engine.fails, engine.generate = None, original
        raise interrupted()

    engine.generate = first
    measured(engine)
    assert min(numbers) > behind[0].number


@pytest.mark.parametrize("killed", [True, False])
def test_what_fails_again_or_by_itself_is_an_error(queue, killed):
    """The third kill and llama.cpp's own crash raise EngineCrashed, and the place in the queue is free."""

    class Failing(ScriptedEngine):
        n_calls = 0

        def generate(self, prompt, n_gen):
            self.n_calls += 1
            raise EngineCrashed("ended", killed=killed)

    engine = Failing()
    with pytest.raises(EngineCrashed):
        measured(engine)
    assert engine.n_calls == (MOST_INTERRUPTIONS if killed else 1)
    assert list(queue.glob("*.place")) == []


def test_a_killed_llama_cpp_is_started_again(queue, engine):
    """SIGKILL from outside is told apart from a crash, and the measurement is complete in the end."""
    original = engine.generate

    def killed(*asked):
        engine.generate = original
        os.kill(engine.pid, signal.SIGKILL)
        return original(*asked)

    engine.generate = killed
    run = measure(tiny_model(), n_prompt=64, n_gen=16, repeats=3, engine=engine, progress=False)
    assert (run.turn.n_interrupted, len(run.passes)) == (1, 3)
