"""Trials of the operating system and waiting threads: readings, numbers of the pages, the figure, and the sides."""

import json
from statistics import median

import pytest
from fakes import CARD, CPU_ONLY

from inferlab.engine.openmp import DEFAULT
from inferlab.errors import EngineUnavailable
from inferlab.measurement.surroundings import Surrounding
from inferlab.records import shipped
from inferlab.settings import Settings
from studies.operating_system import measure, study
from studies.operating_system.figures import decode_against_spin
from studies.operating_system.study import Case, Waiting


def waiting(*cases):
    """A record with these cases."""
    facts = {"model": CARD, "settings": Settings(), "machine": CPU_ONLY}
    return Waiting(**facts, n_prompt=8, n_gen=4, limit_seconds=6.0, cases=cases)


def case(spin, rates, situation="alone"):
    return Case(situation, spin, (9.0,) * len(rates), tuple(rates))


def test_a_pass_without_a_result_counts_as_the_rate_zero():
    """It is counted, never left out: leaving it out would make a value that stalls look fast."""
    assert case(None, (None, None, 10.0)).rate == 0.0
    assert case(None, (None, 8.0, 10.0)).rates == (0.0, 8.0, 10.0)


def test_values_are_compared_round_by_round():
    """The ratio to another value, with its interval; rounds in which that one stalled say nothing."""
    found = waiting(case(0, (1.0,) * 12), case(100, (10.0,) * 12), case(None, (None,) * 12))
    assert found.compared("alone", 0, base=100).ratios == pytest.approx((0.1,) * 12)
    assert found.ratio_text("alone", 0, base=100) == "0.1 (0.1 to 0.1), slower"
    assert (found.compared("alone", 0, base=None).ratios, found.ratio_text("alone", 0, base=None)) == ((), "-")


def test_a_line_for_each_situation_reaches_zero_where_nothing_came():
    """Its points are the medians, and the text alternative says them."""
    busy = "one busy program"
    figure = decode_against_spin(
        waiting(
            case(0, (4.0, 5.0, 6.0), "nothing beside it"),
            case(None, (10.0,) * 3, "nothing beside it"),
            case(0, (3.0,) * 3, busy),
            case(None, (None, None, 1.0), busy),
        )
    )
    lines = {trace.name: list(trace.y) for trace in figure.data if "lines" in trace.mode}
    assert lines == {"nothing beside it": [5.0, 10.0], busy: [3.0, 0.0]}
    assert "one busy program: 0 3, default 0" in figure.layout.meta["alt"]


def test_a_busy_program_takes_from_both_phases():
    """The rates are the medians of the raw seconds of both sides of a control."""
    found = study.numbers()
    raw = json.loads(shipped()["epyc-2c/os-control-busy"].read_text(encoding="utf-8"))
    seconds = [called["prefill_seconds"] for side in ("before", "after") for called in raw[side][0]["passes"]]
    assert found["busy_prefill"] == pytest.approx(raw["before"][0]["n_prompt"] / median(seconds), rel=0.02)
    assert found["busy_prefill"] < found["idle_prefill"]
    assert found["busy_decode_ms"] == pytest.approx(1e3 / found["busy_decode"])


def test_the_numbers_of_the_page_agree_with_each_other():
    """Verdicts are those of intervals, the floor that of the controls; our value helps beside a busy program."""
    found = study.numbers()
    assert found["build_baseline_prefill"] > 1
    assert found["build_baseline_prefill_text"].endswith("faster")
    assert found["native_prefill"] > found["sse_prefill"]
    controls = [found[f"{name.replace('-', '_')}_{phase}"] for name in study.CONTROLS for phase in study.PHASES]
    assert found["floor"] == pytest.approx(100 * max(abs(ratio - 1) for ratio in controls))
    assert found["spin_shape_busy_bound"] > found["spin_shape_busy_default"]
    assert str(found["spin_default"]) == DEFAULT
    assert found["ram_gb"] == pytest.approx(2 * 8 * 5.6)


def test_one_control_of_the_page_failed():
    """The page on contributing says which, and by how much; its table has a row for each of the three."""
    found = study.control_numbers()
    rows = {row[0]: row[1:] for row in study.control_table()[1]}
    assert found["failed_verdict"] == rows["no change, decode, another time"][-1] != "no difference found"
    assert rows["no change, prefill"][-1] == "no difference found"
    assert found["control_off"] < found["worst"]


def test_only_the_controls_have_two_equal_sides(monkeypatch):
    """Any other trial changes a surrounding or the threads, and each is the trial that its record names."""
    monkeypatch.setattr(measure, "trial", lambda *sides, **_: sides)
    monkeypatch.setenv(measure.BACKEND, "libggml-cpu.so")
    monkeypatch.setattr(measure, "with_cpu_backend", lambda *_: None)
    for record, recipe in measure.RECIPES.items():
        if record.startswith("os-"):
            name, sides, n_threads = recipe()
            recorded = study.recorded(record.removeprefix("os-"))
            assert (recorded.name, recorded.surroundings) == (name, sides)
            threads = [side[0].settings.n_threads for side in (recorded.before, recorded.after)]
            assert threads == [2, n_threads]


def test_without_a_build_the_error_says_which_one_to_make(monkeypatch):
    """With its options, and where its path goes."""
    monkeypatch.delenv(measure.BACKEND, raising=False)
    with pytest.raises(EngineUnavailable, match=r"-DGGML_NATIVE=on .* CPU_BACKEND"):
        measure.RECIPES["os-build-native"]()


def test_trials_spin_as_other_programs_do():
    """As long as the library by itself, or not at all where waiting threads sleep; never the bound of our workers."""
    assert Surrounding().engine().environment == {"GOMP_SPINCOUNT": DEFAULT}
    assert Surrounding(passive=True).engine().environment == {"OMP_WAIT_POLICY": "passive"}
