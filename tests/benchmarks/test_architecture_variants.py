"""The cache of every architecture with random dimensions against llama.cpp: no rule fits one size alone."""

from random import Random

import pytest
from architecture_files import unpack
from header_variants import completed, variant

from inferlab.engine import dry_run
from inferlab.errors import EngineError, InvalidSettings
from inferlab.prediction.memory.cache import kv_cache_bytes
from inferlab.settings import Settings
from inferlab.units import MIB

PRINTED = 0.0051 * MIB  # llama.cpp prints the size of each cache to 0.01 MiB
SEED, TRIES, PARTS, LEAST = 2607, 3, 8, 8
ASKED = (
    {"n_ctx": 1024},
    {"n_ctx": 4096, "n_seq_max": 4, "kv_unified": True, "n_ubatch": 128},
    {"n_ctx": 3000, "n_seq_max": 3, "swa_full": True},
    {"n_ctx": 2048, "n_seq_max": 2, "flash_attn": "off"},
)


@pytest.mark.engine
@pytest.mark.parametrize("part", range(PARTS))
def test_other_dimensions_have_the_cache_that_llama_cpp_would_make(part, tmp_path, engine):
    """One variant of each file that llama.cpp takes, of up to three tries: dimensions that do not fit it refuses."""
    agreed, differ = [], []
    for name, model in list(unpack(tmp_path).items())[part::PARTS]:
        random = Random(f"{SEED} {name}")
        for _ in range(TRIES):
            settings = Settings(devices=(), **random.choice(ASKED))
            keys = variant(model, random)
            try:
                made, log = completed(engine, tmp_path / "variant.gguf", keys, settings)
            except (EngineError, InvalidSettings):
                continue
            simulated = dry_run.read_log(log).caches
            gap = abs(kv_cache_bytes(made, settings) - sum(cache.n_bytes for cache in simulated))
            (agreed if gap <= PRINTED * max(1, len(simulated)) else differ).append(name)
            break
    print(f"{len(agreed)} of {len(agreed) + len(differ)} variants agree")
    assert not differ
    assert len(agreed) >= LEAST
