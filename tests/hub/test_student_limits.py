"""Limits of a student's processes: an offender is stopped, and the neighbor's kernel lives on."""

import os
import subprocess
import sys
import time

import psutil
import pytest

pytest.importorskip("resource", reason="limits are for Linux")
if sys.platform != "linux":
    pytest.skip("limits are for Linux", allow_module_level=True)

from jupyter_client import KernelManager
from student_limits import Limits, delegated_groups, in_words, limit_this_process, share_of_cores

MIB = 2**20
LIMITED = """
import sys
from student_limits import Limits, limit_this_process
limit_this_process(Limits({bytes}, {cores}), "ada")
"""
SPINNING = """
import subprocess, sys
spin = "while True: pass"
children = [subprocess.Popen([sys.executable, "-c", spin]) for _ in range(4)]
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
for child in children:
    child.kill()
"""
FIRST_CORE = min(os.sched_getaffinity(0)) if sys.platform == "linux" else 0


def limited(code, n_bytes=None, cores=()):
    """The code of a student's process, whose first act is to limit itself."""
    return LIMITED.format(bytes=n_bytes, cores=tuple(cores)) + code


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment())


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


class Kernel:
    """A student's kernel, limited before it started."""

    def __init__(self, n_bytes, cores):
        self.manager = KernelManager()
        code = limited("from ipykernel import kernelapp; kernelapp.launch_new_instance()", n_bytes, cores)
        self.manager.kernel_spec.argv = [sys.executable, "-c", code, "-f", "{connection_file}"]
        self.manager.start_kernel(env=environment())
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def execute(self, code):
        """The status of a cell: ok, or the name of its error."""
        content = self.client.execute(code, reply=True, timeout=60, stop_on_error=False)["content"]
        return content.get("ename", content["status"])

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernels():
    started = [Kernel(512 * MIB, [FIRST_CORE]) for _ in range(2)]
    yield started
    for kernel in started:
        kernel.close()


def test_the_kernel_of_an_offender_and_of_a_neighbor(kernels):
    """Too much memory and too many threads are errors of the one who asks, and both kernels answer afterwards."""
    offender, neighbor = kernels
    assert neighbor.execute("kept = sum(range(1000))") == "ok"
    assert offender.execute(f"much = bytearray({1024 * MIB})") == "MemoryError"
    start = "import threading\nend = threading.Event()\ndef many():\n    for _ in range(100_000):\n"
    start += "        threading.Thread(target=end.wait, daemon=True).start()\n"
    assert offender.execute(start + "try:\n    many()\nfinally:\n    end.set()") in ("RuntimeError", "MemoryError")
    assert offender.execute("1 + 1") == "ok"
    assert neighbor.execute("assert kept == 499500") == "ok"


def test_busy_loops_stay_on_the_students_cores():
    """Four processes that only compute get one core together, whatever the others do."""
    code = limited(SPINNING, cores=[FIRST_CORE])
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
    ) as student:
        children = [psutil.Process(int(pid)) for pid in student.stdout.readline().split()]
        began, before = time.monotonic(), sum(sum(child.cpu_times()[:2]) for child in children)
        time.sleep(1)
        computed = sum(sum(child.cpu_times()[:2]) for child in children) - before
        passed = time.monotonic() - began
        assert [child.cpu_affinity() for child in children] == [[FIRST_CORE]] * 4
        student.stdin.close()
    assert computed < 1.1 * passed + 0.05


def test_a_mapped_model_is_not_counted(tmp_path):
    """Weights that are mapped from a file of a gigabyte take nothing of a limit of a quarter of that."""
    with (tmp_path / "model.gguf").open("wb") as file:
        file.truncate(1024 * MIB)
    code = f"import mmap\nwith open({str(tmp_path / 'model.gguf')!r}, 'rb') as file:\n"
    code += "    print(len(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)[:2**20]))"
    assert run(limited(code, 256 * MIB)).stdout.split() == [str(MIB)]


def test_llama_cpp_is_told_how_many_cores_there_are():
    """OpenMP and BLAS get the number of cores, so that they do not start threads for the whole machine."""
    done = run(limited("import os; print(os.environ['OMP_NUM_THREADS'], os.sched_getaffinity(0))", cores=[FIRST_CORE]))
    assert done.stdout.split() == ["1", f"{{{FIRST_CORE}}}"]


def test_students_are_spread_over_the_cores():
    """Neighbors in the list get different cores as far as there are enough."""
    assert [share_of_cores(i, 1, [0, 1]) for i in range(3)] == [(0,), (1,), (0,)]
    assert [share_of_cores(i, 3, [0, 1, 2, 3]) for i in range(2)] == [(0, 1, 2), (0, 1, 3)]
    assert share_of_cores(5, 9, [4, 7]) == (4, 7)


# --- cgroup v2, in a folder that looks like it ------------------------------------------------


@pytest.fixture
def cgroups(tmp_path):
    """A mounted cgroup v2 as its files show it, and the group that this process is said to be in."""
    root = tmp_path / "user" / "room"
    root.mkdir(parents=True)
    (tmp_path / "own").write_text("1:name=systemd:/\n0::/user/room\n")
    (root / "cgroup.controllers").write_text("cpuset cpu io memory pids")
    (root / "cgroup.procs").write_text("4711\n")
    return tmp_path


def test_a_delegated_group_is_made_ready(cgroups):
    """The hub's processes move aside, and the controllers are handed on."""
    root = delegated_groups(cgroups, cgroups / "own")
    assert root == cgroups / "user" / "room"
    assert (root / "hub" / "cgroup.procs").read_text() == "4711"
    assert (root / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


@pytest.mark.parametrize("controllers", ["", "cpu pids"])
def test_without_the_controllers_the_process_limits_hold(cgroups, controllers):
    """A cgroup that cannot limit memory, or a system without one, leaves RLIMIT_DATA to do it; the hub says which."""
    (cgroups / "user" / "room" / "cgroup.controllers").write_text(controllers)
    assert delegated_groups(cgroups, cgroups / "own") is None
    assert delegated_groups(cgroups / "none", cgroups / "own") is None
    limits = Limits(512 * MIB, (0,))
    assert in_words(limits, None).startswith("512 MiB for each process (RLIMIT_DATA), 1 core (bound")
    assert in_words(limits, cgroups).startswith("512 MiB and 1 core for each student (cgroup v2")


def test_a_students_group_gets_its_limits(cgroups):
    """Memory, processor time and the number of processes are limited for all that a student starts together."""
    group = cgroups / "student-ada"
    limit_this_process(Limits(512 * MIB), "ada", cgroups)
    assert (group / "memory.max").read_text() == str(512 * MIB)
    assert (group / "cgroup.procs").read_text() == str(os.getpid())
    done = run(
        f"from pathlib import Path\nfrom student_limits import *\n"
        f"limit_this_process(Limits(None, ({FIRST_CORE},)), 'ben', Path({str(cgroups)!r}))"
    )
    assert done.returncode == 0, done.stderr
    assert (cgroups / "student-ben" / "cpu.max").read_text() == "100000 100000"
    assert (cgroups / "student-ben" / "pids.max").read_text() == "1024"
