"""Badges: a measurement names the devices that it used, whichever verb took it."""

import pytest
from fakes import BUFFERS, BatchEngine
from marks import needs_rpc

import inferlab as lab
from inferlab.engine.log import Buffer
from inferlab.measurement.batching import batched_decode
from inferlab.measurement.continuous_batching import Request, schedule
from inferlab.measurement.depth import decode_at_depths
from inferlab.measurement.prefix_cache import reuse_prefix
from inferlab.measurement.speculative import PromptLookup, speculate, time_verification
from inferlab.settings import Settings
from inferlab.units import MIB

FAR = (*BUFFERS, Buffer("RPC0[127.0.0.1:50052]", "weights", MIB))
WORKLOAD = {"n_prompt": 8, "n_gen": 4}
SMALL = {"n_prompt": 8, "n_gen": 2, "repeats": 1}
KNOBS = {"budget_seconds": 1, "over": {"n_ubatch": (64,)}, **WORKLOAD, "progress": False}
VERBS = {
    "measure": lambda asked: lab.measure("tiny", **SMALL, **asked),
    "batched_decode": lambda asked: batched_decode("tiny", sizes=(1, 2), **SMALL, progress=False, **asked),
    "decode_at_depths": lambda asked: decode_at_depths("tiny", cells=(256,), n_gen=2, **asked),
    "reuse_prefix": lambda asked: reuse_prefix("tiny", n_shared=(8,), n_own=4, repeats=1, **asked),
    "schedule": lambda asked: schedule([Request(4, 2)] * 2, "tiny", n_slots=2, **asked),
    "speculate": lambda asked: speculate("Once upon", PromptLookup(), "tiny", n_gen=4, repeats=1, **asked),
    "time_verification": lambda asked: time_verification("tiny", sizes=(1, 2), n_prompt=4, repeats=1, **asked),
    "tune": lambda asked: lab.tune("tiny", **KNOBS, **asked),
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
