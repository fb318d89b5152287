"""Memory plans beside llama.cpp's own estimate."""

import subprocess

import pytest
from marks import needs_rpc

import inferlab as lab
from inferlab.engine.loopback import loopback_device
from inferlab.settings import Settings
from inferlab.units import GIB, MIB
from studies.fit_params.measure import both_answers, compare_fits
from studies.fit_params.reported_memory import reporting_memory
from studies.fit_params.study import Question

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


@needs_rpc
@pytest.mark.parametrize("n_gib", [2, 48])
def test_the_tool_sees_the_reported_memory(program, n_gib):
    """A loopback device has the free memory that its relay reports, less or more than the host has."""
    command = [program("llama-fit-params"), "-m", lab.tiny_model(), "-lv", "4", "--rpc"]
    with loopback_device(n_threads=1) as device, reporting_memory(device, n_gib * GIB) as endpoint:
        done = subprocess.run(
            [*map(str, command), endpoint, "-dev", "RPC0"], capture_output=True, text=True, check=True, timeout=60
        )
    assert f"vs. {n_gib * 1024} MiB of free device memory" in done.stderr


@needs_rpc
@pytest.mark.parametrize(
    "question",
    [
        Question("llama-3.1-8b", "Q4_K_M", 8 * GIB),
        Question("llama-3.1-8b", "Q4_K_M", 8 * GIB, 32768),
        Question("mistral-7b-v0.3", "Q8_0", 8 * GIB, type_kv="q8_0"),
    ],
)
def test_fit_answers_as_llama_does_for_a_dense_model(program, question):
    """The same context and the same layers, with the same bytes by the tool's own estimate."""
    program("llama-fit-params")
    (both,) = compare_fits([question]).answers
    assert both.by_llama == both.by_lab
    assert 0 <= both.unused_bytes("lab") <= GIB


@needs_rpc
def test_both_put_experts_into_ram_first(program):
    """With experts all layers stay on the card, in both answers, and the experts of some lie in RAM."""
    program("llama-fit-params")
    with loopback_device(n_threads=1) as one, loopback_device(n_threads=1) as other:
        both = both_answers(Question("qwen3-30b-a3b", "Q4_K_M", 12 * GIB, 32768), one, other)
    assert both.by_llama.settings.n_gpu_layers == both.question.model.n_layer + 1
    assert both.by_llama.settings.override_tensor
    assert both.by_lab.settings.n_gpu_layers == -1
    assert both.by_lab.settings.n_cpu_moe
    assert min(both.unused_bytes("llama"), both.unused_bytes("lab")) >= 0
