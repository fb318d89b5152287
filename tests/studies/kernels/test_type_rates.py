"""Rates of several quantizations in turns: ratios are taken turn by turn, and each names its kernel."""

import pytest
from fakes import CARD, CPU_ONLY, ScriptedEngine

from inferlab.model.find import tiny_model
from studies.kernels.type_rates import TypeRate, TypeRates, rates_in_turns


def a_rate(type, n_bytes, factor):
    """Seconds that rise from turn to turn, `factor` times those of the base."""
    seconds = tuple(factor * (1 + turn / 10) for turn in range(12))
    return TypeRate(type, n_bytes, seconds, seconds, {"tiled": 0.8, "plain": 0.2}, {"plain": 1.0})


RATES = TypeRates(
    model=CARD, machine=CPU_ONLY, date="2026-11-26", n_prompt=8, n_gen=4,
    rates=(a_rate("F16", 2000, 1.0), a_rate("Q4_0", 600, 0.5)),
)  # fmt: skip


def test_a_ratio_is_that_of_one_turn():
    """A slow minute meets both sides, so the ratio stays the same while the rates fall."""
    assert RATES.ratios("Q4_0", "F16", "decode") == pytest.approx([2.0] * 12)
    assert RATES.text("Q4_0", "F16", "prefill") == "2 (2 to 2), faster"
    assert RATES.text("F16", "F16", "prefill") == "1 (1 to 1), no difference found"
    assert RATES.rate("F16", "decode") == pytest.approx(1 / 1.55)


def test_each_rate_names_its_kernel():
    """The one that multiplies most of the bytes, in each phase."""
    assert [RATES.of("Q4_0").kernel(phase) for phase in ("prefill", "decode")] == ["tiled", "plain"]
    assert RATES.bits_per_weight["F16"] == 8 * 2000 / CARD.n_params


def test_files_are_timed_in_turns():
    """Every file once a turn, in alternating order."""
    engine = ScriptedEngine()
    found = rates_in_turns({"F16": tiny_model(), "again": tiny_model()}, 8, 3, n_turns=2, engine=engine)
    assert found.types == ("F16", "again")
    assert [len(one.seconds(phase)) for one in found.rates for phase in ("prefill", "decode")] == [2] * 4
