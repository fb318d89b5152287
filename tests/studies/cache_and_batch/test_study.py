"""The records of batches and of hidden cells, and what the page says of its own run."""

import json
from statistics import median

import pytest
from fakes import BatchEngine

import inferlab as lab
from inferlab.measurement.batching import batched_decode
from inferlab.records import shipped
from inferlab.settings import Settings
from studies.cache_and_batch import measure, study
from studies.cache_and_batch.continuous_batching import both_ways, requests
from studies.cache_and_batch.prefix_cache import reuse_prefix


def test_the_recorded_numbers_are_medians_of_steps():
    """Milliseconds of a step, tokens of all, and the gain over one conversation, from the JSON of both kernels."""
    found = study.numbers()
    raw = json.loads(shipped()["epyc-2c/steps-by-kernel"].read_text(encoding="utf-8"))["sequence"]
    for key, batched in zip(("rp", "file"), raw, strict=True):
        middle = {point["n_sequences"]: median(point["step_seconds"]) for point in batched["points"]}
        for n in study.SIZES:
            expected = 1000 * middle[n], n / middle[n], n * middle[1] / middle[n]
            assert [found[f"{key}_{kind}{n}"] for kind in ("", "sum_", "gain_")] == pytest.approx(expected)
    assert found["beside_off"] > 1.2 * found["alone_off"]
    assert found["beside_on"] == pytest.approx(found["alone_on"], rel=0.2)


def test_sizes_are_worth_it_that_no_smaller_one_beats():
    """Two and four conversations here: a third one makes the step so long that the total falls."""
    durations = {1: 1, 2: 1.5, 3: 2.5, 4: 2.8}
    batched = batched_decode(sizes=tuple(durations), n_gen=2, engine=BatchEngine(lambda n: durations.get(n, 1)))
    assert study.worth_text(batched) == "2 and 4"


def test_a_batch_is_told_in_steps_and_rates():
    """One second a step: n conversations get n tokens together and one each."""
    batched = batched_decode(sizes=(1, 4, 16), n_gen=2, engine=BatchEngine(lambda n: 1.0))
    found = study.batch_numbers(batched)
    assert (found["gain_4"], found["step_16"], found["each_16"], found["sum_16"]) == (4, 1000, 1, 16)


def test_slots_are_compared_by_steps_and_seconds():
    """Seven steps of a second against six; the table has the steps."""
    waiting = requests(2, (1, 4, 2, 3))
    ways = both_ways(waiting, "tiny", Settings(), n_slots=2, engine=BatchEngine(lambda n: 1.0))
    found = study.slot_numbers(ways)
    assert found["slots_factor"] == found["slots_steps_factor"] == pytest.approx(7 / 6)
    assert (found["static_ms"], found["continuous_busy"]) == (1000, pytest.approx(100 * 10 / 12))
    assert study.steps_table(ways)[1][0] == ("static", 7, "71 %")


def test_the_longest_beginning_is_the_one_that_is_told():
    """A second a token: 60 shared tokens before 20 of its own, after a shorter beginning."""
    reuse = reuse_prefix(n_shared=(20, 60), n_own=20, repeats=2, engine=BatchEngine(lambda n: float(n)))
    found = study.prefix_numbers(reuse)
    assert (found["prefix_gain"], found["prefix_bound"]) == (4, 4)
    assert (found["prefix_whole"], found["prefix_reused"]) == (80_000, 20_000)
    assert found["prefix_all"] == 4


def test_every_recipe_gives_as_many_samples_as_its_record_has():
    """Sizes and tokens of the record; turns of a size are one list."""
    steps, cells = (measure.RECIPES[name].keywords for name in ("steps-by-kernel", "masked-cells"))
    for batched in lab.load("epyc-2c/steps-by-kernel"):
        assert [point.n_sequences for point in batched.points] == [*measure.SIZES]
        assert {len(point.step_seconds) for point in batched.points} == {steps["n_gen"] * steps["n_turns"]}
    for depths in study.masked().values():
        assert {len(seconds) for seconds in depths.seconds.values()} == {32 * cells["n_turns"]}


def test_turns_are_joined_by_size():
    """The steps of the first turn, then those of the second."""
    runs = [batched_decode(sizes=(1, 2), n_gen=2, repeats=1, engine=BatchEngine(lambda n: 1.0 * n)) for _ in range(2)]
    joined = measure._batches(runs)
    assert [point.step_seconds for point in joined.points] == [(1,) * 4, (2,) * 4]
