"""The journey: the computed card, the recorded conversations, and the errors of their predictions."""

import json
from statistics import median

import pytest

from handbook.key_facts import longest_context
from inferlab.records import shipped
from studies.cold_start.wait import recorded_places, recorded_rates
from studies.journey import card, study


@pytest.fixture(scope="module")
def predicted():
    return study.predictions(recorded_rates(), recorded_places())


@pytest.fixture(scope="module")
def longest():
    return longest_context("mistral-7b-v0.3")


def rows_of(table):
    heads, rows = table
    return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


def test_a_clock_ends_with_the_last_token():
    """Engine time is no longer than the whole with all waits, but for rounding."""
    for one in study.recorded().values():
        for clock, whole in zip(one.clocks, one.phase_seconds["whole"], strict=True):
            assert clock[-1][1] == one.n_prompt + one.n_gen - 1
            assert clock == sorted(clock)
            assert clock[-1][0] <= whole + 1e-4


def test_the_table_has_the_medians_of_the_record(predicted):
    """Recomputed from the raw record: start and the last token of each repetition."""
    raw = json.loads(shipped()["epyc-2c/journey"].read_text())["sequence"]
    rows = rows_of(study.errors_table(*predicted)).values()
    for one, row in zip(raw, rows, strict=True):
        whole = [
            sum(load.values()) + taken["token_seconds"][-1]
            for load, taken in zip(one["loads"], one["passes"], strict=True)
        ]
        assert row["measured whole, s"] == f"{median(whole):.2f}"


def test_the_newer_calibration_predicts_better(predicted):
    """The numbers of the page follow from the table: the typical error of each calibration, and the verdict."""
    found, rows = study.numbers(*predicted), rows_of(study.errors_table(*predicted)).values()
    for key, head in (("whole_error", "whole, %"), ("stale_error", "whole, older calibration, %")):
        assert found[key] == pytest.approx(median(abs(int(row[head])) for row in rows), abs=1)
    assert found["whole_error"] < found["stale_error"] / 2
    assert "mattered more" in found["stale_verdict"]
    assert found["n_groups"] == len(rows)


def test_three_ways_are_put_in_order(predicted):
    """The slowest way is none of the two fast ones, and none of the controls."""
    found = study.numbers(*predicted)
    named = {found["slowest_way"], *found["fast_ways"].split(" and ")}
    assert named == set(study.recorded()) - {study.CACHED, study.ON_DISK, study.ALL}


def test_predicted_clocks_have_three_stops(predicted):
    """Start, prompt and answer; the last stop is the predicted whole."""
    clocks = study.predicted_clocks(*predicted)
    for clock, phases in zip(clocks.values(), predicted, strict=True):
        assert [at for at, _ in clock] == sorted(at for at, _ in clock)
        assert clock[-1][0] == pytest.approx(phases[study.CACHED]["whole"])


def test_the_phases_of_the_card_sum_to_the_whole(longest):
    """Reading, copying, prompts and answers; the context of the page is filled but for less than a turn."""
    found, rows = card.numbers(longest), card.phases_table(longest)[1]
    seconds = [float(row[2]) for row in rows if row[2] != "no limit"]
    assert sum(seconds) == pytest.approx(found["all_s"], abs=0.1)
    assert found["n_tokens"] == found["n_turns"] * (card.N_NEW + card.N_ANSWER)
    assert found["n_tokens"] <= longest < found["n_tokens"] + card.N_NEW + card.N_ANSWER
    assert found["rate_first"] > found["rate_last"]


def test_a_smaller_cache_is_the_fastest_way(longest):
    """All three ways fit into 7 GiB; with layers or cache in RAM the rate is lower at every depth."""
    rows = rows_of(card.ways_table(longest))
    heads = list(rows["`q8_0` cache"])
    assert all(float(row["card, GiB"]) <= 7 for row in rows.values())
    for head in heads[3:]:
        assert max(rows, key=lambda name: float(rows[name][head])) == "`q8_0` cache"


def test_a_quantized_cache_is_never_shorter():
    """The contexts of the table are those that the planner computes, at most the trained ones."""
    for _, size, f16, q8_0, trained in card.models_table(longest_context)[1]:
        assert 0 < f16 <= q8_0 <= trained
        assert 2 < size < 8


def test_every_rating_has_its_source():
    """No rate of the example is without a citation."""
    assert all(source.startswith("{cite}`") and "None" not in source for *_, source in card.ratings_table()[1])
