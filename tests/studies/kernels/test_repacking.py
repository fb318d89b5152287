"""Weights repacked and not: pairs of runs, and what they say."""

import pytest
from fakes import ScriptedEngine, made_run, scripted_pass

import inferlab as lab
from inferlab.engine.log import Buffer
from inferlab.settings import Settings
from studies.kernels import repacking


def a_run(repack, prefill=100.0, decode=10.0):
    """A run with 8 prompt tokens and these rates."""
    passes = (scripted_pass(gaps=(1.25 / decode,) * 2, prefill=8 / prefill),)
    buffers = (Buffer("CPU_REPACK" if repack else "CPU_Mapped", "weights", 1000),)
    return made_run(passes=passes, settings=Settings(use_extra_bufts=repack), buffers=buffers)


def pairs_of(n=12, prefill=(100.0, 200.0), decode=(20.0, 10.0), mix="Q4_K_M"):
    """Pairs with one pair of rates each time: with repacking and without."""
    cases = ((a_run(repack, prefill[i], decode[i]),) * n for i, repack in enumerate((True, False)))
    return repacking.Pairs(mix, *cases)


def test_a_verdict_needs_pairs_that_agree():
    """Six of six decide, in both directions, and so do ten of twelve; nine of twelve and three of three do not."""
    clear = pairs_of(6)
    assert (clear.verdict("prefill"), clear.verdict("decode")) == ("slower", "faster")
    assert pairs_of(3).verdict("prefill") == "no difference found"
    for faster, said in ((10, "faster"), (9, "no difference found")):
        default = tuple(a_run(True, 101 if i < faster else 99) for i in range(12))
        assert repacking.Pairs("Q4_K_M", default, (a_run(False),) * 12).verdict("prefill") == said


def test_ratios_bytes_and_seconds_of_a_pair():
    """Half the prefill rate and twice the decode rate; the copies are those of the repacked buffer."""
    pair = pairs_of()
    assert (pair.ratio("prefill"), pair.ratio("decode")) == pytest.approx((0.5, 2.0))
    assert pair.rate("prefill", "without") == pytest.approx(200)
    assert pair.seconds_without == pytest.approx((0.005, 0.05))
    assert (pair.copied_bytes, pair.repacked) == (1000, True)


def test_the_advice_follows_the_rates():
    """Where each case wins a phase, the request decides; else one case wins whatever the request is."""
    assert repacking.advice(pairs_of()) == (
        "Q4_K_M is faster without repacking in requests with more than 10.0 prompt tokens for each generated token"
    )
    reverse = pairs_of(prefill=(200.0, 100.0), decode=(10.0, 20.0))
    assert repacking.advice(reverse).startswith("Q4_K_M is faster with repacking in requests with more than 10.0")
    both = pairs_of(prefill=(200.0, 100.0))
    assert repacking.advice(both) == "Q4_K_M is faster with repacking, whatever the request"
    neither = pairs_of(decode=(10.0, 20.0))
    assert repacking.advice(neither) == "Q4_K_M is faster without repacking, whatever the request"


def test_verdicts_are_told_by_type():
    """A type stands with its verdict."""
    slow = pairs_of()
    assert repacking.verdicts_text({"Q4_K_M": slow, "Q2_K": slow}, "prefill") == "slower for Q4_K_M and Q2_K"
    other = {"Q4_K_M": slow, "Q4_0": pairs_of(prefill=(200.0, 100.0)), "Q2_K": pairs_of(2)}
    assert repacking.verdicts_text(other, "prefill") == (
        "faster for Q4_0, slower for Q4_K_M, neither faster nor slower for Q2_K"
    )


def test_each_round_measures_both_cases_in_turn(tmp_path, monkeypatch):
    """The order is reversed from round to round; warm-ups are not kept; the record reads back equal."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    engine = ScriptedEngine()
    pair = repacking.measure_repacking(mix="Q4_0", n_prompt=8, n_gen=3, rounds=2, engine=engine, n_layer=1, n_vocab=512)
    assert [settings.use_extra_bufts for settings in engine.opened] == [True, False, False, True]
    assert {run.settings.use_extra_bufts for run in pair.default} == {True}
    assert not any(run.warmups for run in (*pair.default, *pair.without))
    assert lab.load(lab.save(pair, tmp_path / "pair.json")) == pair
