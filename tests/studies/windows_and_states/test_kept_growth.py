"""Growth by copies of prompts: computed, logged, and of the process."""

from dataclasses import replace

import pytest
from fakes import CARD, CPU_ONLY

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.settings import Settings
from studies.windows_and_states.kept import copy_bytes
from studies.windows_and_states.kept_growth import growth
from studies.windows_and_states.kept_prompts import EDIT, KeptPrompts, KeptTurn

TURN = KeptTurn("new", 100, 0, 0.5, 0.4, False, False, (), 1, 5000, 10_000)
LATER = replace(TURN, copies=3, copies_bytes=9000, rss_bytes=15_000)


def a_run(*turns):
    return KeptPrompts(model=CARD, settings=Settings(n_ctx=512), machine=CPU_ONLY, options=(), n_gen=4, turns=turns)


def test_growth_is_from_the_first_to_the_last_prompt():
    """Copies times the bytes of one with its answer, all tokens but the last of which are in the cache."""
    model = lab.known_model("llama-3.2-1b")
    found = growth(a_run(TURN, LATER), model)
    assert (found.n_copies, found.n_tokens, found.logged_bytes, found.rss_bytes) == (2, 103, 4000, 5000)
    assert found.computed_bytes == 2 * copy_bytes(model, Settings(n_ctx=512), 103)
    assert growth(a_run(TURN, replace(LATER, rss_bytes=None)), model).rss_bytes is None


@pytest.mark.parametrize("turns", [(TURN,), (TURN, replace(TURN, kind=EDIT))])
def test_growth_needs_unrelated_prompts(turns):
    """One prompt has no growth, and an edit may reuse a part."""
    with pytest.raises(InvalidSettings, match="at least two turns of the kind 'new'"):
        growth(a_run(*turns), lab.known_model("llama-3.2-1b"))
