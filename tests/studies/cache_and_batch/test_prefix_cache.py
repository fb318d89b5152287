"""A common beginning, read once."""

import pytest
from fakes import BatchEngine

import inferlab as lab
from studies.cache_and_batch.prefix_cache import pool_text, reuse_prefix


def test_only_what_is_new_is_read():
    """With a second a token, 60 shared tokens before 20 own ones make the wait four times as short."""
    found = reuse_prefix(n_shared=(60,), n_own=20, repeats=2, engine=BatchEngine(lambda n: float(n)))
    (one,) = found.prefixes
    assert (one.whole_seconds, one.reused_seconds) == ((80.0, 80.0), (20.0, 20.0))
    assert one.gain == 4.0
    assert one.read_share == 0.25
    assert found.settings.kv_unified


@pytest.mark.engine
def test_llama_cpp_gives_the_same_first_token(engine):
    """Reuse is exact on the embedded model: what was read once says the same as what was read again."""
    asked = lab.Settings(flash_attn="on")
    found = reuse_prefix(settings=asked, n_shared=(64, 200), n_own=8, repeats=2, engine=engine)
    assert [one.same_picks for one in found.prefixes] == [(True, True)] * 2
    assert found.badge.startswith("measured")


@pytest.mark.engine
def test_a_pool_holds_four_sequences_that_share_a_beginning(engine):
    """440 of 512 cells where they share it; without, the second sequence finds no space for its 410."""
    shared, apart = pool_text("tiny", lab.Settings(flash_attn="on"), engine).splitlines()
    assert shared == "shared: the four first tokens are equal"
    assert apart.startswith("not shared, sequence 2: ")
