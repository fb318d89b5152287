"""The three clocks: the numbers of the page, from runs whose times are known."""

from dataclasses import replace

import pytest
from fakes import made_run

import inferlab as lab
from inferlab.engine.protocol import Pass
from studies.three_clocks import study


def run_of(n_prompt, n_gen, prefill, token):
    """A run with one pass in which every token takes as long."""
    taken = Pass(prefill, tuple(prefill + token * i for i in range(n_gen)), (token,) * (n_gen - 1), tokens=())
    return replace(made_run(), n_prompt=n_prompt, n_gen=n_gen, passes=(taken,))


def test_a_token_costs_as_many_prompt_tokens_as_their_rates_say():
    """160 prompt tokens/s and 50 decoded ones; the longer prompt is read at twice the rate."""
    found = study.request_numbers(run_of(16, 129, 0.1, 0.02), run_of(256, 129, 0.8, 0.04))
    assert (found["brief_prefill_rate"], found["brief_decode_rate"]) == pytest.approx((160, 50))
    assert (found["brief_ratio"], found["token_ratio"]) == pytest.approx((3.2, 12.8))
    assert (found["prefill_factor"], found["decode_factor"]) == pytest.approx((2, 0.5))
    assert found["tpot_ms"] == pytest.approx(40)


def test_the_prompt_is_doubled_from_the_third_to_the_fourth_run():
    """TTFT doubles with it where the rate stays; one token per pass takes ten times as long."""
    runs = [run_of(n, 33, n / 1000, 0.01) for n in (64, 128, 192, 384)]
    found = study.prompt_numbers(run_of(256, 33, 0.256, 0.01), runs, run_of(256, 33, 2.56, 0.01))
    assert (found["ttft_doubling"], found["tpot_doubling"]) == pytest.approx((2, 1), rel=0.1)
    assert found["single_ratio"] == pytest.approx(10, rel=0.05)
    assert (found["single_prefill_rate"], found["single_decode_rate"]) == pytest.approx((100, 100))


def test_late_tokens_read_more_cells():
    """The stretches are far from each other; equal times have the ratio 1, and bytes a ratio above 1."""
    run = run_of(16, 1000, 0.1, 0.02)
    found = study.answer_numbers(replace(run, settings=replace(run.settings, n_ctx=1024)))
    assert found["cells_late"] - found["cells_early"] == 784
    assert (found["early_ms"], found["late_ms"], found["late_ratio"]) == pytest.approx((20, 20, 1))
    assert found["bytes_ratio"] > 1


def test_embeddings_of_a_ubatch_have_four_bytes_a_value():
    """512 tokens of Mistral 7B with 4096 values."""
    found = study.embedding_numbers()
    assert found["embd_7b_mib"] == 8
    assert found["embd_kib"] == 2 * lab.read_gguf(lab.tiny_model()).n_embd
