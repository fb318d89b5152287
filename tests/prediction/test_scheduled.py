"""Where host and card compute what they share, and how wide the range of both compute buffers is."""

import pytest
from marks import needs_rpc
from small_models import FAMILIES, write_model

from inferlab.engine import dry_run
from inferlab.errors import EngineError, InvalidSettings
from inferlab.machine import Device
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import shape
from inferlab.prediction.free_memory import machine_for
from inferlab.prediction.memory.bound import bound
from inferlab.prediction.memory.graph import Graph, in_place, operation, reading, store, view
from inferlab.prediction.memory.request import MemoryRequest
from inferlab.prediction.memory.scheduled import CARD, HOST, Places, Resident, scheduled_bytes
from inferlab.prediction.memory.simulated import host_attends_for_devices
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import MIB

PRINTED = 0.0061 * MIB
WIDEST = 0.1  # of all bytes of the plan
ROWS, WIDE = 512, 1024
VECTOR = 4 * ROWS * WIDE


def two_products(*, offloads, first=HOST, second=HOST):
    """Bytes on host and card of two products with weights of 8 and 4 MiB, the result of the first in a cache."""
    weights = {
        "blk.0.a": Resident(first, 8 * MIB, WIDE, is_weight=True),
        "blk.1.a": Resident(second, 4 * MIB, WIDE, is_weight=True),
    }
    graph = Graph()
    x = operation(VECTOR)
    x.on_host = True
    y = reading(operation(VECTOR, x), "blk.0.a")
    graph.expand(store(view(y), block=0))
    graph.expand(reading(operation(VECTOR, in_place(y)), "blk.1.a"))
    return scheduled_bytes(graph, Places(weights, (first, second), (first, second), offloads, offloads))


def test_the_host_computes_what_its_weights_are_for():
    """Two vectors live at once, and a card without weights has nothing."""
    assert two_products(offloads=False) == [(2 * VECTOR, 0)]


def test_a_card_gets_a_copy_of_what_the_host_made():
    """The second product lies with its weight; both sides have the vector that goes over, and the card its result."""
    assert two_products(offloads=False, second=CARD) == [(2 * VECTOR, 2 * VECTOR)]


def test_weights_that_a_card_copies_in_follow_each_other_in_one_place():
    """CUDA computes for the host; the second weight lies where the first was, and the cache takes its values back."""
    (host, card), *fused = two_products(offloads=True)
    assert not fused
    assert host == VECTOR
    assert 8 * MIB + 2 * VECTOR <= card < 12 * MIB + VECTOR


def test_a_batch_of_few_rows_stays_on_the_host(monkeypatch):
    """Below 32 rows a copy of the weight would take longer than the product."""
    monkeypatch.setattr("inferlab.prediction.memory.scheduled.OFFLOADED", ROWS + 1)
    assert two_products(offloads=True) == [(2 * VECTOR, 0)]


# --- ranges -------------------------------------------------------------------------------------

PLACED = {"all": -1, "half": 0.5, "none": 0}
SAMPLE = ("qwen3-8b", "gemma-3-4b", "llama-3.2-1b", "qwen3-1.7b", "qwen3-30b-a3b", "gpt-oss-20b", "granite-4.0-h-350m")


@pytest.mark.parametrize("placed", PLACED)
@pytest.mark.parametrize("cache_type", ["f16", "q8_0"])
@pytest.mark.parametrize("name", SAMPLE)
def test_a_range_is_at_most_a_tenth_of_the_total_wide(name, cache_type, placed):
    """With all layers on a card, half of them or none, at a short context and a long one."""
    model, n = shape(name), PLACED[placed]
    for n_ctx in (4096, 32768):
        settings = Settings(n_ctx=n_ctx, type_k=cache_type, type_v=cache_type)
        settings = settings.but(n_gpu_layers=int(n * model.n_layer) if n >= 0 else n)
        plan = predict_memory(model, settings, machine_for(vram="1000GiB"), "llama-server", simulate=False)
        most = sum(map(plan.most_bytes, plan.devices))
        assert most - sum(map(plan.least_bytes, plan.devices)) <= WIDEST * most


def test_a_card_has_a_copy_as_f16_of_what_it_reads_of_a_quantized_cache():
    """CUDA's flash attention converts one layer's keys and values: 2 bytes for each number (fattn-common.cuh:53)."""
    model, settings = shape("llama-3.1-8b"), Settings(n_ctx=131072, type_k="q8_0", type_v="q8_0")
    plan = predict_memory(model, settings, machine_for(vram="100GiB"), simulate=False)
    least, most = plan.compute_range["gpu0"]
    copied = 2 * 131072 * 2 * 8 * 128
    assert most > copied
    assert least > copied * 0.85


@pytest.mark.engine
@needs_rpc
@pytest.mark.parametrize("family", FAMILIES)
def test_a_range_holds_for_a_small_model_of_every_family_in_part_on_a_device(family, tmp_path):
    """Any number of layers, experts on the host, a cache on either side: what llama.cpp reserves lies in the range."""
    model = read_gguf(write_model(tmp_path / "m.gguf", family))
    there, answered = (Device("RPC0", "127.0.0.1:1", "gpu", backend="RPC"),), 0
    for n_gpu_layers in range(1, model.n_layer + 1):
        for asked in ({}, {"flash_attn": "off", "n_seq_max": 2}, {"offload_kqv": False, "flash_attn": "on"}):
            try:
                settings = Settings(**{"n_ctx": 1024, "flash_attn": "on"} | asked | {"n_gpu_layers": n_gpu_layers})
                request = MemoryRequest(model, settings, there, per_sequence=False, simulate=False)
                if host_attends_for_devices(request):
                    continue
                told = dry_run.simulate_stand_in(model, settings).compute_bytes
            except (EngineError, InvalidSettings):
                continue
            answered += 1
            for device, (least, most) in bound(request).compute_range.items():
                assert least - PRINTED <= told.get(device, 0) <= most + PRINTED, (device, settings)
    assert answered >= 4


@pytest.mark.engine
@needs_rpc
def test_flash_attention_that_llama_cpp_turns_off_by_itself_is_planned_as_off():
    """Of 16 blocks of LFM2 with 8 on a device, one's attention lands on the other side; a block more, and none does."""
    model, there = shape("lfm2-350m"), (Device("RPC0", "127.0.0.1:1", "gpu", backend="RPC"),)
    told = {}
    for n_gpu_layers in (8, 9):
        settings = Settings(n_ctx=8192, n_gpu_layers=n_gpu_layers)
        told[n_gpu_layers] = dry_run.simulate_stand_in(model, settings, 1).compute_bytes
        request = MemoryRequest(model, settings, there, per_sequence=True, simulate=False)
        for device, (least, most) in bound(request).compute_range.items():
            assert least <= told[n_gpu_layers][device] <= most
    assert told[8]["gpu0"] > 4 * told[9]["gpu0"]
