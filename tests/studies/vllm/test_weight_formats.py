"""Weight formats of other engines."""

import pytest

import inferlab as lab
from inferlab.model.architectures import n_params
from studies.vllm.weight_formats import weight_formats, weights_bytes


@pytest.mark.parametrize(("name", "bits"), [("awq", 4 + 20 / 128), ("gptq", 4 + 20 / 128), ("fp8", 8 + 32 / 4096)])
def test_scale_and_zero_point_are_shared_by_a_group(name, bits):
    """Four bits in groups of 128 are 4.16 bits a weight; a scale for a whole row adds almost nothing."""
    assert weight_formats()[name].bits_per_weight() == bits


def test_a_shorter_row_pays_more_for_its_scale():
    """A scale for each row costs more where the row is short; one for each group does not depend on the row."""
    fp8, awq = weight_formats()["fp8"], weight_formats()["awq"]
    assert fp8.bits_per_weight(1024) > fp8.bits_per_weight(4096)
    assert awq.bits_per_weight(1024) == awq.bits_per_weight(4096)


def test_embedding_and_output_keep_sixteen_bits():
    """Two bytes a weight without a format; a larger vocabulary adds two bytes for each of its weights, in every one."""
    small, large = lab.known_model("mistral-7b"), lab.known_model("mistral-7b-v0.3")
    assert weights_bytes(small) == 2 * n_params(small)
    added = 2 * 768 * 4096 * 2
    assert {weights_bytes(large, name) - weights_bytes(small, name) for name in weight_formats()} == {added}
