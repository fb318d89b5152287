"""Losses with and without an importance matrix, compared token by token, and the numbers of the pages."""

import json
from dataclasses import replace

import pytest
from fakes import made_fidelity

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.records import shipped
from studies.quantization import study
from studies.quantization.measure import TYPES, matrix_losses
from studies.quantization.quant_tradeoffs import CACHE_TYPES, Losses
from studies.quantization.quant_tradeoffs import TYPES as COMMON
from studies.quantization.study import LEAKED, MATRICES, NONE, RIGHT

RECORDED = study.recorded()
RAW = json.loads(shipped()["epyc-2c/matrix-losses"].read_text(encoding="utf-8"))["losses"]
KLD = {(one["type"], one["matrix"]): one["kl_divergence"]["value"] for one in RAW}


@pytest.mark.engine
def test_a_matrix_of_the_right_text_lowers_the_loss(tmp_path, monkeypatch):
    """Quantized for real and read for real: Q2_K loses less with the matrix; what needs one is made only with it."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    found = matrix_losses(dict.fromkeys((NONE, RIGHT), ("Q8_0", "Q2_K", "IQ2_XXS", "MXFP4")), n_chunks=2)
    made = {NONE: ["Q8_0", "Q2_K", "MXFP4"], RIGHT: ["Q2_K", "IQ2_XXS"]}
    assert [(loss.type, loss.matrix) for loss in found.losses] == [(t, name) for name in made for t in made[name]]
    without, helped = found.loss("Q2_K"), found.loss("Q2_K", RIGHT)
    assert helped.change.value == pytest.approx(helped.kl_divergence.value - without.kl_divergence.value)
    assert helped.change.value + 2 * helped.change.standard_error < 0
    assert (without.change, found.loss("IQ2_XXS", RIGHT).change, found.loss("IQ2_XXS")) == (None, None, None)
    header = lab.read_gguf(lab.tiny_model())  # whose embedding MXFP4 leaves in Q8_0
    share = next(t.n_elements for t in header.tensors if t.name == "token_embd.weight") / header.n_params
    assert found.bits_per_weight(found.loss("MXFP4")) == pytest.approx(4.25 + (8.5 - 4.25) * share, abs=0.02)


def test_two_files_are_compared_only_on_one_text():
    """The paired difference of other tokens would mean nothing."""
    one = made_fidelity((1.0, 2.0), (0.1, 0.3), (True, True))
    other = made_fidelity((1.0, 2.0), (0.2, 0.2), (True, True))
    assert one.change_from(other).value == pytest.approx(0)
    with pytest.raises(InvalidSettings, match="only on one text with one reference"):
        one.change_from(replace(other, reference_nats=(9.0, 9.0)))


def test_a_type_that_was_not_measured_has_no_percentage():
    """It is not taken for 0."""
    with pytest.raises(InvalidSettings, match="IQ2_XXS was not measured both without a matrix and with 'training'"):
        RECORDED.less_percent("IQ2_XXS")


def test_the_recorded_losses_bear_out_the_page():
    """All types have the training text's matrix, which helps every one below five bits; four types have all others."""
    types = {name: [loss.type for loss in RECORDED.losses if loss.matrix == name] for name in (NONE, *MATRICES)}
    assert set(types[RIGHT]) == set(TYPES) - {"Q8_0", "MXFP4"}
    assert all(tuple(types[name]) == study.COMPARED for name in MATRICES[1:])
    helped = [RECORDED.loss(type, RIGHT) for type in types[RIGHT] if type in types[NONE]]
    small = [loss for loss in helped if RECORDED.bits_per_weight(loss) < 5]
    assert len(small) >= 7
    assert all(loss.change.value + 2 * loss.change.standard_error < 0 for loss in small)


