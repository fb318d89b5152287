"""Opened super-blocks: equal to ggml's own dequantization, bit by bit."""

import platform
import subprocess
import sys

import gguf
import numpy as np
import pytest

from inferlab.engine import libraries
from inferlab.errors import InvalidSettings
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from studies.block_formats import dequantize

IN_C = """
import ctypes, sys
path, symbol, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
row = getattr(ctypes.CDLL(path), symbol)
row.argtypes, row.restype = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64], None
out = (ctypes.c_float * count)()
row(sys.stdin.buffer.read(size), out, count)
sys.stdout.buffer.write(bytes(out))
"""


def random_blocks(n_blocks: int = 400) -> np.ndarray:
    """Every bit at random, except that the two 16-bit floats are numbers of ordinary size."""
    generator = np.random.default_rng(5)
    data = generator.integers(0, 256, (n_blocks, 144), dtype=np.uint8)
    data[:, :4] = generator.normal(0, 0.01, (n_blocks, 2)).astype("<f2").view(np.uint8)
    return data


def in_c(data: np.ndarray) -> np.ndarray:
    """What libggml's own dequantize_row_q4_K makes of the blocks, in a process of its own."""
    sizes = map(str, (256 * len(data), data.size))
    command = [sys.executable, "-c", IN_C, str(libraries.shared_library("ggml-base")), "dequantize_row_q4_K", *sizes]
    done = subprocess.run(command, input=data.tobytes(), capture_output=True, check=True, timeout=60)
    return np.frombuffer(done.stdout, np.float32)


def test_super_blocks_open_as_in_gguf_py():
    """The same 32-bit floats as from the Python package of llama.cpp, bit by bit."""
    data = random_blocks()
    theirs = gguf.quants.dequantize(data, gguf.GGMLQuantizationType.Q4_K).reshape(-1)
    np.testing.assert_array_equal(dequantize.q4_k_weights(data).view(np.uint32), theirs.view(np.uint32))


@pytest.mark.engine
def test_super_blocks_open_as_in_ggml():
    """The same 32-bit floats as from the C code that runs the models.

    Bit by bit on x86-64; a compiler for other processors may fuse the last product with the difference.
    """
    data = random_blocks()
    ours, theirs = dequantize.q4_k_weights(data), in_c(data)
    if platform.machine() in ("x86_64", "AMD64"):
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=np.abs(theirs).max() * 2**-23)


def test_a_super_block_says_what_it_is_made_of():
    """One Q4_K super-block: two floats, 8 scales and 8 minima below 64, 256 codes below 16, and their formula."""
    data = random_blocks(1)
    one = dequantize.open_q4_k(data)
    assert one.scales.shape == one.minima.shape == (8,)
    assert one.codes.shape == (8, 32)
    assert max(one.scales.max(), one.minima.max()) < 64
    assert one.codes.max() < 16
    np.testing.assert_array_equal(one.weights.reshape(-1), dequantize.q4_k_weights(data))
    by_hand = one.d * one.scales[5] * one.codes[5, 7] - one.dmin * one.minima[5]
    assert one.weights[5, 7] == pytest.approx(by_hand, rel=1e-5, abs=1e-7)


def test_a_tensor_is_read_from_its_file():
    """A tensor's weights have its rows, and are those that llama.cpp's own reader finds."""
    model = read_gguf(tiny_model())
    weights = dequantize.tensor_weights(model, "blk.0.attn_k.weight")
    theirs = next(t for t in gguf.GGUFReader(tiny_model()).tensors if t.name == "blk.0.attn_k.weight")
    np.testing.assert_array_equal(weights, np.asarray(theirs.data, np.float32))


def test_what_cannot_be_opened_says_why():
    """A missing tensor and one not in F16 are answered with what there is."""
    for name, said in (
        ("nope", r"tiny.gguf has no tensor 'nope'"),
        ("output_norm.weight", "is in F32. Take a file in F16"),
    ):
        with pytest.raises(InvalidSettings, match=said):
            dequantize.tensor_weights(read_gguf(tiny_model()), name)
