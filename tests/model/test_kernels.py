"""The processor's kernels: which of them multiplies a matrix, from its type, its buffer and the tokens at once."""

import pytest

import inferlab as lab
from inferlab.model import kernels
from inferlab.model.kernels import AMX, PLAIN, REPACKED, TILED, Matrices
from inferlab.units import MIB

EMBEDDED = lab.shape("llama-3.2-1b", "Q4_K_M", n_layer=2)
SEPARATE = lab.shape("mistral-7b", "Q4_K_M", n_layer=2)
MIXED = (Matrices("Q4_K", "CPU_REPACK", 300), Matrices("Q6_K", "CPU", 200), Matrices("Q4_K", "CUDA0", 100))


@pytest.mark.parametrize(
    ("type", "buffer", "n_tokens", "found"),
    [
        ("Q4_K", "CPU_REPACK", 512, REPACKED),
        ("Q4_K", "CPU_REPACK", 1, REPACKED),
        ("Q4_K", "AMX", 512, AMX),
        ("Q4_K", "CPU_Mapped", 8, TILED),
        ("Q4_K", "CPU_Mapped", 7, PLAIN),
        ("Q8_0", "CPU_Mapped", 512, PLAIN),
        ("Q6_K", "RPC0[127.0.0.1:50052]", 512, TILED),
        ("IQ3_XXS", "CPU_Mapped", 8, TILED),
        ("IQ1_M", "CPU_Mapped", 8, TILED),
        ("IQ4_NL", "CPU_Mapped", 512, PLAIN),
        ("MXFP4", "CPU_Mapped", 512, PLAIN),
        ("TQ2_0", "CPU_Mapped", 512, PLAIN),
        ("Q1_0", "CPU_Mapped", 512, PLAIN),
    ],
)
def test_buffer_type_and_tokens_decide(type, buffer, n_tokens, found):
    """Rearranged matrices have one kernel; the file's layout is tiled from 8 tokens on, for the types that can be."""
    assert kernels.kernel(type, buffer, n_tokens) == found
    assert kernels.kernel("Q6_K", "CPU", 512, tiles=False) == PLAIN


def test_norms_and_looked_up_tables_are_not_multiplied():
    """An embedding counts only where it is the output matrix too."""
    names = [{tensor.name for tensor in kernels.multiplied(model.tensors)} for model in (EMBEDDED, SEPARATE)]
    assert "token_embd.weight" in names[0]
    assert "token_embd.weight" not in names[1]
    assert "output.weight" in names[1]
    assert not any("norm" in name for name in names[0] | names[1])


def test_matrices_are_placed_as_the_log_says():
    """A layer's device, unless the tensor was rearranged; the output belongs to the last layer."""
    found = kernels.placed(EMBEDDED.tensors, {"blk.0.attn_q.weight": "CPU_REPACK"}, {0: "CPU", 1: "CPU", 2: "CUDA0"})
    size = {tensor.name: tensor.n_bytes for tensor in EMBEDDED.tensors}
    assert Matrices("Q4_K", "CPU_REPACK", size["blk.0.attn_q.weight"]) in found
    assert Matrices("Q6_K", "CUDA0", size["token_embd.weight"]) in found
    assert sum(one.n_bytes for one in found) == sum(t.n_bytes for t in kernels.multiplied(EMBEDDED.tensors))
    assert kernels.placed(EMBEDDED.tensors, {}, {}) == ()


def test_sizes_of_buffers_decide_where_they_leave_one_possibility():
    """The types whose bytes are those of the repacked buffer were repacked; other sizes decide nothing."""
    matrices = kernels.multiplied(EMBEDDED.tensors)
    repacked = sum(tensor.n_bytes for tensor in matrices if tensor.type == "Q4_K")
    found = kernels.placed_by_bytes(EMBEDDED.tensors, {"CPU_Mapped": 10**9, "CPU_REPACK": repacked + 100})
    assert {one.type: one.buffer for one in found} == {"Q4_K": "CPU_REPACK", "Q6_K": "CPU"}
    assert {one.buffer for one in kernels.placed_by_bytes(EMBEDDED.tensors, {"CPU_Mapped": 10**9})} == {"CPU"}
    assert kernels.placed_by_bytes(EMBEDDED.tensors, {"CPU_REPACK": repacked + MIB}) == ()
    assert kernels.placed_by_bytes(EMBEDDED.tensors, {"CPU_Mapped": 1, "CUDA0": 10**9}) == ()
    assert kernels.placed_by_bytes(EMBEDDED.tensors, {}) == ()


def test_kernels_are_named_in_words():
    """Types of one kernel stand together; what a GPU multiplies is left out."""
    assert kernels.kernels_text(MIXED) == "Q4_K repacked, Q6_K tiled from 8 tokens"
    assert kernels.kernels_text(MIXED, tiles=False) == "Q4_K repacked, Q6_K plain"
    plain = (Matrices("Q5_0", "CPU", 2), Matrices("Q8_0", "CPU", 1))
    assert kernels.kernels_text(plain) == "Q5_0/Q8_0 plain"
    assert kernels.kernels_text(MIXED[2:]) == ""
    assert kernels.kernel_bytes(MIXED, 1) == {("Q4_K", REPACKED): 300, ("Q6_K", PLAIN): 200}
