"""The machine: what a host says about itself, and nothing about its owner."""

import getpass
import json
import os
import socket
import subprocess
from types import SimpleNamespace

from fakes import CPU_ONLY

from inferlab import machine
from inferlab.machine import CpuState, Machine, physical_cores, read_cpu_state, read_host, usable_cpus
from inferlab.records import to_json


def test_this_host_is_described():
    """Processor, cores, memory and system are known on the machine that runs the tests."""
    host = read_host()
    assert host.cpu
    assert 1 <= host.n_cores <= usable_cpus() <= os.cpu_count()
    assert host.ram_bytes > 2**28
    assert host.python.startswith("3.")


def test_a_description_does_not_name_its_owner():
    """A record can be shared: it holds no user name, host name or home folder."""
    told = json.dumps(to_json(read_host()))
    names = {socket.gethostname(), getpass.getuser(), os.path.expanduser("~")} - {"root", "localhost"}
    assert not [name for name in names if len(name) > 3 and name in told]


def test_the_build_is_named_as_far_as_it_is_known():
    """A record says which llama.cpp measured, or that nobody knows."""
    assert CPU_ONLY.llama_cpp_text == "llama.cpp b1234 (llama-cpp-python 0.0.1)"
    assert Machine("cpu", 1, None, "Linux", "3.12").llama_cpp_text == "llama.cpp unknown"


def test_a_commit_is_named_without_a_suffix_that_says_nothing():
    """llama.cpp's build calls sources outside a git checkout "-dirty"; the record keeps that, the text does not."""
    built = Machine("cpu", 1, None, "Linux", "3.12", llama_cpp="0.5.0", llama_cpp_commit="0c1e570-dirty")
    assert built.llama_cpp_text == "llama.cpp 0.5.0 0c1e570"
    assert to_json(built)["llama_cpp_commit"] == "0c1e570-dirty"


def test_hyper_threads_are_not_cores(monkeypatch):
    """Two logical processors that share a core count once; where nobody tells, each counts."""
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(machine, "usable_cpus", lambda: 4)
    siblings = {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"}
    folder = "/sys/devices/system/cpu/cpu"
    paths = {f"{folder}{cpu}/topology/thread_siblings_list": text for cpu, text in siblings.items()}
    monkeypatch.setattr(machine.Path, "read_text", lambda path, **_: paths[str(path)])
    assert physical_cores() == 2
    monkeypatch.setattr(machine.Path, "read_text", _refuse)
    assert physical_cores() == 4


def test_caches_count_once(monkeypatch):
    """Four processors in two groups with an L3 each: both caches, however many share them; unknown stays unknown."""
    shared = {0: "0-1", 1: "0-1", 2: "2-3", 3: "2-3"}
    files = {}
    for cpu, group in shared.items():
        for index, (level, size, members) in enumerate([("1", "48K", str(cpu)), ("3", "32768K", group)]):
            folder = f"/sys/devices/system/cpu/cpu{cpu}/cache/index{index}"
            told = {"level": level, "size": size, "shared_cpu_list": members}
            files |= {f"{folder}/{name}": text + "\n" for name, text in told.items()}

    def read(path, **_):
        if str(path) not in files:
            raise FileNotFoundError(path)
        return files[str(path)]

    monkeypatch.setattr(machine.Path, "read_text", read)
    monkeypatch.setattr(machine, "usable_cpu_numbers", lambda: [0, 1, 2, 3])
    assert machine.last_level_cache_bytes() == 2 * 32 * 2**20
    assert machine.data_cache_bytes() == {1: 48 * 2**10, 3: 32 * 2**20}
    monkeypatch.setattr(machine, "usable_cpu_numbers", lambda: [1])
    assert machine.last_level_cache_bytes() == 32 * 2**20
    monkeypatch.setattr(machine.Path, "read_text", _refuse)
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    assert machine.last_level_cache_bytes() is None
    assert machine.data_cache_bytes() == {}


def test_macos_tells_the_cache_of_its_fast_cores(monkeypatch):
    """Where there is no /sys, sysctl answers, or nobody does."""
    told = ["16777216\n", ""]
    monkeypatch.setattr(machine.Path, "read_text", _refuse)
    monkeypatch.setattr(machine.platform, "system", lambda: "Darwin")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=told.pop(0)))
    assert machine.last_level_cache_bytes() == 16 * 2**20
    assert machine.last_level_cache_bytes() is None


def test_a_host_without_proc_is_still_described(monkeypatch):
    """Outside Linux the architecture stands in for the processor's name; unknown memory and versions are None."""
    monkeypatch.setattr(machine.Path, "read_text", _refuse)
    monkeypatch.setattr(os, "sysconf", _refuse)
    assert machine.cpu_name()
    assert machine.ram_bytes() is None
    assert machine.installed_version("no-such-package-anywhere") is None


def _refuse(*_, **__):
    raise OSError("not on this system")


def test_the_state_of_the_processors_is_read_from_their_files(tmp_path):
    """Two threads of one core and two governors; an empty folder tells nothing."""
    for cpu, governor in (("cpu0", "powersave"), ("cpu1", "performance")):
        for name, text in (("topology/thread_siblings_list", "0-1"), ("cpufreq/scaling_governor", governor)):
            (tmp_path / cpu / name).parent.mkdir(parents=True)
            (tmp_path / cpu / name).write_text(text + "\n")
    (tmp_path / "smt").mkdir()
    (tmp_path / "smt" / "active").write_text("1\n")
    (tmp_path / "sched_autogroup_enabled").write_text("0\n")
    nothing = tmp_path / "nothing"
    assert read_cpu_state(tmp_path, tmp_path) == CpuState(True, 2, ("performance", "powersave"), False)
    assert read_cpu_state(nothing, nothing) == CpuState(None, None, (), None)
    assert read_cpu_state(tmp_path).text.endswith("each core and the frequency governor performance and powersave")
    assert CpuState(False, 1).text == "1 hardware thread for each core and no frequency governor"
