"""What the engine really reserves."""

import pytest

import inferlab as lab
from inferlab.memory import kv_cache_bytes

TINY = lab.tiny_model()


@pytest.mark.parametrize(("name", "share"), [("f16", 1), ("q8_0", 34 / 64), ("q4_0", 18 / 64)])
def test_only_the_caches_own_type_and_context_set_its_size(engine, name, share):
    """The type of the cache scales it by the bytes of its blocks."""
    settings = lab.Settings(n_ctx=1024, type_k=name, type_v=name)
    reserved = lab.reserved_bytes(TINY, settings, engine=engine)
    assert reserved == pytest.approx(share * 3 * 2**20, abs=0.0051 * 2**20)
    assert reserved == pytest.approx(kv_cache_bytes(lab.read_gguf(TINY), settings), abs=0.0051 * 2**20)


@pytest.mark.parametrize("kind", ["weights", "compute", "output"])
def test_every_kind_has_a_size(engine, kind):
    """Not only the cache can be asked for."""
    assert lab.reserved_bytes(TINY, lab.Settings(n_ctx=1024), kind, engine) > 0
