"""Totals on a real card: plan and one constant a device, within 3 % or 150 MiB of what its driver counts."""

import pytest

import inferlab as lab
from inferlab.engine.session import default_engine, this_machine
from inferlab.errors import DeviceUnavailable
from inferlab.measurement.memory import context_bytes, occupied
from inferlab.measurement.telemetry.nvml import vram_used_bytes
from inferlab.prediction.compare import compare_total
from inferlab.settings import Settings
from inferlab.units import MIB, bytes_text

SMALL = {"n_layer": 8, "n_embd": 2048, "n_ff": 8192, "n_head": 32, "n_head_kv": 8, "n_vocab": 32000}
ASKED = (
    Settings(n_ctx=2048),
    Settings(n_ctx=16384),
    Settings(n_ctx=16384, type_k="q8_0", type_v="q8_0"),
    Settings(n_ctx=4096, flash_attn="off"),
    Settings(n_ctx=4096, n_gpu_layers=4),
    Settings(n_ctx=4096, n_ubatch=2048, n_batch=2048),
)

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def card():
    """The first card whose memory a driver counts; without one there is nothing to hold a total against."""
    for device in this_machine().gpus:
        try:
            vram_used_bytes(device)
        except DeviceUnavailable as reason:
            pytest.skip(str(reason))
        else:
            return device
    pytest.skip("llama.cpp sees no GPU here; totals need an NVIDIA card whose memory NVML counts")


@pytest.fixture(scope="module")
def constant(card):
    yield context_bytes(card.name)
    default_engine().close()


@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_plan_and_constant_are_what_the_driver_counts(asked, card, constant):
    """The growth of the driver's count over a whole load, whatever is asked for."""
    path = lab.make_shape("mistral-7b", "Q4_K_M", progress=False, **SMALL)
    settings = asked.but(devices=(card.name,))
    plan = lab.predict_memory(path, settings, this_machine())
    found = compare_total(plan, occupied(path, settings), constant)
    print(
        f"{card.name} {asked}: planned {bytes_text(found.planned_range[1])} and {bytes_text(constant)}, "
        f"measured {bytes_text(found.measured_bytes)}, off by {found.difference_bytes / MIB:.1f} MiB"
    )
    assert found.agrees


def test_the_constant_is_one(card, constant):
    """Measured again it is the same within a tenth."""
    assert context_bytes(card.name) == pytest.approx(constant, rel=0.1)


def test_a_limit_leaves_what_it_says(card):
    """Half a card: what the driver counts as in use, and what llama.cpp may still have, add up to it."""
    total = card.memory_bytes
    with lab.limit_vram(total // 2, card.name) as limit:
        found = next(d for d in this_machine().gpus if d.name == card.name)
        assert vram_used_bytes(card) >= total // 2 - 64 * MIB
        assert found.free_bytes <= total // 2
        assert limit.held_bytes == pytest.approx(total - total // 2, abs=64 * MIB)
