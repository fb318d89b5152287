"""Repacking and rates of types: what pairs and turns say, and the numbers of the pages."""

import json
from importlib.resources import files
from statistics import median

import pytest
from fakes import CARD, CPU_ONLY, made_run, scripted_pass

from inferlab.engine.log import Buffer
from inferlab.model.find import tiny_model
from inferlab.settings import Settings
from studies.kernels import study
from studies.kernels.measure import tiny_rates
from studies.kernels.type_rates import TypeRate, TypeRates


def a_run(repack, prefill=100.0, decode=10.0):
    """A run with 8 prompt tokens and these rates."""
    passes = (scripted_pass(gaps=(1.25 / decode,) * 2, prefill=8 / prefill),)
    buffers = (Buffer("CPU_REPACK" if repack else "CPU_Mapped", "weights", 1000),)
    return made_run(passes=passes, settings=Settings(use_extra_bufts=repack), buffers=buffers)


def pairs_of(n=12, prefill=(100.0, 200.0), decode=(20.0, 10.0), mix="Q4_K_M"):
    """Pairs with one pair of rates each time: with repacking and without."""
    cases = ((a_run(repack, prefill[i], decode[i]),) * n for i, repack in enumerate((True, False)))
    return study.Pairs(mix, *cases)


def test_ratios_bytes_and_seconds_of_a_pair():
    """Half the prefill rate and twice the decode rate; the copies are those of the repacked buffer."""
    pair = pairs_of()
    assert (pair.compared("prefill").ratio, pair.compared("decode").ratio) == pytest.approx((0.5, 2.0))
    assert pair.rate("prefill", "without") == pytest.approx(200)
    assert pair.seconds_without == pytest.approx((0.005, 0.05))
    assert pair.copied_bytes == 1000


def test_the_advice_follows_the_rates():
    """Where each case wins a phase, the request decides; else one case wins whatever the request is."""
    assert study.advice(pairs_of()) == (
        "Q4_K_M is faster without repacking in requests with more than 10.0 prompt tokens for each generated token"
    )
    reverse = pairs_of(prefill=(200.0, 100.0), decode=(10.0, 20.0))
    assert study.advice(reverse).startswith("Q4_K_M is faster with repacking in requests with more than 10.0")
    both = pairs_of(prefill=(200.0, 100.0))
    assert study.advice(both) == "Q4_K_M is faster with repacking, whatever the request"
    neither = pairs_of(decode=(10.0, 20.0))
    assert study.advice(neither) == "Q4_K_M is faster without repacking, whatever the request"


def test_verdicts_are_told_by_type():
    """A type stands with its verdict."""
    slow = pairs_of()
    assert study.verdicts_text({"Q4_K_M": slow, "Q2_K": slow}, "prefill") == "slower for Q4_K_M and Q2_K"
    other = {"Q4_K_M": slow, "Q4_0": pairs_of(prefill=(200.0, 100.0)), "Q2_K": pairs_of(2)}
    assert study.verdicts_text(other, "prefill") == (
        "faster for Q4_0, slower for Q4_K_M, neither faster nor slower for Q2_K"
    )


def test_the_pages_have_the_rates_of_the_record():
    """Median rates of the passes in the JSON itself; changes in percent of the median ratio, on two pages alike."""
    path = files("studies.kernels") / "records/epyc-2c/repacking-Q4_K_M.json"
    data, found = json.loads(path.read_text(encoding="utf-8")), study.numbers()
    rates = {
        case: [run["n_prompt"] / run["passes"][0]["prefill_seconds"] for run in data[case]]
        for case in ("default", "without")
    }
    for case, passes in rates.items():
        assert study.recorded()["Q4_K_M"].rate("prefill", case) == pytest.approx(median(passes))
    ratios = [a / b for a, b in zip(rates["default"], rates["without"], strict=True)]
    assert found["repack_q4_k_m_prefill"] == pytest.approx(100 * (median(ratios) - 1))
    assert found["repack_pairs"] == len(ratios)
    guide = study.guide_numbers()
    assert guide["repack_prefill"] == found["repack_q4_k_m_prefill"]
    assert (guide["repack_advice"], guide["repack_mib"]) == (found["repack_advice"], found["repack_copies"])


