"""Badges: a measurement names the devices that it used, whichever verb took it."""

from dataclasses import replace

import pytest
from fakes import BUFFERS, CPU_ONLY, BatchEngine, made_run
from marks import needs_rpc

import inferlab as lab
from inferlab.engine.log import Buffer
from inferlab.measurement import batching, depth
from inferlab.measurement.base import common_badge
from inferlab.model.kernels import Matrices
from inferlab.settings import Settings
from inferlab.units import MIB
from studies.cache_and_batch import continuous_batching, prefix_cache
from studies.cache_and_batch.continuous_batching import Request
from studies.speculation import speculative
from studies.speculation.speculative import PromptLookup

FAR = (*BUFFERS, Buffer("RPC0[127.0.0.1:50052]", "weights", MIB))
WORKLOAD = {"n_prompt": 8, "n_gen": 4}
SMALL = {"n_prompt": 8, "n_gen": 2, "repeats": 1}
OPTIONS = {"budget_seconds": 1, "over": {"n_ubatch": (64,)}, **WORKLOAD, "progress": False}
VERBS = {
    "measure": lambda asked: lab.measure("tiny", **SMALL, **asked),
    "batched_decode": lambda asked: batching.batched_decode("tiny", sizes=(1, 2), **SMALL, progress=False, **asked),
    "decode_at_depths": lambda asked: depth.decode_at_depths("tiny", cells=(256,), n_gen=2, **asked),
    "reuse_prefix": lambda asked: prefix_cache.reuse_prefix("tiny", n_shared=(8,), n_own=4, repeats=1, **asked),
    "schedule": lambda asked: continuous_batching.schedule([Request(4, 2)] * 2, "tiny", n_slots=2, **asked),
    "speculate": lambda asked: speculative.speculate("Once upon", PromptLookup(), "tiny", n_gen=4, repeats=1, **asked),
    "time_verification": lambda asked: speculative.time_verification(
        "tiny", sizes=(1, 2), n_prompt=4, repeats=1, **asked
    ),
    "tune": lambda asked: lab.tune("tiny", **OPTIONS, **asked),
}
REAL_ONLY = {
    "fidelity": lambda asked: lab.fidelity("tiny", n_ctx=32, n_chunks=1, **asked),
    "cold_start": lambda asked: lab.cold_start("tiny", settings=asked["settings"]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_badge_names_the_loopback_device_that_holds_a_buffer(verb):
    """Without the name of the device its numbers would pass for the processor's."""
    engine = BatchEngine()
    engine.buffers = FAR
    assert "Example CPU, loopback device, 2" in VERBS[verb]({"engine": engine}).badge


@pytest.fixture(scope="module")
def slowed():
    """A loopback device whose link is slowed down."""
    with lab.loopback_device(gigabytes_per_second=1) as device:
        yield device


@needs_rpc
@pytest.mark.parametrize("verb", VERBS | REAL_ONLY)
def test_a_badge_names_the_slowed_link(verb, engine, slowed):
    """A slowed link changes every number, so that each verb tells its rate."""
    settings = slowed.settings(Settings(n_ctx=256, n_gpu_layers=-1))
    found = (VERBS | REAL_ONLY)[verb]({"settings": settings, "engine": engine})
    assert f"loopback device, {slowed.link.text}" in found.badge
    assert found.links == (slowed.link,)


def test_a_badge_names_the_kernels_of_the_processor():
    """From the recorded matrices; else from the sizes of a shape's buffers; else it says that they are not recorded."""
    weights = (Matrices("Q4_K", "CPU_REPACK", 30), Matrices("Q6_K", "CPU", 20))
    run = made_run(weights=weights)
    assert run.badge == f"{run.machine_badge}; kernels: Q4_K repacked, Q6_K tiled from 8 tokens"
    assert run.kernel_shares(1) == {"repacked": 0.6, "plain": 0.4}
    old = lab.load("xeon-2c/llama-3.2-1b-Q4_K_M")
    assert (old.weights, old.kernels_text) == ((), "Q4_K repacked, Q6_K tiled from 8 tokens")
    assert made_run().badge.endswith("; kernels: not recorded")
    assert "kernels" not in made_run(buffers=()).badge


def test_a_build_without_avx_has_no_tiles():
    """The tiled kernels are compiled for AVX and more; a build for SSE4.2 has the plain ones."""
    weights, portable = (Matrices("Q4_K", "CPU", 30),), ("SSE3", "SSSE3", "LLAMAFILE")
    assert made_run(weights=weights).kernels_text == "Q4_K tiled from 8 tokens"
    run = made_run(weights=weights, machine=replace(CPU_ONLY, instruction_sets=portable))
    assert run.kernels_text == "Q4_K plain"


def test_a_badge_of_several_runs_names_the_kernels_of_all():
    """Two sets stand beside each other; more are only said to differ."""
    kinds = [made_run(weights=(Matrices(kind, "CPU", 1),)) for kind in ("F16", "Q8_0", "Q5_0")]
    assert common_badge(kinds[:1]) == kinds[0].badge
    assert common_badge([*kinds[:2], *kinds[:2]]).endswith("; kernels: F16 plain or Q8_0 plain")
    assert common_badge(kinds).endswith("; kernels: different ones")


def test_a_measurement_records_its_matrices(engine):
    """The embedded model's, all of them F16 and in the file's layout."""
    run = lab.measure("tiny", Settings(devices=()), **SMALL, engine=engine)
    assert [(one.type, one.buffer) for one in run.weights] == [("F16", "CPU")]
    assert run.kernels_text == "F16 plain"
