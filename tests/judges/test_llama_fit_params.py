"""Memory plans beside llama.cpp's own estimate."""

import subprocess

import pytest

import inferlab as lab
from inferlab.settings import Settings
from inferlab.units import MIB

pytestmark = pytest.mark.engine


def test_a_plan_is_the_programs_estimate(program):
    """On a machine without a GPU, weights, cache and compute buffer of a plan are those that llama-fit-params prints,
    in whole MiB.
    """
    if lab.this_machine().gpus:
        pytest.skip("this machine has a GPU")
    command = [program("llama-fit-params"), "-m", lab.tiny_model(), "-c", "4096", "--fit-print", "on"]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    _, *printed = next(line for line in done.stdout.splitlines() if line.startswith("Host")).split()
    plan = lab.predict_memory(lab.tiny_model(), Settings(n_ctx=4096))
    planned = [plan.bytes_of(kind) // MIB for kind in ("weights", "kv_cache", "compute")]
    assert planned == [int(number) for number in printed]
