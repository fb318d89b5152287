"""How long llama.cpp's threads spin: bounded in every process that is started here, unless the reader decides."""

import sys

import pytest

from inferlab.engine import libraries, openmp
from inferlab.engine.client import LlamaEngine
from inferlab.measurement.run import measure
from inferlab.model.find import tiny_model
from inferlab.settings import Settings

BOUND = {openmp.SPIN_COUNT: openmp.BOUNDED}


def test_an_environment_that_decides_nothing_gets_the_bound():
    """Its other variables stay, and it is not changed itself."""
    given = {"PATH": "/bin"}
    assert openmp.bounded(given) == {"PATH": "/bin", **BOUND}
    assert given == {"PATH": "/bin"}


@pytest.mark.parametrize("decided", [{"GOMP_SPINCOUNT": "0"}, {"OMP_WAIT_POLICY": "active"}])
def test_what_the_reader_decided_stays(decided):
    """A spin count or a policy of the environment is left as it is."""
    assert openmp.bounded(decided) == decided


def test_only_variables_that_the_library_reads_are_named():
    """LLVM's library does not read GNU's variable, and where none is linked nothing counts."""
    everything = {"GOMP_SPINCOUNT": "5", "KMP_BLOCKTIME": "1", "OMP_WAIT_POLICY": "passive", "PATH": "/bin"}
    assert openmp.waiting(everything, "libgomp") == {"GOMP_SPINCOUNT": "5", "OMP_WAIT_POLICY": "passive"}
    assert openmp.waiting(everything, "libomp") == {"KMP_BLOCKTIME": "1", "OMP_WAIT_POLICY": "passive"}
    assert openmp.waiting(everything, None) == {}


def environment_of(pid):
    """The environment that a process was started with."""
    with open(f"/proc/{pid}/environ", encoding="utf-8") as listed:
        return dict(line.split("=", 1) for line in listed.read().split("\0") if "=" in line)


@pytest.mark.engine
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_worker_is_started_with_the_bound(engine, monkeypatch):
    """And with what its engine or the reader sets in place of it."""
    monkeypatch.delenv(openmp.WAIT_POLICY, raising=False)
    monkeypatch.setenv(openmp.SPIN_COUNT, "77")
    other = LlamaEngine(environment={openmp.SPIN_COUNT: "5"})
    try:
        for started, expected in ((LlamaEngine(), "77"), (other, "5")):
            started.ready()
            assert environment_of(started.pid)[openmp.SPIN_COUNT] == expected
            started.close()
        monkeypatch.delenv(openmp.SPIN_COUNT)
        engine.close()
        engine.ready()
        assert environment_of(engine.pid)[openmp.SPIN_COUNT] == openmp.BOUNDED
    finally:
        other.close()


@pytest.mark.engine
@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_second_device_is_started_with_the_bound(device, monkeypatch):
    """The loopback device computes with OpenMP too."""
    assert environment_of(device.pid).items() >= BOUND.items()


@pytest.mark.engine
def test_a_record_and_its_badge_say_what_was_set(engine, monkeypatch):
    """As far as the linked OpenMP library reads it; without one the record has nothing to say."""
    for name in (openmp.SPIN_COUNT, openmp.WAIT_POLICY, openmp.BLOCK_TIME):
        monkeypatch.delenv(name, raising=False)
    engine.close()
    run = measure(tiny_model(), Settings(n_ctx=256), 8, 2, 1, engine=engine, progress=False)
    reads = openmp.library(libraries.folder()) == "libgomp"
    assert run.waiting == (BOUND if reads else {})
    assert (f"GOMP_SPINCOUNT={openmp.BOUNDED}" in run.badge) is reads
