"""Time of sampler chains: which chains are called, and what share of a token they take."""

import pytest
from fakes import ScriptedEngine

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Sampler
from inferlab.errors import EngineRefused, InvalidSettings
from inferlab.measurement.sampling import CHAINS, FLAT, SHARP, sample_times


class SamplingEngine(ScriptedEngine):
    """A decode step takes 9 s; the i-th chain takes i + 1 s, and as much again for each unit of the exponent."""

    def sample(self, prompt, chains, exponent, repeats):
        return [[(i + 1) * exponent] * repeats for i in range(len(chains))], [9.0] * len(chains) * repeats


def test_a_share_counts_the_chain_and_the_step_before_it():
    """One second beside a step of nine is a tenth; the second chain on sharp logits takes four."""
    found = sample_times(chains={"a": CHAINS["default"], "b": ()}, repeats=3, engine=SamplingEngine())
    assert (found.seconds("a", FLAT), found.seconds("b", SHARP), found.step_seconds) == (1.0, 4.0, 9.0)
    assert found.share("a", FLAT) == 0.1
    assert len(found.decode_seconds) == 2 * 2 * 3
    assert found.chains[0].samplers == CHAINS["default"]


@pytest.mark.parametrize("asked", [{"chains": {}}, {"exponents": ()}, {"repeats": 0}, {"n_prompt": 0}])
def test_nothing_to_time_is_refused(asked):
    """At least one chain, one distribution, one repetition, one token."""
    with pytest.raises(InvalidSettings, match="at least"):
        sample_times(engine=SamplingEngine(), **asked)


def test_a_chain_that_was_not_measured_is_refused():
    """Its name and the exponent are said."""
    found = sample_times(repeats=1, engine=SamplingEngine())
    with pytest.raises(InvalidSettings, match=r"'mirostat' on logits of exponent 2\.0"):
        found.seconds("mirostat")


@pytest.mark.engine
def test_llama_cpp_times_every_chain():
    """All chains run on the embedded model; sorting a flat vocabulary takes longer than cutting it to 40 tokens."""
    engine = LlamaEngine()
    found = sample_times(repeats=5, engine=engine)
    with pytest.raises(EngineRefused, match="no sampler 'wish'"):
        engine.sample([1, 2], [[Sampler("wish")]], SHARP, 1)
    with pytest.raises(EngineRefused, match="no cell for the next"):
        engine.sample([1] * 256, [[Sampler("greedy")]], SHARP, 1)
    engine.close()
    assert {one.name for one in found.chains} == set(CHAINS)
    assert all(0 < seconds < 1 for one in found.chains for seconds in one.seconds)
    assert found.seconds("top-k off", FLAT) > found.seconds("default", FLAT)
    assert found.settings.n_ctx == 256
