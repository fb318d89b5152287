"""Speculative decoding: the answer is the model's own with every drafter."""

from functools import partial

import pytest
from fakes import BatchEngine

import inferlab as lab
from inferlab.engine.client import LlamaEngine
from inferlab.errors import InvalidSettings
from studies.speculation.speculative import (
    DraftModel,
    PromptLookup,
    expected_tokens,
    speculate,
    speculate_at,
    time_verification,
)

WORDS = "one three five"  # tokens 3, 5, 4 of the fake, which goes on counting from the last


class Stubborn:
    """Proposes the same tokens for ever, a second each."""

    name = "stubborn"

    def __init__(self, *tokens):
        self.tokens = tokens

    def propose(self, text, n):
        return list(self.tokens[:n]), 1.0

    def close(self):
        pass


class Counting:
    """Goes on counting from the last token, as the fake does, in no time."""

    name = "counting"

    def propose(self, text, n):
        return [text[-1] + 1 + i for i in range(n)], 0.0

    def close(self):
        pass


def speculated(drafter, **asked):
    return speculate(WORDS, drafter, engine=BatchEngine(), **({"n_gen": 8, "repeats": 2} | asked))


def test_the_answer_is_the_models_own_whatever_is_proposed():
    """A drafter that is always wrong costs time and changes nothing."""
    found = speculated(Stubborn(7, 7, 7))
    assert found.same_tokens
    assert found.acceptance < 0.1
    assert found.speedup < 1


def test_rounds_and_seconds_add_up():
    """Four tokens a round at 2 seconds instead of 1.25 each: seven tokens after the first in two rounds."""
    found = speculate(WORDS, Counting(), n_draft=3, n_gen=9, repeats=1, engine=BatchEngine())
    assert [(one.proposed, one.accepted) for one in found.rounds[0]] == [(3, 3), (3, 3)]
    assert found.plain_seconds == (8 * 1.25,)
    assert found.seconds == (2 * 2.0,)
    assert found.speedup == 2.5
    assert found.tokens_per_round == 4
    assert found.acceptance == 1


def test_rejected_tokens_leave_the_cache():
    """After each verification no rejected token is in the cache; the engine would refuse otherwise."""
    found = speculate(WORDS, Stubborn(5, 9, 9), n_draft=3, n_gen=6, repeats=1, engine=BatchEngine())
    assert found.same_tokens
    assert sum(one.accepted + 1 for one in found.rounds[0]) == 5


def test_nothing_is_proposed_without_a_precedent():
    """Prompt lookup proposes what followed the last occurrence, and nothing if there is none."""
    look = PromptLookup(2)
    assert look.propose([1, 2, 3, 9, 1, 2], 3)[0] == [3, 9, 1]
    assert look.propose([1, 2, 3, 4, 1, 2, 5, 1, 2], 1)[0] == [5]
    assert look.propose([1, 2, 3], 3)[0] == []
    assert look.propose([1], 3)[0] == []


def test_a_proposal_costs_its_share_of_a_token():
    """A second for each proposal, where a token takes 1.25 seconds."""
    assert speculated(Stubborn(7), n_gen=9).draft_cost == pytest.approx(0.8)


def test_without_a_proposal_there_is_no_acceptance():
    """Unknown stays unknown: a share of nothing is None."""
    found = speculated(PromptLookup(2))
    assert found.acceptance is None
    assert found.draft_cost is None
    assert found.tokens_per_round == 1


def test_a_draft_model_reads_only_what_is_new():
    """Cached tokens of the text are kept; cached tokens after the first rejected one are dropped."""
    engine = BatchEngine()
    drafter = DraftModel("tiny", engine=engine)
    assert drafter.propose([1, 2, 3], 2)[0] == [4, 5]
    assert engine.steps == [3, 1]
    assert drafter.propose([1, 2, 3, 4, 9], 2)[0] == [10, 11]
    assert engine.steps == [3, 1, 1, 1]
    assert drafter.propose([1, 2, 3, 4, 9], 1)[0] == [10]
    drafter.close()


