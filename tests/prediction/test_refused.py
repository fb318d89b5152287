"""Weights that a device refuses lie on the host, and a cache that it refuses ends the load: both are in the plan."""

import pytest
from architecture_files import unpack
from small_models import write_model

from inferlab.machine import Device, Machine
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory.refused import refuses
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import GIB, MIB

LIMIT = 128 * MIB
CPU = Device("CPU", "a processor", "cpu", 16 * GIB, 16 * GIB, "CPU")
SMALL = Device("Vulkan0", "a card with small buffers", "gpu", 8 * GIB, 8 * GIB, "Vulkan", largest_tensor_bytes=LIMIT)
ROOMY = Device("Vulkan0", "a card", "gpu", 8 * GIB, 8 * GIB, "Vulkan")
ASKED = Settings(n_ctx=1024, load_mode="none")


def machine(device: Device) -> Machine:
    return Machine(
        "a processor", 2, 16 * GIB, "Linux", "3.11", devices=(device, CPU), instruction_sets=("AVX2", "REPACK")
    )


def planned(model, device, settings=ASKED):
    return predict_memory(model, settings, machine(device), simulate=False, as_cuda=True)


def written(tmp_path, family, **dimensions):
    return read_gguf(write_model(tmp_path / "model.gguf", family, **dimensions))


@pytest.mark.parametrize(("n_vocab", "moved"), [(65536, 0), (65537, 65537 * 256 * 2)])
def test_an_output_matrix_is_refused_by_its_product(tmp_path, n_vocab, moved):
    """llama.cpp asks for 512 tokens: a product of more than the largest tensor is refused, however small the matrix."""
    model = written(tmp_path, "llama", n_vocab=n_vocab)
    plans = [planned(model, device) for device in (ROOMY, SMALL)]
    gained = [plan.devices["gpu0"].weights_bytes for plan in plans]
    assert gained[0] - gained[1] == moved
    assert ("output.weight" in plans[1].moved) == bool(moved)
    assert any("128.00 MiB" in note for note in plans[1].notes) == bool(moved)


@pytest.mark.parametrize(("load_mode", "copies"), [("none", 2), ("mmap", 1)])
def test_a_tied_output_matrix_is_on_the_host_twice_where_nothing_is_mapped(tmp_path, load_mode, copies):
    """The embedding lies in the card's pinned memory, its copy for the output not; a mapped file has one of both."""
    model = written(tmp_path, "llama-tied", n_vocab=262144)
    plan = planned(model, SMALL, ASKED.but(load_mode=load_mode))
    assert plan.devices["host"].weights_bytes == copies * 262144 * 256 * 2
    assert plan.moved == {"output.weight": "host"}


def test_a_refused_matrix_is_repacked_although_a_card_pins_the_hosts_others(tmp_path):
    """Beside a card with a host buffer nothing is repacked but what the card refuses."""
    model = written(tmp_path, "llama-tied", n_vocab=262144, type="Q4_0")
    held = {device.description: planned(model, device).host_weights for device in (ROOMY, SMALL)}
    assert [kind for kinds in held.values() for kind in kinds] == ["no repacking", "AVX2"]
    assert held[SMALL.description]["AVX2"].repacked_bytes == 262144 * 256 // 32 * 18


def test_experts_are_refused_as_a_whole(tmp_path):
    """The experts of a block are one tensor, and so is what is above the limit."""
    model = written(tmp_path, "llama-moe", n_ff=32768, n_ff_exp=32768, n_expert=16)
    assert {name.split(".", 2)[2] for name in planned(model, SMALL).moved} == {
        f"ffn_{part}_exps.weight" for part in ("gate", "up", "down")
    }
    assert planned(model, ROOMY).moved == {}


@pytest.mark.parametrize(("family", "refused"), [("mamba", True), ("mamba2", False)])
def test_vulkan_scans_only_as_mamba_2_does(tmp_path, family, refused):
    """The first Mamba's scan stays on the host, with the matrix that it needs."""
    model = unpack(tmp_path)[f"{family}-dense"]
    scanned = [tensor for tensor in model.tensors if tensor.name.endswith("ssm_a")]
    assert {refuses(ROOMY, tensor, model) for tensor in scanned} == {refused}


def test_a_cache_above_the_limit_aborts_the_load(tmp_path):
    """Each layer's keys are one tensor; a plan says so, and what to do, instead of a size that no load reaches."""
    model, long = written(tmp_path, "llama"), ASKED.but(n_ctx=2**20)
    plan = planned(model, SMALL, long)
    assert plan.aborts
    assert "offload_kqv=False" in plan.notes[0]
    assert plan.fits({"gpu0": 100 * GIB}) == "no"
    for fine in (long.but(offload_kqv=False), long.but(n_ctx=2**18), long.but(n_gpu_layers=0)):
        assert not planned(model, SMALL, fine).aborts
    assert not planned(model, ROOMY, long).aborts
