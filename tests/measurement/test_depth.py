"""Decode at depth."""

from dataclasses import replace

import pytest
from fakes import BatchEngine

import inferlab as lab
from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Step
from inferlab.errors import InvalidSettings
from inferlab.measurement.depth import DepthScaling, compare_rounds, decode_at_depths, decode_beside, decode_in_turns
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.prediction.memory import kv_cache_bytes


class DeepEngine(BatchEngine):
    """A step costs a second and a hundredth for each cell, rounded up to whole 256-cell steps."""

    def step(self, entries):
        picks = super().step(entries).picks
        return Step(1 + -(-len(self.cells[0]) // 256) * 2.56, picks)


def test_tokens_of_one_depth_look_at_the_cells_that_were_asked_for():
    """All counted tokens lie in the 256-cell step of their depth, and the slope gives the seconds per cell."""
    found = decode_at_depths(cells=(1024, 256), n_gen=4, engine=DeepEngine())
    assert found.seconds == {256: (3.56,) * 4, 1024: pytest.approx((11.24,) * 4)}
    assert found.cell_seconds == pytest.approx(0.01)


def test_the_prompt_is_read_once():
    """From one depth to the next only the tokens between them are computed."""
    engine = BatchEngine()
    decode_at_depths(cells=(256, 512), n_gen=4, engine=engine)
    assert engine.steps == [251, *[1] * 5, 256, *[1] * 5]


@pytest.mark.parametrize("asked", [{"cells": ()}, {"cells": (300,)}, {"cells": (0,)}, {"n_gen": 0}, {"n_gen": 256}])
def test_part_of_a_step_is_refused(asked):
    """Depths are whole 256-cell steps, and the tokens of one depth lie within one."""
    with pytest.raises(InvalidSettings, match="multiples of 256"):
        decode_at_depths(engine=BatchEngine(), **asked)


def test_settings_take_turns_at_every_depth():
    """Each round decodes with one engine and then with the other; both read the prompt once."""
    choices = [lab.Settings(flash_attn=switch) for switch in ("on", "off")]
    engines = [BatchEngine(), BatchEngine(lambda n: 2.0)]
    fast, slow = decode_in_turns(None, choices, cells=(256, 512), n_gen=4, rounds=2, engines=engines)
    assert [one.settings.flash_attn for one in (fast, slow)] == ["on", "off"]
    assert fast.seconds == {256: (1.25,) * 8, 512: (1.25,) * 8}
    assert slow.seconds == {256: (2.0,) * 8, 512: (2.0,) * 8}
    assert engines[0].steps == engines[1].steps == [251, *[1] * 10, 256, *[1] * 10]


def test_a_token_beside_another_sequence_is_timed_in_the_same_pool():
    """The sequence goes on where it was; the other one's cells lie in the same pool."""
    engine = BatchEngine()
    found = decode_beside(None, lab.Settings(), n_others=512, n_own=128, n_gen=4, engine=engine)
    assert (found.settings.kv_unified, found.settings.n_seq_max) == (True, 2)
    assert engine.steps == [128, *[1] * 5, 512, *[1] * 5]
    assert {n: len(seconds) for n, seconds in found.seconds.items()} == {256: 4, 768: 4}


@pytest.mark.engine
def test_llama_cpp_at_two_depths():
    """The embedded model decodes behind 256 and 512 cells, in a cache as large as predicted."""
    engine = LlamaEngine()
    found = decode_at_depths(settings=lab.Settings(flash_attn="on"), cells=(256, 512), n_gen=3, engine=engine)
    engine.close()
    assert [len(found.seconds[n]) for n in (256, 512)] == [3, 3]
    assert found.kv_cache_bytes == kv_cache_bytes(read_gguf(tiny_model()), found.settings)


def test_rounds_are_compared_one_by_one():
    """Sums of the tokens of each round; other numbers of tokens are refused."""
    found = decode_at_depths(cells=(256,), n_gen=4, engine=DeepEngine())
    twice = replace(found, seconds={256: (2.0, 2.0, 3.0, 5.0)})
    once = replace(found, seconds={256: (1.0, 1.0, 2.0, 2.0)})
    assert isinstance(twice, DepthScaling)
    assert compare_rounds(twice, once, 256, rounds=2).ratios == (2.0, 2.0)
    with pytest.raises(InvalidSettings, match="4 and 4 tokens are not the same number in each of 3 rounds"):
        compare_rounds(twice, once, 256, rounds=3)
