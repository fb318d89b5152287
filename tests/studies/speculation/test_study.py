"""Drafts: what is tried and accepted, what was recorded, and what the page says of it."""

import json
from statistics import median

import pytest

from inferlab.options.speculation import speculation_types
from inferlab.records import shipped
from studies.speculation import study
from studies.speculation.measure import DRAFTERS, KINDS, REQUESTS, n_repeated
from studies.speculation.speculative import Round


def raw(name):
    """The JSON of a record."""
    return json.loads(shipped()[f"epyc-2c/{name}"].read_text(encoding="utf-8"))


# --- what is tried and accepted ---------------------------------------------------------------


def test_a_token_is_tried_only_after_all_before_it():
    """Three proposed and one accepted: the first was accepted, the second tried, the third not even that."""
    rounds = [Round(3, 1, 0.0, 1.0), Round(3, 3, 0.0, 1.0), Round(1, 0, 0.0, 1.0), Round(0, 0, 0.0, 1.0)]
    assert study.by_position(rounds, 3) == ((3, 2, 1), (2, 1, 1))


def test_an_answer_that_repeats_itself_is_counted():
    """Tokens after four that were followed by the same token before."""
    assert n_repeated([1, 2, 3, 4, 5, 6, 7, 8]) == 0
    assert n_repeated([1, 2, 3, 4, 5, 1, 2, 3, 4, 5]) == 1
    assert n_repeated([1] * 10) == 5


def a_case():
    """One answer of 9 tokens: a round with three proposals and one accepted, one with three and three, one without."""
    answer = study.DraftedAnswer(
        rounds=(1, 0, 0, 2),
        tried=(2, 2, 1),
        accepted=(2, 1, 1),
        n_same=9,
        n_repeated=0,
        plain_seconds=8.0,
        draft_seconds=3.0,
        check_seconds=5.0,
        checks=(1.0, 0.0, 0.0, 4.0),
    )
    return study.AcceptanceCase("prose", "fake", (answer,))


def test_tokens_after_a_wrong_one_were_never_tried():
    """They count for the share of llama-server's log, not for the acceptance of a tried token."""
    case = a_case()
    assert [case.acceptance(position) for position in (1, 2, 3)] == [1.0, 0.5, 1.0]
    assert (case.pooled, case.accepted_share) == (4 / 5, 4 / 6)


def test_costs_are_counted_in_tokens_without_a_drafter():
    """A token takes a second here, a proposal half of one, and a check of three proposals two."""
    case = a_case()
    assert (case.draft_cost(9), case.check_cost(3, 9), case.check_cost(0, 9)) == (0.5, 2.0, 1.0)
    assert case.answers[0].speedup == 1.0


# --- what was recorded ------------------------------------------------------------------------


def test_every_answer_was_the_one_without_a_draft():
    """Tokens of a draft that is checked are the model's own; a near tie would show as a shorter common beginning."""
    found = study.served()
    assert all(n == found.n_gen for one in found.cases for n in one.n_same)


def test_rounds_and_accepted_tokens_make_up_each_answer():
    """Every pass gives one token of the model's own and those accepted; the first token comes from the prompt."""
    found = study.accepted()
    answers = [answer for one in found.cases for answer in one.answers]
    assert {sum(one.rounds) + sum(one.accepted) for one in answers} == {found.n_gen - 1}
    assert all(sum(one.checks) == pytest.approx(one.check_seconds) for one in answers)


def test_a_perfect_drafter_gains_nothing_with_one_proposal():
    """On the kernel whose pass over two tokens costs two: the limit is 1; with 15 proposals it is above 2."""
    one, fifteen = study.by_chance()[:2]
    low, high = one.speedups.interval
    assert (one.n_draft, one.acceptance, fifteen.n_draft, fifteen.acceptance) == (1, 1.0, 15, 1.0)
    assert low < 1 < high
    assert fifteen.speedups.interval[0] > 2


def test_no_recorded_case_is_above_its_limit():
    """And where the limit is 1 or less, all cases lost, although most proposals were accepted."""
    cases = study.predictions()
    assert all(one.speedup < one.limit for one in cases)
    lost = [one.speedup for one in cases if one.limit <= 1]
    assert len(lost) == 6
    assert max(lost) < 1


def test_a_recorded_speedup_is_predicted_from_other_answers():
    """With the cost of checks in the run, within a fifth for every drafter and text."""
    assert all(one.in_run == pytest.approx(one.speedup, rel=0.2) for one in study.predictions())


def test_the_records_are_those_that_the_calls_would_make():
    """Drafters, kinds and tasks of `measure` are those of the records, and its kinds are types of llama-server."""
    assert list(dict.fromkeys(one.drafter for one in study.accepted().cases)) == [*DRAFTERS]
    assert [(one.kind, one.task) for one in study.served().cases] == [(a, b) for a in KINDS for b in REQUESTS]
    assert {flags[0] for flags in KINDS.values()} <= set(speculation_types())


# --- what the page says -----------------------------------------------------------------------


def test_the_cost_of_a_check_is_the_median_of_its_turns():
    """Recomputed from the record's own seconds."""
    seconds = raw("verify-shape")["sequence"][0]["seconds"]
    cost = median(four / one for four, one in zip(seconds["4"], seconds["1"], strict=True))
    assert study.costs_table()[1][0][2] == f"{cost:.2f}"
    assert study.numbers()["least_default"] <= 4 / cost <= study.numbers()["most_default"]


def test_the_share_of_the_cache_is_that_of_the_raw_counts():
    """Accepted over drafted tokens of all its cases."""
    found = study.numbers()
    accepted, drafted = (
        sum(sum(one[field]) for one in raw("served-speculation")["cases"] if one["kind"] == "ngram-cache")
        for field in ("n_accepted", "n_drafted")
    )
    assert found["cache_share"] == 100 * accepted / drafted


def test_tokens_that_choose_at_random_wake_nearly_all_experts():
    """Two tokens wake nearly twice as many as one, 64 nearly all; the bytes grow less than the tokens."""
    found = study.mixture()
    assert 15 < found.woken[2] < 16
    assert found.n_expert - 3 < found.woken[64] < found.n_expert
    assert 1 < found.more_bytes[2] < 2


def test_a_pass_that_costs_its_tokens_never_pays():
    """Two tokens in the file's own layout cost two passes, so one proposal never pays, not even a free one."""
    heads, rows = study.bounds_table()
    one_free = {row[0]: row[heads.index("1 free")] for row in rows}
    assert one_free["Q4_K/Q6_K tiled"] == "never"
    assert [one for one in one_free.values() if one != "never"]


@pytest.mark.parametrize(
    "table", [study.mixture_table, study.positions_table, study.served_table, study.chance_table, study.predicted_table]
)
def test_every_row_has_a_value_for_each_head(table):
    """No table is empty or has holes."""
    heads, rows = table()
    assert rows
    assert all(len(row) == len(heads) and all(value != "" for value in row) for row in rows)
