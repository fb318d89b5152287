"""Time of sampler chains: which chains are called, and what share of a token they take."""

import pytest
from fakes import ScriptedEngine

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Sampler
from inferlab.errors import EngineRefused, InvalidSettings
from studies.sampling_cost.sampling import (
    CHAINS,
    DEFAULT_CHAIN,
    FLAT,
    NINE,
    RANGES,
    SHARP,
    chains_named,
    require_sampling,
    sample_times,
)


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


@pytest.mark.parametrize("asked", [{"chains": {}}, {"exponents": ()}, {"repeats": 0}])
def test_nothing_to_time_is_refused(asked):
    """At least one chain, one distribution, one repetition."""
    with pytest.raises(InvalidSettings, match="at least"):
        sample_times(engine=SamplingEngine(), **asked)


def test_some_chains_are_chosen_by_their_names():
    """An unknown one is refused with the known ones."""
    assert chains_named("default", "DRY") == {"default": DEFAULT_CHAIN, "DRY": CHAINS["DRY"]}
    with pytest.raises(InvalidSettings, match="no chain 'mirostat'"):
        chains_named("mirostat")


def test_a_chain_that_was_not_measured_is_refused():
    """Its name and the exponent are said."""
    found = sample_times(repeats=1, engine=SamplingEngine())
    with pytest.raises(InvalidSettings, match=r"'mirostat' on logits of exponent 2\.0"):
        found.seconds("mirostat")


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("temperature", (-1.0,), "likeliest token"),
        ("top_k", (-5,), "keep all tokens"),
        ("top_p", (1.5,), "top_p=1.5 must be 0 to 1"),
        ("min_p", (-0.1,), "switch it off"),
        ("typ_p", (2.0,), "switch it off"),
        ("xtc", (0.5, 0.9, 1), "xtc-threshold=0.9"),
        ("penalties", (-1, 1.1, 0.0, 0.0), "repeat-last-n"),
        ("dry", (0.8, 0.5, 2, 64), "dry-base=0.5 must be 1 or more"),
        ("grammar", ('word ::= "yes"',), "no rule 'root'"),
        ("grammar_check", ("",), "leave the sampler out"),
    ],
)
def test_a_value_that_llama_cpp_takes_for_another_is_refused(name, values, says):
    """The error says what llama.cpp would do without a word."""
    with pytest.raises(InvalidSettings, match=says):
        sample_times(chains={"one": (Sampler(name, values),)}, engine=SamplingEngine())


def test_every_chain_of_the_table_is_sensible():
    """The values that switch a sampler off are allowed: the whole list of llama-server has five of them."""
    require_sampling([one for chain in CHAINS.values() for one in chain])
    assert {one.name for one in NINE} == {*RANGES, "top_n_sigma", "dist"}
    assert [one for one in NINE if one in DEFAULT_CHAIN] == list(DEFAULT_CHAIN)


@pytest.mark.engine
@pytest.mark.timed
def test_llama_cpp_times_every_chain():
    """All chains run on the embedded model. Sorting a flat vocabulary takes longer than cutting it to 40 tokens, and a
    rejected token longer than one that the grammar allows.
    """
    engine = LlamaEngine()
    found = sample_times(repeats=5, engine=engine)
    with pytest.raises(EngineRefused, match="no sampler 'wish'"):
        engine.sample([1, 2], [[Sampler("wish")]], SHARP, 1)
    with pytest.raises(EngineRefused, match="made no grammar"):
        engine.sample([1, 2], [[*DEFAULT_CHAIN, Sampler("grammar_check", ("root ::= nothing",))]], SHARP, 1)
    with pytest.raises(EngineRefused, match="no cell for the next"):
        engine.sample([1] * 256, [[Sampler("greedy")]], SHARP, 1)
    engine.close()
    assert {one.name for one in found.chains} == set(CHAINS)
    assert all(0 < seconds < 1 for one in found.chains for seconds in one.seconds)
    assert found.seconds("top-k off", FLAT) > found.seconds("default", FLAT)
    assert found.settings.n_ctx == 256
    assert found.seconds("grammar, token rejected") > found.seconds("grammar, token allowed")
    assert found.seconds("grammar before top-k, any text") > found.seconds("grammar, token allowed")
