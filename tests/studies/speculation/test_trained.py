"""Look-ups on a trained model: what llama-server's search proposes, and what was recorded on prompts of two halves."""

import json
from statistics import median

import pytest

from inferlab.records import shipped
from studies.speculation import trained
from studies.speculation.measure import LOOKUPS, RECIPES
from studies.speculation.prompts import N_SEEN, talks

BEGINNING = [9, 1, 2, 3, 4, 5, 6, 7, 8]


def raw(kind):
    """The cases of a record, as JSON."""
    return json.loads(shipped()[f"epyc-2c/{trained.record_of(kind)}"].read_text(encoding="utf-8"))["cases"]


# --- look-ups ---------------------------------------------------------------------------------


def test_the_tokens_after_the_latest_earlier_place_are_proposed():
    """At most size_m of them, and of two places those after the later one."""
    assert trained.ngram_simple([*BEGINNING, 1, 2], 2, 4) == [3, 4, 5, 6]
    assert trained.ngram_simple([*BEGINNING, 1, 2, 0, 0, 0, 1, 2], 2, 3) == [0, 0, 0]


@pytest.mark.parametrize(
    "text",
    [[*BEGINNING, 11, 12], [*BEGINNING, 9, 1], [*BEGINNING, 7, 8, 7, 8], [0, 1, 2, 3, 4, 1, 2]],
    ids=["no such place", "the first token", "too few tokens follow", "a short text"],
)
def test_without_a_place_or_enough_tokens_nothing_is_proposed(text):
    """As in llama.cpp: the first token is no place, and fewer tokens than were looked for are no draft."""
    proposed = trained.ngram_simple(text, 2, 4)
    assert not proposed


def test_passes_of_a_known_answer_are_counted():
    """1 2 is found: three of the four proposed tokens are the answer's own, and the others come one by one."""
    found = trained.passes(BEGINNING, [1, 2, 3, 4, 5, 0, 0], 2, 4)
    assert found == trained.Passes((2, 0, 0, 0, 1), 3)
    assert sum(found.rounds) + found.accepted == 6


# --- the prompts ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", trained.TEXTS)
def test_no_beginning_is_in_both_halves(text):
    """Sizes that are chosen on one half are not chosen on the other."""
    seen, unseen = talks(text, seen=True), talks(text, seen=False)
    assert len(seen) == len(unseen) == N_SEEN
    assert not {one.first for one in seen} & {one.first for one in unseen}


# --- what was recorded ------------------------------------------------------------------------


def test_the_sizes_are_those_that_the_seen_half_chose():
    """By the tokens that it accepted and the cost of a check, before the other half was asked."""
    n, m = trained.best_seen()
    assert f"ngram-simple {n}/{m}" == trained.CHOSEN
    assert set(LOOKUPS[trained.CHOSEN][2::2]) == {str(n), str(m)}


def test_every_kind_has_its_record_and_its_recipe():
    """Of all three texts, with two requests about each beginning."""
    assert {*trained.KINDS} == {*LOOKUPS}
    assert {trained.record_of(kind) for kind in trained.KINDS} <= RECIPES.keys()
    assert {(one.kind, one.text) for one in trained.unseen()} == {(a, b) for a in trained.KINDS for b in trained.TEXTS}
    assert {len(one.seconds) for one in trained.unseen()} == {2 * N_SEEN}


def test_tokens_a_pass_and_gains_are_those_of_the_raw_numbers():
    """Every pass gives its accepted tokens and one more; the seconds are those of a token."""
    one, code = raw(trained.CHOSEN)[0], trained.unseen_case(trained.CHOSEN, "code")
    n, accepted = one["n_tokens"], one["n_accepted"]
    per_pass = [(n[i] - 1) / (n[i] - 1 - accepted[i]) for i in range(len(n))]
    assert median(per_pass) == pytest.approx(median(code.tokens_per_pass))
    gains = [one["plain_seconds"][i] * (n[i] - 1) / one["seconds"][i] / (one["n_plain"][i] - 1) for i in range(len(n))]
    assert median(gains) == pytest.approx(trained.numbers()["tr_code_gain"])
    assert code.all_per_pass == pytest.approx((sum(n) - len(n)) / (sum(n) - len(n) - sum(accepted)))


def test_the_cases_are_faster_slower_or_neither():
    """And the tables have a row for each kind."""
    found = trained.numbers()
    assert found["tr_faster"] + found["tr_slower"] + found["tr_undecided"] == found["tr_cases"]
    for heads, rows in (trained.passes_table(), trained.gains_table()):
        assert [row[0] for row in rows] == [*trained.KINDS]
        assert {len(row) for row in rows} == {len(heads)}
