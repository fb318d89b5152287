"""The numbers of the page on quantized files, which are computed from shapes and from the embedded model."""

import pytest

import inferlab as lab
from studies.block_formats import study


def test_sizes_are_weights_times_bits():
    """A file's bytes are its weights times its bits; Qwen's types add up, but for the norms in F32."""
    found = study.size_numbers()
    for key, name in study.KNOWN.items():
        assert found[f"{key}_gb"] == pytest.approx(lab.shape(name, "F16").n_params * found[f"{key}_bpw"] / 8e9)
        assert found[f"{key}_factor"] == pytest.approx(found[f"{key}_f16_gb"] / found[f"{key}_gb"])
    assert 99 < sum(found[f"qwen_{kind}"] for kind in ("q5_0", "q8_0", "q4_k", "q6_k")) <= 100
    assert found["published_gb"] == pytest.approx(found["mistral_gb"] + found["header_mb"] / 1e3)


def test_the_small_model_has_its_table_as_output():
    """One table in Q6_K is a larger part of it than both tables are of the large model."""
    heads, rows = study.tables_table()
    small, large = (dict(zip(heads, row, strict=True)) for row in rows)
    assert (small["types of the tables"], large["types of the tables"]) == ("Q6_K", "Q6_K, Q4_K")
    assert small["tables"] > large["tables"]


def test_even_values_lose_less_than_free_ones():
    """In the order of the file and in random order; and coarse scales lose more than fine ones."""
    found = study.rounding_numbers()
    assert min(found["free_over_q4k"], found["free_over_q4k_shuffled"], found["row_over_block"]) > 1


@pytest.mark.engine
def test_a_matrix_lowers_the_weighted_error_alone(tmp_path, monkeypatch):
    """In llama.cpp's own files: other codes, a smaller weighted error, a larger plain one."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    found = study.imatrix_numbers()
    assert found["error_weighted"] < 1 < found["error_plain"]
    assert 0 < found["codes"] < 256


@pytest.mark.engine
def test_the_opened_block_is_that_of_the_quantizer(tmp_path, monkeypatch):
    """llama.cpp's own file: the weight by hand is the weight of the figure and near the original, most bytes alike."""
    monkeypatch.setenv("INFERLAB_CACHE", str(tmp_path))
    quantized = lab.read_gguf(lab.quantize("tiny", "Q4_K_S"))
    block, found = study.opened_block(quantized), study.block_numbers(quantized)
    assert found["by_hand"] == pytest.approx(block.weights[5, 7], rel=1e-5)
    assert abs(found["by_hand"] - found["unquantized"]) < block.d * block.scales[5]
    assert found["n_equal"] > 0.99 * found["n_bytes"]
