"""Losses with and without an importance matrix: compared token by token, on the embedded model."""

from dataclasses import replace

import pytest
from fakes import made_fidelity

import inferlab as lab
from inferlab.errors import InvalidSettings
from inferlab.records import load
from studies.quantization import importance
from studies.quantization.importance import LEAKED, NONE, RIGHT, MatrixLosses, matrix_losses


@pytest.fixture(scope="module")
def recorded() -> MatrixLosses:
    return lab.load("epyc-2c/matrix-losses", MatrixLosses)


@pytest.mark.engine
def test_a_matrix_of_the_right_text_lowers_the_loss(tmp_path, monkeypatch):
    """Quantized for real and read for real: Q2_K loses less with the matrix; what needs one is made only with it."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    tried = {NONE: ("Q8_0", "Q2_K", "IQ2_XXS", "MXFP4"), RIGHT: ("Q8_0", "Q2_K", "IQ2_XXS", "MXFP4")}
    found = matrix_losses(tried, n_chunks=2)
    assert [(one.type, one.matrix) for one in found.losses] == [
        ("Q8_0", NONE), ("Q2_K", NONE), ("MXFP4", NONE), ("Q2_K", RIGHT), ("IQ2_XXS", RIGHT)
    ]  # fmt: skip
    without, helped = found.of("Q2_K"), found.of("Q2_K", RIGHT)
    assert helped.kl_divergence.value < without.kl_divergence.value
    assert helped.change.value == pytest.approx(helped.kl_divergence.value - without.kl_divergence.value)
    assert helped.change.value + 2 * helped.change.standard_error < 0
    assert (without.change, found.of("IQ2_XXS", RIGHT).change, found.of("IQ2_XXS")) == (None, None, None)
    bits = 4.25 + (8.5 - 4.25) * share_of_embedding()
    assert found.bits_per_weight(found.of("MXFP4")) == pytest.approx(bits, abs=0.02)


def share_of_embedding():
    """Of the weights of the embedded model, which MXFP4 leaves in Q8_0."""
    header = lab.read_gguf(lab.tiny_model())
    return next(t.n_elements for t in header.tensors if t.name == "token_embd.weight") / header.n_params


def test_two_files_are_compared_only_on_one_text():
    """The paired difference of other tokens would mean nothing."""
    one = made_fidelity((1.0, 2.0), (0.1, 0.3), (True, True))
    other = made_fidelity((1.0, 2.0), (0.2, 0.2), (True, True))
    assert one.change_from(other).value == pytest.approx(0)
    with pytest.raises(InvalidSettings, match="only on one text with one reference"):
        one.change_from(replace(other, reference_nats=(9.0, 9.0)))


def test_a_type_that_was_not_measured_has_no_percentage(recorded):
    """It is not taken for 0."""
    with pytest.raises(InvalidSettings, match="IQ2_XXS was not measured both without a matrix and with 'training'"):
        recorded.less_percent("IQ2_XXS")


def test_the_recorded_losses_are_those_of_every_type_and_matrix(recorded):
    """All types with the matrix of the training text, four of them with each of the other matrices."""
    assert set(recorded.types(RIGHT)) == set(importance.TYPES) - {"Q8_0", "MXFP4"}
    for matrix in importance.MATRICES[1:]:
        assert recorded.types(matrix) == importance.COMPARED
    assert load("epyc-2c/matrix-losses") == recorded


def test_the_recorded_losses_bear_out_the_page(recorded):
    """The matrix of the training text helps every type below five bits, by more than two standard errors."""
    helped = [recorded.of(type, RIGHT) for type in recorded.types(NONE) if recorded.of(type, RIGHT)]
    small = [one for one in helped if recorded.bits_per_weight(one) < 5]
    assert len(small) >= 7
    assert all(one.change.value + 2 * one.change.standard_error < 0 for one in small)
    assert LEAKED in {one.matrix for one in recorded.losses}
