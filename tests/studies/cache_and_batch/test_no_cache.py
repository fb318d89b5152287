"""The engine without a KV cache."""

import pytest
from fakes import ScriptedEngine, scripted_pass

import inferlab as lab
from studies.cache_and_batch.no_cache import NoCacheEngine


@pytest.mark.engine
def test_it_generates_the_same_tokens_as_with_a_cache(engine):
    """Recomputing everything for each token gives the same tokens as keeping keys and values."""
    kept = lab.measure(n_prompt=16, n_gen=12, repeats=1, engine=engine, progress=False)
    again = lab.measure(n_prompt=16, n_gen=12, repeats=1, engine=NoCacheEngine(engine), progress=False)
    assert again.passes[0].tokens == kept.passes[0].tokens
    assert len(again.passes[0].decode_seconds) == 11


def test_each_token_is_requested_with_all_text_before_it():
    """The wrapped engine gets one more token each time, and generates one."""
    engine = ScriptedEngine([scripted_pass(gaps=())])
    NoCacheEngine(engine).generate([5, 6], 3)
    assert [(len(prompt), n_gen) for prompt, n_gen in engine.asked] == [(2, 1), (3, 1), (4, 1)]
