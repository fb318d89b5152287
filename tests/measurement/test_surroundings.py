"""Surroundings of an engine: its cores, its priority, its threads' cores, and a busy neighbor."""

import os
import sys
import time
from pathlib import Path

import pytest

from inferlab.machine import usable_cpu_numbers
from inferlab.measurement.surroundings import Surrounding
from inferlab.model.find import tiny_model
from inferlab.settings import Settings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="taskset, nice and /proc are Linux's")


def cores_of_threads(pid):
    """The list of allowed processors of every thread of a process."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/status")]
    return [text.partition("Cpus_allowed_list:")[2].split()[0] for text in texts]


def seen(pid):
    """The nice value of a process, its cores, and whether it has computed for half a second: a start takes less."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11]
    return os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), int(ticks) > os.sysconf("SC_CLK_TCK") / 2


def test_a_neighbor_keeps_a_core_busy_with_its_priority_and_ends():
    """It has the nice value and the cores that were asked for, computes, and is gone after the block."""
    core = usable_cpu_numbers()[-1]
    expected, until = (7, {core}, True), time.monotonic() + 60
    with Surrounding(neighbor_nice=7, neighbor_cores=(core,)).neighbor() as pid:
        while seen(pid) != expected and time.monotonic() < until:
            time.sleep(0.01)
        assert seen(pid) == expected
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.skipif(not Path("/proc/self/autogroup").exists(), reason="this kernel has no autogroups")
def test_the_session_of_a_neighbor_gets_a_nice_value():
    """The neighbor has a session of its own, so that no other process is slowed."""
    own = Path("/proc/self/autogroup").read_text()
    with Surrounding(neighbor_nice=0, group_nice=9).neighbor() as pid:
        assert Path(f"/proc/{pid}/autogroup").read_text().split()[-1] == "9"
    assert Path("/proc/self/autogroup").read_text() == own


@pytest.mark.engine
@pytest.mark.skipif(len(usable_cpu_numbers()) < 2, reason="needs two cores")
def test_bound_threads_have_a_core_each():
    """Of an engine with two threads, two cores are the only one of some thread; unbound, none is."""
    for bound in (True, False):
        engine = Surrounding(bound=bound).engine()
        try:
            engine.open(tiny_model(), Settings(n_ctx=256, n_threads=2, n_threads_batch=2))
            engine.generate([1, 2, 3], 2)
            alone = {cores for cores in cores_of_threads(engine.pid) if cores.isdigit()}
        finally:
            engine.close()
        assert len(alone) == (2 if bound else 0)


@pytest.mark.engine
def test_an_engine_keeps_to_its_cores_and_its_priority():
    """taskset and nice start the worker, and every thread inherits from it."""
    core = usable_cpu_numbers()[0]
    engine = Surrounding(cores=(core,), nice=3).engine()
    try:
        engine.ready()
        assert set(cores_of_threads(engine.pid)) == {str(core)}
        assert os.getpriority(os.PRIO_PROCESS, engine.pid) == 3
    finally:
        engine.close()
