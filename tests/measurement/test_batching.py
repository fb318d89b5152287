"""Batched decode: with a scripted engine, and with llama.cpp on the embedded model."""

import pytest
from fakes import BatchEngine

from inferlab.engine.client import LlamaEngine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import with_context
from inferlab.measurement.batching import batched_decode
from inferlab.settings import Settings


def served(**asked):
    return batched_decode(
        engine=BatchEngine(), progress=False, **({"sizes": (1, 4), "n_prompt": 5, "n_gen": 3} | asked)
    )


def test_each_sequence_gets_one_token_per_step():
    """With a step of 1 + n / 4 seconds, four sequences get two tokens a second together, half of one each."""
    found = served()
    assert found.at(1).median_seconds == 1.25
    assert found.at(4).tokens_per_second == 2.0
    assert found.at(4).each_tokens_per_second == 0.5
    assert found.gain(4) == pytest.approx(2.0 / 0.8)


def test_sizes_take_turns_and_warm_up():
    """Every round goes through all sizes, and the first step of each turn is not among the counted ones."""
    engine = BatchEngine()
    found = batched_decode(sizes=(1, 4), n_prompt=5, n_gen=3, repeats=2, engine=engine, progress=False)
    assert engine.steps == [5, *[1] * 4, *[4] * 8, *[1] * 4]
    assert [len(point.step_seconds) for point in found.points] == [6, 6]


def test_the_prompts_stay_cached_after_a_turn():
    """Every turn begins after the same prompt, so that sizes are compared at one depth."""
    engine = BatchEngine()
    batched_decode(sizes=(1, 2), n_prompt=5, n_gen=3, engine=engine, progress=False)
    assert {len(tokens) for tokens in engine.cells.values()} == {5}


def test_the_context_has_cells_for_each_sequence():
    """Cells for as many sequences as the largest batch, in whole 256-cell steps; an n_ctx that is set is kept."""
    assert with_context(Settings(), 249, 8, n_sequences=8).n_ctx == 8 * 512
    assert with_context(Settings(n_ctx=1024), 249, 8, n_sequences=8) == Settings(n_ctx=1024, n_seq_max=8)


def test_a_size_that_was_not_measured_is_refused_with_the_measured_sizes():
    """A size that was not measured is not interpolated."""
    with pytest.raises(InvalidSettings, match="batch of 3 sequences was measured, only of 1, 4"):
        served().at(3)


@pytest.mark.parametrize("asked", [{"sizes": ()}, {"sizes": (0,)}, {"n_gen": 0}, {"repeats": 0}])
def test_nothing_to_measure_is_refused(asked):
    """At least one sequence, one token, one turn."""
    with pytest.raises(InvalidSettings, match="at least 1"):
        served(**asked)


@pytest.mark.engine
@pytest.mark.parametrize("unified", [False, True])
def test_llama_cpp_decodes_for_several(unified):
    """On the embedded model, three sequences cost more than one, and their cache is there for each of them."""
    engine = LlamaEngine()
    asked = Settings(flash_attn="on", kv_unified=unified)
    found = batched_decode(settings=asked, sizes=(1, 3), n_prompt=16, n_gen=4, repeats=1, engine=engine, progress=False)
    engine.close()
    assert found.settings.n_seq_max == 3
    assert all(seconds > 0 for point in found.points for seconds in point.step_seconds)
    assert found.badge.startswith("measured")
