"""Types side by side: losses on trained weights, rates on a shape, and which types nothing beats."""

from dataclasses import replace

import pytest
from fakes import CARD, made_fidelity, made_run, scripted_pass

import inferlab as lab
from studies.quantization import quant_tradeoffs


def a_fidelity(kl):
    return made_fidelity((1.0, 2.0, 3.0), (kl, kl, kl), (True, True, True))


def a_row(name, kl, n_bytes, decode):
    passes = (scripted_pass(gaps=(1 / decode,) * 2),)
    return quant_tradeoffs.Row(name, a_fidelity(kl), made_run(model=replace(CARD, tensor_bytes=n_bytes), passes=passes))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))


@pytest.mark.engine
def test_fewer_bits_diverge_more(cache):
    """Quantized for real and read for real: the divergence rises from Q8_0 to Q2_K, the file shrinks."""
    losses = quant_tradeoffs.type_losses(types=("Q8_0", "Q4_K_M", "Q2_K"), n_chunks=2)
    eight, four, two = losses.by_name.values()
    assert eight.kl_divergence.value < four.kl_divergence.value < two.kl_divergence.value
    assert eight.model.tensor_bytes > four.model.tensor_bytes > two.model.tensor_bytes
    assert losses.badge.endswith("; 510 tokens scored on inferlab tiny")


@pytest.mark.engine
def test_turning_the_cache_helps():
    """A four-bit cache that llama.cpp may rotate diverges less than one that it may not."""
    losses = quant_tradeoffs.cache_losses(types=("q4_0",), n_chunks=2)
    rotated, plain = (one.kl_divergence.value for one in losses.by_name.values())
    assert list(losses.by_name) == ["q4_0", "q4_0, plain"]
    assert 0 < rotated < plain


def test_what_only_one_side_measured_is_kept():
    """A type without a run or without a fidelity is a row with a gap, and no candidate for the front."""
    losses = quant_tradeoffs.Losses({"Q8_0": a_fidelity(0.1), "Q2_K": a_fidelity(0.2)})
    found = quant_tradeoffs.rows(losses, {"F16": made_run(), "Q8_0": made_run()})
    assert [(row.name, row.known) for row in found] == [("F16", False), ("Q8_0", True), ("Q2_K", False)]
    assert [row.name for row in quant_tradeoffs.front(found)] == ["Q8_0"]
    frame = quant_tradeoffs.table(found)
    assert frame.loc["F16", "KLD, nats"] == frame.loc["Q2_K", "decode, tokens/s"] == ""
    assert frame.loc["Q8_0", "KLD, nats"].startswith("0.1 ± ")
    assert frame.to_html().split("</thead>")[0].count("<tr") == 1  # a name of the index would be a line of its own


def test_the_front_leaves_out_what_is_beaten():
    """A type that loses as much as another and is slower is beaten; two equal ones both stay."""
    good, small = a_row("good", 0.01, 2000, 10), a_row("small", 0.1, 1000, 20)
    beaten, same = a_row("beaten", 0.01, 2100, 9), a_row("same", 0.1, 1000, 20)
    assert [row.name for row in quant_tradeoffs.front([good, beaten, small, same])] == ["good", "small", "same"]


@pytest.mark.engine
def test_a_choice_is_weights_and_cache_together(cache):
    """Left as it is nothing is lost; with other weights or another cache less is occupied and something is lost."""
    plain = quant_tradeoffs.choose("tiny", n_chunks=1)
    small = quant_tradeoffs.choose("tiny", type_k="q8_0", type_v="q8_0", n_chunks=1)
    both = quant_tradeoffs.choose("tiny", "Q4_K_M", "q8_0", "q8_0", n_chunks=1)
    header = lab.read_gguf(lab.tiny_model())
    assert plain.n_bytes - header.tensor_bytes == 6 * 1024 * 2 * 2 * 64 * 2
    assert plain.n_bytes > small.n_bytes > both.n_bytes
    losses = [one.fidelity.kl_divergence.value for one in (plain, small, both)]
    assert abs(losses[0]) < 1e-6
    assert losses[0] < losses[1] < losses[2]
    assert both.name == "Q4_K_M, cache q8_0/q8_0"
