"""The error clinic: every case is met by llama.cpp, recognised in its log, and survived by the process that asks."""

import os
import sys

import pytest

from inferlab.log_reader import explain
from studies.clinic import clinic
from studies.clinic import devices as clinic_devices

EXPECTED = {
    "web page": ("error", "html-page", "invalid magic characters: '<!do'", "starts with b'<!do'"),
    "LFS pointer": ("error", "lfs-pointer", "invalid magic characters: 'vers'", "git lfs pull"),
    "incomplete file": ("error", "incomplete-file", "data is not within the file bounds", "truncated"),
    "memory: weights": ("error", "weights-do-not-fit", "unable to allocate RPC0", "does not fit"),
    "memory: cache": ("error", "cache-does-not-fit", "failed to allocate buffer for kv cache", "does not fit"),
    "memory: compute": ("error", "compute-does-not-fit", "failed to allocate compute", "does not fit"),
    "quantized values": ("error", "quantized-values", "quantized V cache requires flash_attn", "needs flash attention"),
    "locked memory": ("no error", "mlock-failed", "failed to mlock", ""),
    "context overflow": ("error", "no-free-cells", "failed to find a memory slot", "cannot hold a prompt of 300"),
    "unknown architecture": ("error", "unknown-architecture", "unknown model architecture: 'lumen'", "no plan"),
    "unknown pre-tokenizer": ("error", "unknown-pre-tokenizer", "unknown pre-tokenizer type: 'xxxxx'", ""),
    "RPC version": ("exit", "rpc-version", "RPC server version mismatch: 99.0.0", ""),
}
"""Case -> how it ends, the finding, a part of llama.cpp's message, and of what is said before the load."""


def test_every_case_has_an_expectation():
    """Only the negative control provokes no error."""
    assert set(clinic.CASES) == {*EXPECTED, "holes in the cache"}


@pytest.mark.engine
@pytest.mark.parametrize("name", EXPECTED)
def test_a_provoked_error_is_recognised(name):
    """llama.cpp's own message is in the log, the log reader names the cause, and this process goes on."""
    if name not in clinic.possible():
        pytest.skip("this machine cannot provoke it")
    ended, finding, message, before = EXPECTED[name]
    here, found = os.getpid(), clinic.provoke(name)
    assert (found.ended, os.getpid()) == (ended, here)
    assert message in found.own_words
    assert message in found.log
    assert finding in [one.id for one in explain(found.log).findings]
    assert before in found.before
    assert bool(before) == bool(found.before)


@pytest.mark.engine
def test_cells_that_are_not_adjacent_are_used():
    """128 of 256 cells are freed, every second one, and a prompt of 128 tokens takes them."""
    found = clinic.provoke("holes in the cache")
    assert (found.ended, found.own_words) == ("no error", "")
    assert not [one for one in explain(found.log).findings if one.severity == "fault"]


@pytest.mark.engine
def test_a_full_cache_is_no_hole(monkeypatch):
    """Without the removal, the same 128 tokens fail: the control can tell."""
    case = clinic.CASES["holes in the cache"]
    full = clinic.Case(case.name, case.cause, case.make, case.settings, requests=(case.requests[0], case.requests[2]))
    monkeypatch.setitem(clinic.CASES, case.name, full)
    assert clinic.provoke(case.name).ended == "error"


def test_what_a_machine_lacks_is_left_out(monkeypatch):
    """Without RPC there is neither a second device nor another version of it; a lock is refused by two programs."""
    monkeypatch.setattr(clinic.libraries, "backends", lambda: ("cpu",))
    monkeypatch.setattr(clinic, "no_lock_command", tuple)
    assert [name for name in clinic.CASES if name not in clinic.possible()] == [
        "memory: weights",
        "memory: cache",
        "memory: compute",
        "locked memory",
        "RPC version",
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has these limits")
@pytest.mark.parametrize(
    ("programs", "user", "words"),
    [({"prlimit", "setpriv"}, 0, 4), ({"prlimit", "setpriv"}, 1000, 2), ({"prlimit"}, 0, 0), (set(), 1000, 0)],
)
def test_an_administrator_gives_up_the_right_to_lock(monkeypatch, programs, user, words):
    """Without the program that drops the right, an administrator's lock would succeed: there is no such case."""
    monkeypatch.setattr(clinic_devices.shutil, "which", lambda name: name if name in programs else None)
    monkeypatch.setattr(clinic_devices.os, "geteuid", lambda: user)
    assert len(clinic_devices.no_lock_command()) == words