def test_acceptance_by_chance_needs_no_text():
    """All accepted give 2.5 times, none the cost of verification; the text is nobody's answer."""
    sure, never = (speculate_at(rate, n_gen=9, repeats=2, engine=BatchEngine()) for rate in (1.0, 0.0))
    assert (sure.speedups.ratios, sure.acceptance, sure.text) == ((2.5, 2.5), 1.0, None)
    assert never.acceptance == 0
    assert never.tokens_per_round == 1
    assert never.speedup < 1
    assert not sure.same_tokens


@pytest.mark.parametrize(("rate", "n_draft", "tokens"), [(0.0, 3, 1.0), (1.0, 3, 4.0), (0.5, 2, 1.75)])
def test_expected_tokens_of_a_round(rate, n_draft, tokens):
    """One without hits, all and one more with nothing but hits, a geometric sum between."""
    assert expected_tokens(rate, n_draft) == tokens


def test_a_cost_is_counted_in_passes_over_one_token():
    """With a step of 1 + n / 4 seconds, four tokens cost 1.6 single ones; with all accepted, the speed-up is 2.5."""
    costs = time_verification(sizes=(1, 4), repeats=2, engine=BatchEngine())
    assert costs.seconds == {1: (1.25, 1.25), 4: (2.0, 2.0)}
    assert costs.cost(4) == 1.6
    assert costs.speedup(1.0, n_draft=3) == 2.5
    assert costs.speedup(0.0, n_draft=3) == 1 / 1.6
    assert costs.speedup(1.0, n_draft=3, draft_cost=0.8) == 1.0


def test_a_cost_between_two_sizes_lies_on_the_line():
    """Sizes 4 and 8 cost 1.6 and 2.4; 6 lies in the middle. Beyond the sizes nothing is guessed."""
    costs = time_verification(sizes=(1, 4, 8), repeats=2, engine=BatchEngine())
    assert costs.cost(6) == pytest.approx(2.0)
    with pytest.raises(InvalidSettings, match="only over 1 to 8"):
        costs.cost(9)


def test_the_measured_speedup_is_that_of_the_formula():
    """With drafts accepted by chance, the speed-up is the one computed from the costs, within random variation."""
    found = speculate_at(0.7, n_draft=3, n_gen=900, repeats=1, engine=BatchEngine())
    costs = time_verification(sizes=(1, 4), repeats=1, engine=BatchEngine())
    assert found.speedup == pytest.approx(costs.speedup(0.7, 3), rel=0.05)


@pytest.mark.parametrize(
    ("measured", "asked"),
    [(time_verification, {"sizes": (2,)}), (time_verification, {"n_prompt": 0})]
    + [(partial(speculate, WORDS, PromptLookup()), {name: 0}) for name in ("n_draft", "n_gen", "repeats")],
)
def test_nothing_to_time_or_write_is_refused(measured, asked):
    """At least one proposal, token and pass; costs are relative to one token, which must be among the sizes."""
    with pytest.raises(InvalidSettings, match="at least 1"):
        measured(engine=BatchEngine(), **asked)


@pytest.mark.engine
def test_llama_cpp_writes_its_own_answer_with_a_draft():
    """Most proposals of a copy of the embedded model are accepted, and the text is the one without a draft.

    Checks of several tokens are computed by other kernels than single tokens, so a tie may fall to the other side.
    """
    engine = LlamaEngine()
    drafter = DraftModel("tiny", n_ctx=256, n_threads=1)
    asked = lab.Settings(flash_attn="on")
    found = speculate("The csv module implements", drafter, "tiny", asked, 3, 24, 1, engine)
    drafter.close()
    engine.close()
    assert found.acceptance > 0.8
    assert found.tokens_per_round > 2.5
    assert found.text
    assert found.badge.startswith("measured")