def test_only_repacked_types_have_numbers_of_their_own():
    """The others are the control, and each has a smaller change than the largest of repacking."""
    found = study.numbers()
    types = {key.removeprefix("repack_").rpartition("_")[0] for key in found if key.endswith("_prefill")} - {"control"}
    assert types == {"q4_k_m", "q4_0", "q2_k"}
    assert found["control_prefill"] < max(abs(found[f"repack_{type}_prefill"]) for type in types)


def test_every_model_with_experts_has_a_row():
    """With rates of both phases and a verdict for each; the numbers are those of the records."""
    heads, rows = study.expert_table()
    assert [row[0] for row in rows] == [*study.EXPERTS]
    assert all(len(row) == len(heads) and {*row[3:]} <= {"faster", "slower", "no difference found"} for row in rows)
    assert study.expert_numbers()["repack_pairs"] == min(len(one.default) for one in study.recorded_experts().values())


def a_rate(type, n_bytes, factor):
    """Seconds that rise from turn to turn, `factor` times those of the base."""
    seconds = tuple(factor * (1 + turn / 10) for turn in range(12))
    return TypeRate(type, n_bytes, seconds, seconds, {"tiled": 0.8, "plain": 0.2}, {"plain": 1.0})


RATES = TypeRates(
    model=CARD,
    machine=CPU_ONLY,
    date="2026-11-26",
    n_prompt=8,
    n_gen=4,
    rates=(a_rate("F16", 2000, 1.0), a_rate("Q4_0", 600, 0.5)),
)


def test_a_ratio_is_that_of_one_turn():
    """A slow minute meets both sides, so the ratio stays the same while the rates fall."""
    assert RATES.ratio("Q4_0", "F16", "decode") == pytest.approx(2)
    assert RATES.rate("F16", "decode") == pytest.approx(1 / 1.55)


def test_each_rate_names_its_kernel():
    """The one that multiplies most of the bytes, in each phase."""
    assert [RATES.type_rate("Q4_0").kernel(phase) for phase in ("prefill", "decode")] == ["tiled", "plain"]


@pytest.mark.engine
def test_rates_in_turns_are_those_of_the_embedded_model():
    """The recipe runs for real: the workshop's check compares with the kernels that it finds."""
    found = tiny_rates(("F16",), 2, n_prompt=8, n_gen=3)
    assert found.model.file == tiny_model().name
    assert len(found.type_rate("F16").decode_seconds) == 2
    assert sum(found.type_rate("F16").decode_kernels.values()) == pytest.approx(1)


def test_a_trained_model_stands_beside_the_shape():
    """A row for each type; both rates where its file can be repacked, of which the numbers are the median ratios."""
    heads, rows = study.repacking_table()
    assert all(len(row) == len(heads) for row in rows)
    trained = {row[1]: row[2:] for row in rows if "SmolLM2" in row[0]}
    assert {type for type, rates in trained.items() if " / " in rates[0]} == {"Q4_0", "IQ4_NL", "Q4_K_M"}
    rates, found = study.real(), study.real_numbers()
    assert found["real_turns"] >= 15
    ratio = rates.ratio("Q4_0", study.without("Q4_0"), "decode")
    assert found["real_q4_0_decode"] == pytest.approx(100 * (ratio - 1))


def test_a_mix_that_falls_back_is_repacked_in_part():
    """Its kernels are told by bytes, and the rate of the file without repacking has none."""
    assert 0 < study.real_numbers()["real_share"] < 50
    assert "repacked" not in study.real().type_rate(study.without("Q4_0")).decode_kernels
