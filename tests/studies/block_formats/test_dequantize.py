"""Opened blocks: equal to ggml's own dequantization, bit by bit."""

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

QUANTIZED = [name for name in dequantize.DECODERS if name not in ("F32", "F16", "BF16")]
TWO = dict.fromkeys(("Q4_K", "Q5_K", "Q4_1", "Q5_1"), (0, 2))
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), **TWO}

IN_C = """
import ctypes, sys
path, symbol, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
row = getattr(ctypes.CDLL(path), symbol)
row.argtypes, row.restype = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int64], None
out = (ctypes.c_float * count)()
row(sys.stdin.buffer.read(size), out, count)
sys.stdout.buffer.write(bytes(out))
"""


def random_blocks(type: str, n_blocks: int = 400) -> np.ndarray:
    """Every bit at random, except that the 16-bit floats are numbers of ordinary size."""
    generator = np.random.default_rng(5)
    size = dequantize.TYPES[type].block_bytes
    data = generator.integers(0, 256, (n_blocks, size), dtype=np.uint8)
    for at in HALVES.get(type, (0,)):
        data[:, at : at + 2] = generator.normal(0, 0.01, n_blocks).astype("<f2").view(np.uint8).reshape(-1, 2)
    return data


def in_c(type: str, data: np.ndarray) -> np.ndarray:
    """What libggml's own dequantize_row_* makes of the blocks, in a process of its own."""
    count = len(data) * dequantize.TYPES[type].block
    name = type if type.endswith("_K") else type.lower()
    symbol = "dequantize_row_" + name.replace("Q", "q")
    command = [
        sys.executable,
        "-c",
        IN_C,
        str(libraries.shared_library("ggml-base")),
        symbol,
        str(count),
        str(data.size),
    ]
    done = subprocess.run(command, input=data.tobytes(), capture_output=True, check=True, timeout=60)
    return np.frombuffer(done.stdout, np.float32)


@pytest.mark.parametrize("type", QUANTIZED)
def test_blocks_open_as_in_gguf_py(type):
    """Each type gives the same 32-bit floats as the Python package of llama.cpp, bit by bit."""
    data = random_blocks(type)
    theirs = gguf.quants.dequantize(data, getattr(gguf.GGMLQuantizationType, type))
    np.testing.assert_array_equal(dequantize.dequantize(data, type).view(np.uint32), theirs.reshape(-1).view(np.uint32))


@pytest.mark.engine
@pytest.mark.parametrize("type", QUANTIZED)
def test_blocks_open_as_in_ggml(type):
    """Each type gives the same 32-bit floats as the C code that runs the models.

    Bit by bit on x86-64; a compiler for other processors may fuse the last product with the difference.
    """
    data = random_blocks(type)
    ours, theirs = dequantize.dequantize(data, type), in_c(type, data)
    if platform.machine() in ("x86_64", "AMD64"):
        np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=np.abs(theirs).max() * 2**-23)


def test_a_super_block_says_what_it_is_made_of():
    """One Q4_K super-block: two floats, 8 scales and 8 minima below 64, 256 codes below 16, and their formula."""
    data = random_blocks("Q4_K", 1)
    one = dequantize.open_q4_k(data)
    assert one.scales.shape == one.minima.shape == (8,)
    assert one.codes.shape == (8, 32)
    assert max(one.scales.max(), one.minima.max()) < 64
    assert one.codes.max() < 16
    np.testing.assert_array_equal(one.weights.reshape(-1), dequantize.dequantize(data, "Q4_K"))
    by_hand = one.d * one.scales[5] * one.codes[5, 7] - one.dmin * one.minima[5]
    assert one.weights[5, 7] == pytest.approx(by_hand, rel=1e-5, abs=1e-7)


def test_twelve_bytes_hold_sixteen_numbers_of_six_bits():
    """Packing is lossless: the twelve bytes of scales and minima come apart as they were put together."""
    scales, minima = np.arange(8) * 9, 63 - np.arange(8) * 7
    packed = np.zeros((1, 12), np.uint8)
    packed[0, :4], packed[0, 4:8] = scales[:4] | scales[4:] >> 4 << 6, minima[:4] | minima[4:] >> 4 << 6
    packed[0, 8:] = scales[4:] & 15 | (minima[4:] & 15) << 4
    opened = dequantize.six_bit_pairs(packed)
    assert opened[0].tolist() == [scales.tolist()]
    assert opened[1].tolist() == [minima.tolist()]


def test_floats_are_read_as_they_are():
    """F32, F16 and BF16 come out as the numbers that were stored."""
    values = np.float32([1, -0.5, 3.140625, 2**-10])
    assert dequantize.dequantize(values.tobytes(), "F32").tolist() == values.tolist()
    assert dequantize.dequantize(values.astype("<f2").tobytes(), "F16").tolist() == values.tolist()
    assert (
        dequantize.dequantize((values.view(np.uint32) >> 16).astype("<u2").tobytes(), "BF16").tolist()
        == values.tolist()
    )


def test_a_tensor_is_read_from_its_file():
    """A tensor's weights have its rows, and are those that llama.cpp's own reader finds."""
    model = read_gguf(tiny_model())
    weights = dequantize.tensor_weights(model, "blk.0.attn_k.weight")
    theirs = next(t for t in gguf.GGUFReader(tiny_model()).tensors if t.name == "blk.0.attn_k.weight")
    np.testing.assert_array_equal(weights, np.asarray(theirs.data, np.float32))


def test_what_cannot_be_opened_says_why():
    """An unknown type, a torn block, a block too many and a missing tensor are each answered with what there is."""
    with pytest.raises(InvalidSettings, match=r"'IQ1_S' is not opened here. Opened are: .*Q4_K"):
        dequantize.dequantize(bytes(50), "IQ1_S")
    with pytest.raises(InvalidSettings, match="100 bytes are not whole Q4_K blocks of 144"):
        dequantize.dequantize(bytes(100), "Q4_K")
    with pytest.raises(InvalidSettings, match="has 144 bytes; these are 288"):
        dequantize.open_q4_k(bytes(288))
    with pytest.raises(InvalidSettings, match=r"tiny.gguf has no tensor 'nope'"):
        dequantize.tensor_weights(read_gguf(tiny_model()), "nope")
