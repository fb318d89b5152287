"""How often the memory of a load, derived from its log alone, is what the log prints; data/facts/log_memory.toml."""

from collections import Counter

import pytest
from marks import needs_rpc
from small_models import FAMILIES, write_model

from inferlab.errors import EngineRefused
from inferlab.facts import read_table
from inferlab.results.log_memory import derive_memory
from inferlab.settings import Settings

pytestmark = [pytest.mark.engine, needs_rpc]

GRID = {
    "host": {"n_ctx": 2048, "n_gpu_layers": 0},
    "host, 4 sequences": {"n_ctx": 4096, "n_seq_max": 4, "n_ubatch": 256, "n_gpu_layers": 0, "swa_full": False},
    "host, no flash attention": {"n_ctx": 1024, "n_gpu_layers": 0, "flash_attn": "off", "type_k": "q8_0"},
    "device": {"n_ctx": 2048, "swa_full": False},
    "part of the layers": {"n_ctx": 3000, "n_gpu_layers": 3},
    "q8_0": {"n_ctx": 2048, "type_k": "q8_0", "type_v": "q8_0", "n_ubatch": 128},
    "shared cells": {"n_ctx": 4096, "n_seq_max": 3, "kv_unified": True, "flash_attn": "on", "swa_full": False},
    "cache on the host": {"n_ctx": 2048, "offload_kqv": False},
    "no mapping": {"n_ctx": 2048, "n_gpu_layers": 2, "load_mode": "none"},
}
CACHES = ("kv_cache", "states")


def test_the_published_counts_are_counted_again(tmp_path, device, engine):
    """Every family in every setting: buffers that agree to 0.01 MiB, those in a range, and none that differs."""
    counts = Counter()
    for family in FAMILIES:
        path = write_model(tmp_path / f"{family}.gguf", family)
        for values in GRID.values():
            servers = () if values.get("n_gpu_layers") == 0 else (device.endpoint,)
            try:
                log = engine.open(path, Settings(**values, rpc_servers=servers)).log
            except EngineRefused:
                continue
            counts["loads"] += 1
            for row in derive_memory(log).rows:
                kind = "caches" if row.kind in CACHES else row.kind
                counts[f"{kind}, {row.state}"] += 1
    published = read_table("log_memory")["real_loads"]
    assert counts == {
        "loads": published["loads"],
        "caches, agrees": published["caches"],
        "weights, agrees": published["weights"],
        "weights, in range": published["weights_in_range"],
        "output, agrees": published["outputs"],
        "compute, agrees": published["compute_exact"],
        "compute, in range": published["compute_in_range"],
    }
    assert published["architectures"] == len({architecture for architecture, _, _ in FAMILIES.values()})
