"""Accepted tokens by their position: what is tried, what is accepted, and what a repeating answer is."""

import pytest
from fakes import BatchEngine

from inferlab.errors import InvalidSettings
from studies.speculation.acceptance import by_position, measure_acceptance, n_repeated
from studies.speculation.speculative import Round


class RightUntil:
    """Proposes the fake's own tokens, wrong from a position on; each proposal takes a second."""

    name = "right until"

    def __init__(self, n_right):
        self.n_right = n_right

    def propose(self, text, n):
        return [text[-1] + 1 + i + (i >= self.n_right) for i in range(n)], float(n)

    def close(self):
        pass


def measured(n_right, **asked):
    prompts = {"counting": [[3, 4], [7, 8, 9]]}
    wanted = {"prompts": prompts, "n_draft": 3, "n_gen": 9} | asked
    return measure_acceptance({"fake": lambda: RightUntil(n_right)}, engine=BatchEngine(), progress=False, **wanted)


def test_a_token_is_tried_only_after_all_before_it():
    """Three proposed and one accepted: the first was accepted, the second tried, the third not even that."""
    rounds = [Round(3, 1, 0.0, 1.0), Round(3, 3, 0.0, 1.0), Round(1, 0, 0.0, 1.0), Round(0, 0, 0.0, 1.0)]
    assert by_position(rounds, 3) == ((3, 2, 1), (2, 1, 1))


def test_the_acceptance_of_each_position_is_the_drafters():
    """A drafter that is right twice and then wrong has 1, 1 and 0."""
    case = measured(2).of("counting", "fake")
    assert [case.acceptance(position) for position in (1, 2, 3)] == [1.0, 1.0, 0.0]
    assert case.accepted_share == case.pooled
    assert all(one.n_same == 9 for one in case.answers)


def test_tokens_after_a_wrong_one_were_never_tried():
    """They count for the share of llama-server's log, not for the acceptance of a tried token."""
    case = measured(1).of("counting", "fake")
    assert case.acceptance(2) == 0
    assert case.acceptance(3) is None
    assert 0 < case.accepted_share < case.pooled < 1


def test_a_position_that_was_never_tried_has_no_acceptance():
    """Unknown stays unknown."""
    case = measured(0).of("counting", "fake")
    assert case.acceptance(1) == 0
    assert case.acceptance(2) is None


def test_seconds_and_passes_add_up():
    """Eight tokens after the first: three passes with a draft of 3 and 3, and one of the rest; a proposal costs 0.8."""
    found = measured(9)
    first = found.of("counting", "fake").answers[0]
    assert first.rounds == (0, 0, 0, 2)
    assert first.n_proposed == 6
    assert first.plain_seconds == 8 * 1.25
    assert (first.draft_seconds, first.check_seconds) == (6.0, 2 * 2.0)
    assert first.checks == (0, 0, 0, 4.0)
    assert first.speedup == 1.0
    assert found.of("counting", "fake").check_cost(3, found.n_gen) == 1.6
    assert found.of("counting", "fake").check_cost(2, found.n_gen) is None
    assert found.of("counting", "fake").draft_cost(found.n_gen) == pytest.approx(0.8)
    assert found.of("counting", "fake").tokens_per_round == 4


def test_an_unknown_case_is_answered_with_the_known_ones():
    """And a draft of nothing is refused."""
    with pytest.raises(InvalidSettings, match="only: fake on counting"):
        measured(1).of("prose", "fake")
    with pytest.raises(InvalidSettings, match="n_draft must be at least 1"):
        measured(1, n_draft=0)


def test_an_answer_that_repeats_itself_is_counted():
    """Tokens after four that were followed by the same token before."""
    assert n_repeated([1, 2, 3, 4, 5, 6, 7, 8]) == 0
    assert n_repeated([1, 2, 3, 4, 5, 1, 2, 3, 4, 5]) == 1
    assert n_repeated([1] * 10) == 5


@pytest.mark.engine
def test_prompts_of_three_kinds():
    """A repeating prompt ends with its own beginning."""
    from inferlab.engine.session import default_engine
    from inferlab.model.find import tiny_model
    from studies.speculation.acceptance import CODE, N_AGAIN, PROSE, REPEATING, prompts_of

    engine = default_engine()
    engine.open_vocabulary(tiny_model())
    found = prompts_of(engine, 2, 96)
    assert set(found) == {PROSE, REPEATING, CODE}
    assert all(len(one) == 96 for some in found.values() for one in some)
    assert found[REPEATING][1][-N_AGAIN:] == list(found[PROSE][1][:N_AGAIN])
