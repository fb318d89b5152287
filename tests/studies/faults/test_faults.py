"""Fault injection: each fault changes one thing, and the first request waits for the load."""

import os
import subprocess
from types import SimpleNamespace

import pytest
from marks import needs_rpc

from inferlab.errors import InvalidSettings
from inferlab.machine import physical_cores
from inferlab.measurement import page_cache
from inferlab.model.find import tiny_model
from inferlab.prediction.diagnosis import RelativeSigns
from studies.faults import faults
from studies.faults.faults import Severity


class Device:
    """Stands in for a loopback device where only its settings are asked for."""

    def settings(self, base):
        return base.but(rpc_servers=("127.0.0.1:1",), n_threads=1)


HEALTHY = faults._settings("healthy", Severity(), Device())


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("cold page cache", {}),
        ("one thread", {}),
        ("cache on the far side", {"offload_kqv": False}),
        ("wrong cache type", {"type_k": "q4_0", "type_v": "q4_0"}),
        ("throttled link", {}),
        ("competing load", {}),
    ],
)
def test_a_fault_changes_one_thing(fault, changes):
    """Against a healthy engine, two faults change settings of the context and the others none."""
    assert faults._settings(fault, Severity(kv_type="q4_0"), Device()) == HEALTHY.but(**changes)


@pytest.mark.parametrize(("fault", "asked"), [("one thread", (None, 1)), ("throttled link", (0.3, 7))])
def test_a_fault_of_the_device_is_put_into_the_device(monkeypatch, fault, asked):
    """One thread is a device with one thread; a throttled link is a device behind one; the rest have every core."""
    monkeypatch.setattr(faults, "physical_cores", lambda: 7)
    monkeypatch.setattr(faults, "loopback_device", lambda rate, n_threads: (rate, n_threads))
    assert faults._device(fault, Severity(gigabytes_per_second=0.3)) == asked
    assert faults._device("healthy", Severity(gigabytes_per_second=0.3)) == (None, 7)


def test_competing_processes_end_with_the_observation():
    """Competing processes run during the block, one for each core, and are gone after it; others have none."""
    before = children()
    with faults._competing_processes("competing load"):
        assert len(children() - before) == physical_cores()
    assert children() == before
    with faults._competing_processes("one thread"):
        assert children() == before


def children() -> set[str]:
    asked = ["ps", "-ww", "-o", "pid=,stat=,args=", "--ppid", str(os.getpid())]
    told = subprocess.run(asked, capture_output=True, text=True)
    return {line.split()[0] for line in told.stdout.splitlines() if "getppid" in line and line.split()[1][0] != "Z"}


def test_an_unknown_fault_is_refused_with_the_known_ones():
    """The error lists what there is."""
    with pytest.raises(InvalidSettings, match=r"no fault 'gremlins'\. There are: healthy, cold page cache"):
        faults.observe("gremlins", "model.gguf")


def test_a_page_cache_that_cannot_be_emptied_is_refused(monkeypatch):
    """Else the run would be healthy under the name of a fault."""
    monkeypatch.setattr(page_cache, "ON_LINUX", False)
    with pytest.raises(InvalidSettings, match="on Linux only"):
        faults.observe("cold page cache", "model.gguf")


@pytest.mark.engine
@needs_rpc
def test_the_first_request_waits_for_the_load():
    """The first pass counts from before the load, the second from its own call, and samples cover both."""
    run = faults.observe("cache on the far side", tiny_model(), n_prompt=16, n_gen=4)
    first, second = run.passes
    assert first.began == 0
    assert run.load_seconds < first.token_seconds[0] < first.token_seconds[-1] <= second.began
    assert run.samples[0].seconds <= 0
    assert second.began + second.token_seconds[-1] <= run.samples[-1].seconds
    assert run.settings.offload_kqv is False


def test_every_available_fault_is_a_case(monkeypatch):
    """Each comes once, under a number; where the page cache cannot be emptied, there are five."""
    monkeypatch.setattr(faults, "observe", lambda fault, model: fault)
    monkeypatch.setattr(page_cache, "ON_LINUX", True)
    made = faults.cases("model.gguf")
    assert {case.cause for case in made} == {"healthy", *faults.FAULTS}
    assert [case.number for case in made] == list(range(1, 8))
    monkeypatch.setattr(page_cache, "ON_LINUX", False)
    assert len(faults.available()) == 6
    assert "cold page cache" not in faults.available()


@pytest.mark.parametrize(
    ("prefills", "taken"), [((2.0, 1.0, 1.1), 1.1), ((1.0, 1.2, 9.0), 1.2), ((1.0, 2.0, 4.0, 8.0), 8.0)]
)
def test_a_baseline_agrees_with_the_run_before_it(monkeypatch, prefills, taken):
    """A first run that was disturbed is not taken; where no two in a row agree, the last one is."""
    runs = iter(prefills)
    monkeypatch.setattr(faults, "observe", lambda fault, model: next(runs))
    monkeypatch.setattr(faults, "diagnose", lambda run, before: SimpleNamespace(comparison=ratio_of(run / before)))
    assert faults.healthy_baseline("model.gguf", tries=4) == taken


def ratio_of(prefill: float) -> RelativeSigns:
    return RelativeSigns(disk_bytes=0, load=1, prefill=prefill, token=1, step=0, jitter=0, busy=1)
