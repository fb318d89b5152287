"""Importance matrices: read from llama-imatrix's file, checked against a model, refused with what to do."""

from dataclasses import replace

import numpy as np
import pytest
from gguf import GGUFReader, GGUFWriter

from inferlab.errors import DamagedGGUF, InvalidSettings, ModelNotFound, NotGGUF, UnsupportedGGUF
from inferlab.model.find import calibration_text, held_out_text, tiny_imatrix, tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.imatrix import read_imatrix

NAME = "blk.0.ffn_down_exps.weight"


def write_imatrix(path, entries, texts=("folder/text.txt",), **metadata):
    """The file of a matrix: name -> (sums, counts); a metadata entry of None is left out."""
    writer = GGUFWriter(path, "none")
    writer.kv_data[0].pop("general.architecture")
    writer.add_type("imatrix")
    writer.add_array("imatrix.datasets", list(texts))
    for key, value in {"chunk_count": 3, "chunk_size": 512, **metadata}.items():
        if value is not None:
            writer.add_uint32(f"imatrix.{key}", value)
    for name, (sums, counts) in entries.items():
        writer.add_tensor(f"{name}.in_sum2", np.float32(sums))
        writer.add_tensor(f"{name}.counts", np.float32(counts).reshape(-1, 1))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_importance_is_the_mean_square_of_each_column():
    """The sums in the file, read by another program, over its counts; every matrix of the layers is there."""
    found = read_imatrix(tiny_imatrix())
    reader = {tensor.name: tensor.data for tensor in GGUFReader(tiny_imatrix()).tensors}
    name = "blk.3.ffn_down.weight"
    means = reader[f"{name}.in_sum2"] / reader[f"{name}.counts"]
    assert found.columns[name].ravel().tolist() == means.ravel().tolist()
    assert (len(found.columns), found.columns[name].shape) == (42, (1, 768))
    assert (found.datasets, found.n_chunks, found.n_ctx) == ((calibration_text().name,), 56, 512)
    assert found.tokens[name] == (56 * 512,)


def test_the_embedded_matrices_fit_the_embedded_model():
    """Each was made from it; a name that is not there is answered with those that are."""
    for name in ("training", "one-chunk", "code", "random", "even", "shuffled", "held-out"):
        read_imatrix(tiny_imatrix(name)).require_for(read_gguf(tiny_model()))
    with pytest.raises(ModelNotFound, match=r"no importance matrix 'wiki'\. It has: code, even, held-out, one-chunk"):
        tiny_imatrix("wiki")


def test_the_text_of_the_matrix_is_not_the_text_of_the_test():
    """Of the held-out text less than half a percent is lines that stand in both: notes that many pages repeat."""
    seen = {line for line in calibration_text().read_text(encoding="utf-8").splitlines() if len(line) > 60}
    held_out = held_out_text().splitlines()
    assert len(seen) > 500
    assert sum(len(line) for line in held_out if line in seen) < 0.005 * sum(map(len, held_out))


def test_experts_have_columns_of_their_own(tmp_path):
    """Each expert's sums are divided by its own tokens; one that saw none has importance 1 everywhere, and is named."""
    path = write_imatrix(tmp_path / "m.gguf", {NAME: ([[2.0, 4.0], [6.0, 9.0]], [2, 0])})
    found = read_imatrix(path)
    assert found.columns[NAME].tolist() == [[1.0, 2.0], [1.0, 1.0]]
    assert found.tokens[NAME] == (2, 0)
    assert found.unseen_experts == (f"{NAME}, expert 1",)
    assert found.datasets == ("text.txt",)


def test_a_matrix_of_another_model_is_refused():
    """llama.cpp would quantize the tensors without an entry as if there were no matrix."""
    found, model = read_imatrix(tiny_imatrix()), read_gguf(tiny_model())
    without = replace(found, columns={name: one for name, one in found.columns.items() if "attn_q" not in name})
    with pytest.raises(InvalidSettings, match=r"no entry for blk.0.attn_q.weight, so it was not made from tiny.gguf"):
        without.require_for(model)
    narrow = replace(found, columns={**found.columns, "blk.0.attn_q.weight": np.ones((1, 128), np.float32)})
    with pytest.raises(InvalidSettings, match=r"has 128 columns for blk.0.attn_q.weight, which has 256"):
        narrow.require_for(model)


def test_what_is_no_matrix_is_refused_with_what_to_do(tmp_path):
    """A model, a file of the older format, a missing file."""
    with pytest.raises(NotGGUF, match=r"is a GGUF, but no importance matrix\. Make one: inferlab imatrix MODEL TEXT"):
        read_imatrix(tiny_model())
    (tmp_path / "old.dat").write_bytes(b"\x02\0\0\0" + bytes(60))
    with pytest.raises(NotGGUF, match=r"llama-imatrix --in-file old\.dat -o old\.gguf"):
        read_imatrix(tmp_path / "old.dat")
    with pytest.raises(ModelNotFound):
        read_imatrix(tmp_path / "missing.gguf")
    with pytest.raises(UnsupportedGGUF, match=r"is an importance matrix, not a model\. Give it to `quantize`"):
        read_gguf(tiny_imatrix())


@pytest.mark.parametrize(
    ("entries", "metadata", "told"),
    [
        ({NAME: ([[1.0, float("nan")]], [1])}, {}, "are not finite"),
        ({NAME: ([[1.0, 2.0]], [1, 1, 1])}, {}, "do not fit its 3 experts"),
        ({NAME: ([[1.0, 2.0]], [1])}, {"chunk_size": None}, "imatrix.chunk_size is missing"),
    ],
)
def test_unusable_numbers_are_found(tmp_path, entries, metadata, told):
    """Before the quantizer reads them."""
    with pytest.raises(DamagedGGUF, match=told):
        read_imatrix(write_imatrix(tmp_path / "m.gguf", entries, **metadata))


def test_a_matrix_without_its_counts_is_found(tmp_path):
    """Both tensors of an entry must be there, in 32-bit floats."""
    path = write_imatrix(tmp_path / "m.gguf", {NAME: ([[1.0, 2.0]], [1])})
    path.write_bytes(path.read_bytes().replace(b".counts", b".county"))
    with pytest.raises(DamagedGGUF, match=rf"the sums or the counts of {NAME} are missing"):
        read_imatrix(path)
