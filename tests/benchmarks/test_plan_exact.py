"""Plans against real loads: every architecture, placement and cache type, on the loopback device, at 0.01 MiB."""

from collections import Counter
from itertools import product

import pytest
from marks import needs_rpc
from small_models import FAMILIES, SMALL, write_model

from inferlab.model.gguf import read_gguf
from inferlab.prediction.compare import measured_bytes
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import MIB

pytestmark = [pytest.mark.engine, needs_rpc]

PRINTED = 0.0051 * MIB  # llama.cpp prints a buffer to 0.01 MiB
CACHE_TYPES = (("f16", "f16"), ("q8_0", "q8_0"), ("q4_0", "q4_0"), ("q8_0", "f16"))
# BF16 matrices are used in place by every processor, so the log has each host tensor once.
WRITTEN_AS = {"type": "BF16"}


def placements(n_layer: int) -> tuple[int, ...]:
    return 0, 1, (n_layer + 1) // 2, n_layer, -1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plan_is_what_a_real_load_allocates(family, tmp_path, device, engine):
    """Weights, cache, compute and output on each side, over placements, sides of the cache and its types."""
    path = write_model(tmp_path / f"{family}.gguf", family, **WRITTEN_AS)
    model = read_gguf(path)
    n_layer = FAMILIES[family][1].get("n_layer", SMALL["n_layer"])
    types = CACHE_TYPES[:3] if FAMILIES[family][1].get("mla") else CACHE_TYPES  # a latent is key and value in one
    grid = list(product(placements(n_layer), (True, False), types))
    asked = [settings_of(*point, endpoint=device.endpoint) for point in grid]
    plans = [predict_memory(model, settings) for settings in asked]
    differ, methods = [], Counter(plan.method for plan in plans)
    for plan, settings in zip(plans, asked, strict=True):
        told = measured_bytes(engine.open(path, settings).buffers, settings.rpc_servers)
        differ += [(plan.method, settings, gap) for gap in gaps_between(plan, told)]
    print(f"{family}: {len(plans)} loads, {dict(methods)}, {len(differ)} numbers differ")
    assert not differ, differ[:3]


def settings_of(n_gpu_layers, offload_kqv, types, endpoint):
    return Settings(
        n_ctx=2048,
        n_gpu_layers=n_gpu_layers,
        offload_kqv=offload_kqv,
        type_k=types[0],
        type_v=types[1],
        rpc_servers=(endpoint,),
        load_mode="none",
        swa_full=types[0] != "q8_0",
    )


def gaps_between(plan, told):
    """Every number of the plan that the log does not repeat; a cache of several parts is printed part by part."""
    for name, held in plan.devices.items():
        for kind, planned in held.parts.items():
            printed = told.get((name, kind), 0)
            if abs(planned - printed) > PRINTED * (2 if kind == "kv_cache" else 1):
                yield name, kind, planned, printed