def test_the_pages_have_the_losses_of_the_record():
    """Percentages and table cells, computed again from the JSON itself."""
    found = study.matrix_numbers()
    assert found["less_q2_k"] == pytest.approx(100 - 100 * KLD["Q2_K", "training"] / KLD["Q2_K", ""])
    gains = [KLD["Q2_K", ""] - KLD["Q2_K", matrix] for matrix in ("even", "training")]
    assert found["search_share"] == pytest.approx(100 * gains[0] / gains[1])
    assert found["more_code_least"] <= 100 * (KLD["IQ3_XXS", "code"] / KLD["IQ3_XXS", "training"] - 1)
    rows = {name: changes for name, *changes in study.matrix_table()[1]}
    assert rows["code examples"][0] == f"{100 * (KLD['Q4_K_M', 'code'] / KLD['Q4_K_M', ''] - 1):+.1f} %"
    assert rows["training text"][2] == "+0.0 %"
    assert study.MATRIX_NAMES[LEAKED] not in rows


def test_types_of_the_table_have_a_loss_and_a_rate():
    """What is not made without a matrix is said to be so; two IQ types are slower and smaller than Q4_K_M."""
    rows = {type: cells for type, *cells in study.imatrix_table()[1]}
    assert [type for type, cells in rows.items() if cells[1] == "not made"] == ["IQ3_XXS", "IQ2_XXS"]
    assert rows["Q2_K"][1:3] == [f"{KLD['Q2_K', matrix]:.4f}" for matrix in ("", "training")]
    found = study.imatrix_numbers()
    assert found["iq3_bytes"] < found["iq4_bytes"] < 1
    assert found["iq3_decode"] < found["iq4_decode"] < 1


def test_sizes_and_published_losses_rise_and_fall_with_the_bits():
    """More bits are a larger file and a smaller change of perplexity; a matrix won back a part of the loss."""
    found = study.published_numbers()
    sizes, changes = ([found[f"{name}_{mix.lower()}"] for mix in study.TABLE_TYPES] for name in ("size", "ppl"))
    assert sizes == sorted(sizes, reverse=True)
    assert changes == sorted(changes)
    assert found["size_q4_k_m"] == pytest.approx(lab.shape("mistral-7b").n_params * found["bpw_q4_k_m"] / 8e9)
    assert found["mistral_cache_f16"] == pytest.approx(2 * 8192 * 32 * 8 * 128 * 2 / 2**30)
    helped = study.published_matrix_numbers()
    assert all(0 < helped[f"published_less_{mix}"] < 100 for mix in ("q4_k_m", "q3_k_m", "q2_k"))


def a_loss(kl):
    return made_fidelity((1.0, 2.0, 3.0), (kl, kl, kl), (True, True, False))


def test_the_numbers_of_a_live_comparison():
    """Steps are ratios of divergences; only what is apart by both errors is said to be apart."""
    losses = Losses({type: a_loss(0.001 * 2**number) for number, type in enumerate(COMMON)})
    found = study.loss_numbers(losses)
    assert found["step_84"] == pytest.approx(2 ** COMMON.index("Q4_K_M"))
    assert found["tiny_q4_k_m_top"] == pytest.approx(200 / 3)
    assert (found["tokens_scored"], found["apart"]) == (3, "KL divergence only")
    same = Losses({type: a_loss(0.001) for type in COMMON})
    assert study.loss_numbers(same)["apart"] == "none"


def test_a_cache_is_compared_with_the_weights_and_without_rotation():
    """Both are told as times as much."""
    caches = {f"{kind}{end}": a_loss(kl) for end, kl in (("", 0.01), (", plain", 0.03)) for kind in CACHE_TYPES}
    found = study.cache_numbers(Losses(caches), Losses({"Q8_0": a_loss(0.2)}))
    assert (found["cache_q4_0_gain"], found["weights_over_cache"]) == pytest.approx((3, 20))


def test_rates_of_the_shape_are_relative_to_f16():
    """F16 is 1 in everything but the bytes that it reads in a second; Q6_K and Q8_0 name their kernels."""
    found = study.rate_numbers({name: lab.load(f"xeon-2c/llama-3.2-1b-{name}") for name in ("F16", *COMMON)})
    assert {found[f"f16_{kind}_gain"] for kind in ("decode", "prefill", "bytes")} == {1}
    assert found["q4_flow"] / found["f16_flow"] == pytest.approx(found["q4_decode_gain"] / found["q4_bytes_gain"])
    assert {found["q8_kernel"], found["q6_kernel"]} <= {"plain", "tiled", "repacked", "AMX"}
