"""A whole conversation: every phase is in the record, and the clock ends with the last token."""

import sys

import pytest

import inferlab as lab
from inferlab.errors import EngineRefused, InvalidSettings
from studies.journey.journey import journey, journeys_in_turns


@pytest.mark.engine
def test_a_journey_has_a_process_and_every_token():
    """The load begins with the process; the clock has each token after the first, and the whole is no shorter."""
    one = journey(n_prompt=16, n_gen=5)
    seconds = {name: many[0] for name, many in one.phase_seconds.items()}
    at, n_tokens = one.clocks[0][-1]
    assert next(iter(one.loads[0])) == "process_seconds"
    assert n_tokens == 20
    assert at == pytest.approx(seconds["start"] + seconds["prefill"] + seconds["decode"])
    assert at <= seconds["whole"] + 1e-5


@pytest.mark.engine
def test_journeys_take_turns():
    """Each case has as many repetitions as rounds."""
    cases = {"a": (lab.Settings(), "full"), "b": (lab.Settings(), "empty")}
    found = journeys_in_turns(None, cases, 8, 2, 2)
    assert {one.case: len(one.passes) for one in found} == {"a": 2, "b": 2}


def test_an_unknown_state_of_the_page_cache_is_refused():
    """Only full and empty are states that can be made."""
    with pytest.raises(InvalidSettings, match="not one of full, empty"):
        journey(page_cache="warm")


@pytest.mark.engine
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits the memory of a loopback device")
def test_a_context_that_the_plan_refuses_is_refused_and_a_smaller_cache_loads():
    """On a device limited to a plan's bytes, a longer f16 cache does not load, and the same context in q8_0 does."""
    model = lab.make_shape("llama-3.2-1b", "Q4_0", n_layer=1, n_vocab=512, progress=False)
    with lab.loopback_device(n_threads=1) as device:
        first = device.settings(lab.Settings(n_ctx=32_768, n_ubatch=32, flash_attn="on"))
        with lab.limit_vram(lab.predict_memory(model, first).most_bytes("gpu0"), device):
            with pytest.raises(EngineRefused):
                journey(model, first.but(n_ctx=61_440), 8, 2)
            assert journey(model, first.but(n_ctx=61_440, type_k="q8_0", type_v="q8_0"), 8, 2).passes
