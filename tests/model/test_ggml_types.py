"""ggml's tables in one place: types by any spelling, bytes of rows, numbers of files, the step of the KV cache."""

import pytest

from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import FILE_TYPES, TENSOR_TYPES, TYPE_IDS, padded, row_bytes, tensor_type
from inferlab.model.quant_mixes import MIXES


def test_a_type_is_found_in_capitals_or_not():
    """`q4_k` of the settings and `Q4_K` of the files are one type; an unknown name is answered with the known ones."""
    assert tensor_type("q4_k") is tensor_type("Q4_K") is TENSOR_TYPES[TYPE_IDS["Q4_K"]]
    with pytest.raises(InvalidSettings, match=r"no type 'q9_9'. It has: f32, f16, .*q4_k"):
        tensor_type("q9_9")


def test_a_row_takes_whole_blocks():
    """64 weights in Q8_0 are two blocks of 34 bytes; 33 fill none."""
    assert row_bytes("q8_0", 64) == 68
    with pytest.raises(InvalidSettings, match="33 weights do not fill blocks of 32"):
        row_bytes("q8_0", 33)


@pytest.mark.parametrize(("n_cells", "reserved"), [(0, 0), (1, 256), (256, 256), (257, 512)])
def test_cells_are_reserved_in_steps_of_256(n_cells, reserved):
    """llama.cpp rounds up to the next multiple of 256."""
    assert padded(n_cells) == reserved


def test_every_mix_has_a_type_of_ggml_and_a_number_of_llama_cpp():
    """A mix that is known by its rules can be named in a header, and its base is a type that exists."""
    assert set(MIXES) <= set(FILE_TYPES)
    assert set(MIXES.values()) <= set(TYPE_IDS)
    assert len(set(FILE_TYPES.values())) == len(FILE_TYPES)
