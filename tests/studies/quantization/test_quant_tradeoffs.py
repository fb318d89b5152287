"""Types side by side: losses on trained weights, rates on a shape, and which types nothing beats."""

from dataclasses import replace

import pytest
from fakes import CARD, made_fidelity, made_run

import inferlab as lab
from inferlab.engine.log import Buffer
from inferlab.measurement.fidelity import Fidelity
from studies.quantization import quant_tradeoffs


def a_fidelity(kl: float) -> Fidelity:
    return made_fidelity((1.0, 2.0, 3.0), (kl, kl, kl), (True, True, True))


def a_row(name: str, kl: float, n_bytes: int, decode: float) -> quant_tradeoffs.Row:
    run = made_run(model=replace(CARD, tensor_bytes=n_bytes))
    seconds = tuple(replace(one, decode_seconds=(1 / decode, 1 / decode)) for one in run.passes)
    return quant_tradeoffs.Row(name, a_fidelity(kl), replace(run, passes=seconds))


@pytest.mark.engine
def test_fewer_bits_diverge_more(tmp_path, monkeypatch):
    """Quantized for real and read for real: the divergence rises from Q8_0 to Q2_K, the file shrinks."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    losses = quant_tradeoffs.type_losses(types=("Q8_0", "Q4_K_M", "Q2_K"), n_chunks=2)
    found = losses.by_name.values()
    assert [one.kl_divergence.value for one in found] == sorted(one.kl_divergence.value for one in found)
    assert [one.model.tensor_bytes for one in found] == sorted((one.model.tensor_bytes for one in found), reverse=True)
    assert losses.badge.endswith("; 510 tokens scored on inferlab tiny")


def test_losses_name_the_loopback_device_that_took_part():
    """Their badge is that of the comparisons, which know their devices."""
    far = replace(a_fidelity(0.1), buffers=(Buffer("RPC0[127.0.0.1:50052]", "weights", 2**20),))
    found = quant_tradeoffs.Losses({"Q8_0": far}).badge
    assert found.startswith("measured: Example CPU, loopback device, 2026-01-31")


@pytest.mark.engine
def test_turning_the_cache_helps():
    """A four-bit cache that llama.cpp may rotate diverges less than one that it may not."""
    losses = quant_tradeoffs.cache_losses(types=("q4_0",), n_chunks=2)
    rotated, plain = (one.kl_divergence.value for one in losses.by_name.values())
    assert list(losses.by_name) == ["q4_0", "q4_0, plain"]
    assert 0 < rotated < plain


@pytest.mark.engine
def test_rates_are_those_of_a_shape(tmp_path, monkeypatch):
    """Each type's file is made and measured; the runs say that the weights are made up."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    runs = quant_tradeoffs.type_rates(types=("F16", "Q8_0"), n_prompt=8, n_gen=2, repeats=1, n_layer=1, n_vocab=512)
    assert list(runs) == ["F16", "Q8_0"]
    assert all(run.model.synthetic for run in runs.values())


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
def test_a_choice_is_weights_and_cache_together(tmp_path, monkeypatch):
    """Left as it is nothing is lost; with other weights or another cache less is occupied and something is lost."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    plain = quant_tradeoffs.choose("tiny", n_chunks=1)
    cache = quant_tradeoffs.choose("tiny", type_k="q8_0", type_v="q8_0", n_chunks=1)
    both = quant_tradeoffs.choose("tiny", "Q4_K_M", "q8_0", "q8_0", n_chunks=1)
    header = lab.read_gguf(lab.tiny_model())
    assert plain.n_bytes - header.tensor_bytes == 6 * 1024 * 2 * 2 * 64 * 2
    assert plain.n_bytes > cache.n_bytes > both.n_bytes
    losses = [one.fidelity.kl_divergence.value for one in (plain, cache, both)]
    assert abs(losses[0]) < 1e-6
    assert losses[0] < losses[1] < losses[2]
    assert both.name == "Q4_K_M, cache q8_0/q8_0"
