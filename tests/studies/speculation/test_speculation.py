"""The bounds of speculation: what no acceptance can gain, and what is predicted for drafts of different lengths."""

from dataclasses import replace
from functools import partial
from statistics import median

import pytest
from fakes import BatchEngine

from inferlab.errors import InvalidSettings
from inferlab.records import load
from inferlab.statistics import median_interval
from studies.speculation.bounds import (
    bounds_text,
    cost_at,
    least_acceptance,
    most_speedup,
    predicted_speedup,
)
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


def test_a_cost_between_two_sizes_lies_on_the_line(costs):
    """Sizes 4 and 8 cost 1.6 and 2.4; 6 lies in the middle. Beyond the sizes nothing is guessed."""
    assert cost_at(costs, 4) == 1.6
    assert cost_at(costs, 6) == pytest.approx(2.0)
    with pytest.raises(InvalidSettings, match="only over 1 to 8"):
        cost_at(costs, 9)


def test_drafts_of_one_length_give_the_formula(costs):
    """And passes without a proposal dilute it."""
    v = partial(cost_at, costs)
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


def recorded_cases():
    """For each recorded case: its limit, its speed-up predicted from half of the answers, those of the other half."""
    found, alone = load("epyc-2c/acceptance"), load("epyc-2c/verify-tiny")[0]
    for one in found.cases:
        known, unseen = replace(one, answers=one.answers[::2]), one.answers[1::2]
        rounds = [sum(answer.rounds[n] for answer in known.answers) for n in range(found.n_draft + 1)]
        d, a = known.draft_cost(found.n_gen), known.pooled
        v = partial(lambda n, case: case.check_cost(n - 1, found.n_gen), case=known)
        limit = most_speedup(alone.cost(found.n_draft + 1), found.n_draft, d)
        yield limit, predicted_speedup(v, rounds, a, d), median(answer.speedup for answer in unseen)


def test_no_recorded_case_is_above_its_limit():
    """And where the limit is 1 or less, all cases lost, although most proposals were accepted."""
    cases = list(recorded_cases())
    assert all(measured < limit for limit, _, measured in cases)
    lost = [measured for limit, _, measured in cases if limit <= 1]
    assert len(lost) == 6
    assert max(lost) < 1


def test_a_recorded_speedup_is_predicted_from_other_answers():
    """With the cost of checks in the run, within a fifth for every drafter and text."""
    assert all(predicted == pytest.approx(measured, rel=0.2) for _, predicted, measured in recorded_cases())


def test_a_perfect_drafter_gains_nothing_with_one_proposal():
    """On the kernel whose pass over two tokens costs two: the limit is 1; with 15 proposals it is above 2."""
    one, fifteen = load("epyc-2c/fixed-acceptance")[:2]
    low, high = median_interval(one.speedups)
    assert (one.n_draft, one.acceptance, fifteen.n_draft, fifteen.acceptance) == (1, 1.0, 15, 1.0)
    assert low < 1 < high
    assert median_interval(fifteen.speedups)[0] > 2
