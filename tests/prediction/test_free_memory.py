"""Free memory: several cards, one memory for host and GPU, and which plans fit into them."""

import pytest
from fakes import CPU_ONLY, WITH_GPU, made_plan

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.prediction.free_memory import free_bytes, machine_for
from inferlab.prediction.memory import DeviceBytes
from inferlab.prediction.memory.plan import SHARED
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

PLANNED = 16.5 * MIB  # bytes of `made_plan` on host and gpu0 together
OPEN = made_plan(devices={"host": DeviceBytes(MIB, 0, None, 0), "gpu0": DeviceBytes(10 * MIB, 0, None, 0)})


def test_several_sizes_are_as_many_cards():
    """Each has its own room, and the layers are shared by what is free."""
    machine = machine_for(CPU_ONLY, vram=["8GiB", 24 * GIB])
    assert [(card.name, card.free_bytes) for card in machine.gpus] == [("CUDA0", 8 * GIB), ("CUDA1", 24 * GIB)]
    assert free_bytes(machine, machine.gpus) == {"gpu0": 8 * GIB, "gpu1": 24 * GIB}
    fitted = lab.fit("mistral-7b", vram=("8GiB", "24GiB"), simulate=False)
    assert [sum(layer.device == name for layer in fitted.plan.layers) for name in ("gpu0", "gpu1")] == [9, 24]
    assert (fitted.fits, fitted.plan.method) == ("yes", "bound")
    assert lab.fit("mistral-7b", vram=("3GiB", "3GiB"), simulate=False).fits == "no"


def test_shared_memory_holds_every_device():
    """Host and GPU lie in one room: it is compared with the sum of their bytes."""
    plan = made_plan()
    assert plan.devices_in(SHARED) == ("host", "gpu0")
    assert plan.margin({SHARED: 20 * MIB}) == 20 * MIB - PLANNED
    assert [plan.fits({SHARED: room * MIB}) for room in (17, 16)] == ["yes", "no"]
    assert plan.shortfall({SHARED: 16 * MIB}) == (
        "shared would hold 12.00 MiB of weights, 3.00 MiB of KV cache, 1.50 MiB of compute buffer, 512.00 KiB too much"
    )


def test_a_model_in_unified_memory_is_compared_with_its_sum():
    """The embedding of a tied model lies there twice; there is no other room, and moving layers frees nothing."""
    fitted = lab.fit("llama-3.2-1b", unified="8GiB", backend="metal", simulate=False)
    total = sum(held.total_bytes for held in fitted.plan.devices.values())
    assert (fitted.free_bytes, fitted.fits) == ({SHARED: 8 * GIB}, "yes")
    assert fitted.margin_bytes == 7 * GIB - total
    assert lab.fit("llama-3.2-1b", unified=8.0 * GIB, backend="metal", simulate=False).free_bytes == fitted.free_bytes
    too_small = lab.fit("llama-3.2-1b", unified="1700MiB", simulate=False)
    assert (too_small.fits, too_small.most_layers.value) == ("no", None)
    assert "share one memory" in too_small.most_layers.reason


def test_a_compute_buffer_of_unknown_size_leaves_a_fit_open():
    """What is known decides a no; else the answer is unsure, and the reason names what is not known."""
    assert [OPEN.fits({SHARED: room * MIB}) for room in (10, 1000)] == ["no", "unsure"]
    assert OPEN.shortfall({"gpu0": GIB}).endswith("10.00 MiB of weights, and a compute buffer of unknown size")
    fitted = lab.fit("gemma-3-4b", Settings(type_k="f32", type_v="f32"), vram="8GiB", simulate=False)
    assert (fitted.fits, fitted.largest_n_ctx.value) == ("unsure", None)
    assert "Weights and KV cache alone leave room for n_ctx=" in fitted.largest_n_ctx.reason


def test_the_fullest_memory_has_least_left():
    """Not the one that holds most, and never one whose memory is unknown while another is known."""
    assert made_plan().fullest_memory({"host": 6 * MIB, "gpu0": 100 * MIB}) == "host"
    assert made_plan().fullest_memory({"host": None, "gpu0": 100 * MIB}) == "gpu0"


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"vram": "8GiB", "unified": "8GiB"}, "exclude each other"),
        ({"vram": []}, "leaves no card"),
        ({"vram": ["8GiB", 0]}, "vram=0 leaves no card"),
        ({"unified": -1}, "unified=-1 leaves no card"),
        ({"vram": "8GiB", "backend": "cpu"}, "backend='cpu' is not one of cuda, rocm, metal"),
        ({"backend": "metal"}, "Give its vram, or unified"),
        ({"vram": "eight"}, "is no size"),
    ],
)
def test_a_room_that_cannot_be_is_refused(asked, error):
    """The message names what was given, and what to give instead."""
    with pytest.raises(InvalidSettings, match=error):
        machine_for(WITH_GPU, **asked)


def test_an_rpc_server_is_not_part_of_unified_memory():
    """Its memory is another machine's."""
    with pytest.raises(InvalidSettings, match="memory of one machine"):
        lab.fit("mistral-7b", Settings(rpc_servers=("127.0.0.1:1",)), unified="8GiB", simulate=False)
