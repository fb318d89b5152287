"""Weights, cache and states of every architecture against real loads, on the host and on the loopback device."""

import pytest
from architecture_files import unpack
from marks import needs_rpc

from inferlab.errors import EngineCrashed, EngineError, InvalidSettings
from inferlab.model.architecture_table import COMPRESSED, architecture
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import MIB

pytestmark = [pytest.mark.engine, needs_rpc]

PRINTED = 0.0051 * MIB  # llama.cpp prints a buffer to 0.01 MiB, each cache by itself
ASKED = {
    "one sequence": {"n_ctx": 1024},
    "one pool, no flash attention": {"n_ctx": 2048, "n_seq_max": 2, "kv_unified": True, "flash_attn": "off"},
    "q8_0": {"n_ctx": 3000, "n_seq_max": 3, "swa_full": True, "type_k": "q8_0", "type_v": "q8_0"},
}
PLACES = {"host": {"n_gpu_layers": 0, "use_extra_bufts": False}, "device": {}, "one layer": {"n_gpu_layers": 1}}

# What llama.cpp itself refuses, or ends at: values that need flash attention, a graph that it cannot build.
REFUSED = {"grok-moe", "kimi-linear-moe", "laguna-moe"}
LEAST_NUMBERS = 2 * (128 - len(REFUSED)) * len(ASKED)  # weights and cache, of the host alone


def n_lines(model, kind):
    """Lines of the log that one number may be the sum of: caches with and without windows, of indexers, of states."""
    compressed = architecture(model.architecture).cache == COMPRESSED
    return 1 if kind == "weights" else 8 if compressed else 3


def padding(model):
    """Bytes between tensors, each of which ggml places at a multiple of 32: a scale is one number of 4 bytes."""
    return sum(-tensor.n_bytes % 32 for tensor in model.tensors)


@pytest.mark.parametrize("place", PLACES)
def test_a_load_has_the_weights_and_the_cache_of_its_plan(place, tmp_path, device, engine):
    """Every file, at three settings: each device's weights and cache, at the 0.01 MiB that a line prints."""
    differ, refused, n_numbers = [], [], 0
    for name, model in unpack(tmp_path).items():
        for asked, values in ASKED.items():
            settings = {**values, **PLACES[place], "rpc_servers": (device.endpoint,), "load_mode": "none"}
            try:
                plan = predict_memory(model, Settings(**settings), simulate=False)
                told = measured_bytes(engine.open(model.path, Settings(**settings)).buffers, (device.endpoint,))
            except (EngineError, InvalidSettings, EngineCrashed) as error:
                refused.append((name, asked, type(error).__name__, str(error)[-200:]))
                continue
            for where, held in plan.devices.items():
                for kind, planned in (("weights", held.weights_bytes), ("kv_cache", held.kv_cache_bytes)):
                    printed, n_numbers = told.get((where, kind), 0), n_numbers + 1
                    room = PRINTED * n_lines(model, kind)
                    if not planned - room <= printed <= planned + room + padding(model) * (kind == "weights"):
                        differ.append((name, asked, where, kind, planned, printed))
    print(f"{place}: {n_numbers} numbers, {len(differ)} differ; {len(refused)} loads refused")
    print(*differ, *refused, sep="\n")
    assert not differ, differ[:3]
    assert {name for name, *_ in refused} <= REFUSED
    assert n_numbers >= LEAST_NUMBERS
