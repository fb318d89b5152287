"""Decode at depth."""

import pytest
from fakes import BatchEngine

import inferlab as lab
from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Step
from inferlab.errors import InvalidSettings
from inferlab.measurement.depth import decode_at_depths
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


@pytest.mark.engine
def test_llama_cpp_at_two_depths():
    """The embedded model decodes behind 256 and 512 cells, in a cache as large as predicted."""
    engine = LlamaEngine()
    found = decode_at_depths(settings=lab.Settings(flash_attn="on"), cells=(256, 512), n_gen=3, engine=engine)
    engine.close()
    assert [len(found.seconds[n]) for n in (256, 512)] == [3, 3]
    assert found.kv_cache_bytes == kv_cache_bytes(read_gguf(tiny_model()), found.settings)
