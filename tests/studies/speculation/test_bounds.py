"""The bounds of speculation: what no acceptance can gain, and what is predicted for drafts of different lengths."""

import pytest
from fakes import BatchEngine

from studies.speculation.bounds import bounds_text, least_acceptance, most_speedup, predicted_speedup
from studies.speculation.speculative import expected_tokens, time_verification


@pytest.fixture(scope="module")
def costs():
    """A step of the fake takes 1 + n / 4 seconds, so n tokens cost (4 + n) / 5 single ones."""
    return time_verification(sizes=(1, 4, 8), repeats=2, engine=BatchEngine())


@pytest.mark.parametrize(("n_draft", "draft_cost"), [(1, 0.0), (3, 0.0), (3, 0.3), (8, 0.1)])
def test_at_the_least_acceptance_the_speedup_is_one(n_draft, draft_cost):
    """Below it decode gets slower, above it faster."""
    spent = 1.5 + n_draft * draft_cost
    least = least_acceptance(1.5, n_draft, draft_cost)
    assert expected_tokens(least, n_draft) == pytest.approx(spent)
    assert 0 < least < 1


def test_no_acceptance_pays_for_a_pass_that_costs_its_tokens():
    """v + n d >= n + 1: even a drafter that is always right makes decode no faster."""
    assert least_acceptance(4.0, 3) is None
    assert least_acceptance(2.5, 3, draft_cost=0.5) is None
    assert most_speedup(2.5, 3, draft_cost=0.5) == 1
    assert most_speedup(2.0, 3) == 2


def test_a_free_pass_pays_always():
    """Where n + 1 tokens cost one, any acceptance is a gain."""
    assert least_acceptance(1.0, 3) == pytest.approx(0, abs=1e-12)


def test_drafts_of_one_length_give_the_formula(costs):
    """And passes without a proposal dilute it."""
    v = costs.cost
    assert predicted_speedup(v, (0, 0, 0, 5), 0.7) == pytest.approx(costs.speedup(0.7, 3))
    assert predicted_speedup(v, (7, 0, 0, 0), 0.7) == 1
    assert 1 < predicted_speedup(v, (5, 0, 0, 5), 0.9) < predicted_speedup(v, (0, 0, 0, 5), 0.9)
    assert predicted_speedup(v, (0, 0, 0, 5), 0.9, draft_cost=1.0) < 1


def test_the_bounds_of_every_size_are_said(costs):
    """Free proposals pay from some acceptance on; proposals as dear as tokens never do."""
    free, dear = bounds_text(costs).splitlines(), bounds_text(costs, 1.0).splitlines()
    assert free[0] == "3 proposals: the check costs 1.60, at most 2.50 times as fast, pays above 39 % acceptance"
    assert len(free) == 2
    assert all(line.endswith("no acceptance pays") for line in dear)
