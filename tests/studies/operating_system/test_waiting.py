"""Comparing how long waiting threads spin: rounds, passes without a result, and what a record says."""

import threading

import pytest
from fakes import ScriptedEngine, scripted_pass

import inferlab as lab
from inferlab.engine.openmp import DEFAULT
from inferlab.errors import EngineTimeout
from inferlab.model.find import tiny_model
from studies.operating_system.waiting import Situation, environment, measure_waiting

ALONE, BESIDE = Situation("alone"), Situation("a second worker", n_workers=2)


class Stalls(ScriptedEngine):
    """An engine that never answers in time."""

    def generate(self, prompt, n_gen):
        raise EngineTimeout("no answer")


def scripted(spin):
    """Ten times as fast where threads spin; libgomp's own value gives no result."""
    if spin is None:
        return Stalls()
    return ScriptedEngine([scripted_pass(prefill=0.1, gaps=(0.1 if spin else 1.0,) * 3)])


@pytest.fixture
def found():
    """Twelve rounds in two situations."""
    return measure_waiting(tiny_model(), 8, 4, 12, (ALONE, BESIDE), (0, 100, None), engine_with=scripted)


def test_every_situation_has_every_value(found):
    """With one rate for each round, of prefill and of decode."""
    assert [(case.situation, case.spin) for case in found.cases] == [
        (situation.name, spin) for situation in (ALONE, BESIDE) for spin in (0, 100, None)
    ]
    assert {len(case.rates("prefill")) for case in found.cases} == {12}
    assert found.case("alone", 100).rate("decode") == pytest.approx(12.5)


def test_a_pass_without_a_result_counts_as_the_rate_zero(found):
    """It is counted, never left out: leaving it out would make a value that stalls look fast."""
    stalled = found.case("alone", None)
    assert (stalled.rate("decode"), stalled.n_without_result) == (0.0, 12)
    assert "default: prefill 0, decode 0 tokens/s, 12 of 12 without a result" in found.text


def test_values_are_compared_round_by_round(found):
    """The ratio to another value, with its interval; rounds in which that one stalled say nothing."""
    assert found.ratios("alone", 0, base=100) == pytest.approx((0.1,) * 12)
    assert found.ratio_text("alone", 0, base=100) == "0.1 (0.1 to 0.1), slower"
    assert (found.ratios("alone", 0, base=None), found.ratio_text("alone", 0, base=None)) == ((), "-")


def test_the_second_worker_ends_with_its_situation(found):
    """No thread is left that computes."""
    assert not [thread for thread in threading.enumerate() if "repeat" in thread.name]


def test_no_value_means_the_librarys_own():
    """The bound of our own workers does not stand in for it."""
    assert environment(None) == {"GOMP_SPINCOUNT": DEFAULT}
    assert environment(0) == {"GOMP_SPINCOUNT": "0"}


def test_the_record_comes_back_from_its_file(found, tmp_path):
    """With passes that had no result."""
    lab.save(found, tmp_path / "waiting.json")
    assert lab.load(tmp_path / "waiting.json") == found
