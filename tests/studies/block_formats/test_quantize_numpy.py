"""Rounding: Q4_K as ggml makes it, byte by byte, and what it is often taken for."""

import platform
import subprocess
import sys

import numpy as np
import pytest

from inferlab.engine import libraries
from inferlab.errors import InvalidSettings
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from studies.block_formats import dequantize, quantize_numpy, quantize_q4_k

IN_C = """
import ctypes, sys
path, rows, width, size = sys.argv[1], *map(int, sys.argv[2:])
quantize = ctypes.CDLL(path).ggml_quantize_chunk
quantize.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
quantize.restype, out = ctypes.c_size_t, ctypes.create_string_buffer(size)
quantize(12, sys.stdin.buffer.read(), out, 0, rows, width, None)  # 12 is GGML_TYPE_Q4_K
sys.stdout.buffer.write(out.raw)
"""


def in_c(weights: np.ndarray) -> np.ndarray:
    """The Q4_K super-blocks that libggml itself makes of a tensor, in a process of its own."""
    counts = (*weights.shape, weights.size // 256 * 144)
    command = [sys.executable, "-c", IN_C, str(libraries.shared_library("ggml-base")), *map(str, counts)]
    done = subprocess.run(command, input=weights.tobytes(), capture_output=True, check=True, timeout=60)
    return np.frombuffer(done.stdout, np.uint8)


def trained(name: str) -> np.ndarray:
    return dequantize.tensor_weights(read_gguf(tiny_model()), name)


def odd_weights() -> np.ndarray:
    """Blocks that a search could trip over: all zero, all equal, all positive, one outlier, very small."""
    generator = np.random.default_rng(7)
    rows = generator.normal(0, 0.02, (8, 256)).astype(np.float32)
    rows[0], rows[1], rows[2], rows[3, 17], rows[4] = 0, 0.25, np.abs(rows[2]) + 0.1, 40, rows[4] * 1e-6
    rows[5, :32], rows[6, 32:64], rows[7] = 0, -0.5, -np.abs(rows[7]) - 0.1
    return rows


@pytest.mark.engine
@pytest.mark.parametrize("name", ["blk.0.ffn_down.weight", "blk.3.attn_v.weight", "odd"])
def test_q4_k_is_made_as_in_ggml(name):
    """NumPy makes the very bytes that llama.cpp's quantizer makes.

    Byte by byte on x86-64; where a compiler fuses products and sums, a few codes may fall on the other side.
    """
    weights = odd_weights() if name == "odd" else trained(name)
    ours, theirs = np.frombuffer(quantize_q4_k.q4_k_bytes(weights), np.uint8), in_c(weights)
    if platform.machine() in ("x86_64", "AMD64"):
        np.testing.assert_array_equal(ours, theirs)
    assert np.mean(ours == theirs) > 0.99


def test_q4_k_keeps_more_than_k_means_at_equal_bits():
    """On trained weights, blocks of 32 with a scale and a minimum beat sixteen centroids for the same bits."""
    weights = trained("blk.0.ffn_down.weight")
    ours, clustered, a_row = (
        way(weights) for way in (quantize_numpy.q4_k, quantize_numpy.k_means, quantize_numpy.absmax)
    )
    assert ours.bits_per_weight == clustered.bits_per_weight == 4.5
    assert ours.rmse(weights) < clustered.rmse(weights) < a_row.rmse(weights)


def test_smaller_groups_lose_less_and_cost_more():
    """One scale for fewer neighbours means a smaller error and more bits, step by step."""
    weights = trained("blk.0.ffn_gate.weight")
    ways = [quantize_numpy.absmax(weights, group=group) for group in (256, 128, 64, 32, 16)]
    errors, costs = [way.rmse(weights) for way in ways], [way.bits_per_weight for way in ways]
    assert errors == sorted(errors, reverse=True)
    assert costs == [4.0625, 4.125, 4.25, 4.5, 5.0]


def test_absmax_by_hand():
    """The largest magnitude takes the largest code: 3.14159 and 2.71828 become 7 and 6 times 0.4488."""
    rounded = quantize_numpy.absmax(np.float32([[3.14159, 2.71828, 0, -0.2]])).weights
    assert rounded[0] == pytest.approx([7 * 0.44880, 6 * 0.44880, 0, 0], rel=1e-3)
    assert quantize_numpy.absmax(np.zeros((1, 4), np.float32)).weights.tolist() == [[0, 0, 0, 0]]


def test_k_means_finds_what_is_there():
    """Weights that take sixteen values only are kept, up to the 16 bits in which a centroid is stored."""
    values = np.float32(np.linspace(-1, 1, 16))
    weights = np.random.default_rng(1).choice(values, (4, 512))
    kept = quantize_numpy.k_means(weights)
    assert kept.rmse(weights) < 2e-4
    assert kept.bits_per_weight == 4.5


def best_clusters(values: np.ndarray, count: int) -> float:
    """The least possible sum of squared errors of `count` centroids, by dynamic programming over sorted values."""
    values = np.sort(values.astype(np.float64))
    sums, squares = (np.concatenate([[0], np.cumsum(values**power)]) for power in (1, 2))
    first, last = np.ogrid[: len(sums), : len(sums)]
    inside = squares[last] - squares[first] - (sums[last] - sums[first]) ** 2 / np.maximum(last - first, 1)
    cost = np.where(first < last, inside, np.inf)
    least = cost[0]
    for _ in range(count - 1):
        least = (least[:, None] + cost).min(axis=0)
    return float(least[-1])


def test_even_the_best_clusters_lose():
    """The best sixteen centroids there can be are a few percent better than ours, and worse than Q4_K."""
    weights = trained("blk.0.ffn_down.weight")[:16]
    groups = weights.reshape(-1, 512)
    best = np.sqrt(sum(best_clusters(group, 16) for group in groups) / weights.size)
    assert best <= quantize_numpy.k_means(weights).rmse(weights) < 1.1 * best
    assert quantize_numpy.q4_k(weights).rmse(weights) < 0.9 * best


def test_groups_and_super_blocks_must_fill_a_row():
    """Those that leave a remainder are refused with both numbers."""
    with pytest.raises(InvalidSettings, match="Groups of 100 do not fill 256 weights"):
        quantize_numpy.absmax(np.zeros((2, 256), np.float32), group=100)
    with pytest.raises(InvalidSettings, match="Rows of 100 weights are not whole super-blocks of 256"):
        quantize_q4_k.q4_k_bytes(np.zeros((2, 100), np.float32))


def test_the_search_tells_its_trials():
    """A first guess, then 21 trials from 14 to 16 steps; the kept ones have falling errors, the last of them wins."""
    block = trained("blk.0.ffn_down.weight").reshape(-1, 32)[3]
    told = list(quantize_q4_k.trials(block))
    assert [round(trial.steps, 1) for trial in told] == [15.0, *(round(14 + 0.1 * n, 1) for n in range(21))]
    kept = [trial for trial in told if trial.kept]
    assert [float(trial.error) for trial in kept] == sorted((float(trial.error) for trial in kept), reverse=True)
    scale, minimum, codes = quantize_q4_k.fit_scale_and_minimum(block)
    assert (scale, minimum) == (kept[-1].scale, -kept[-1].minimum)
    assert codes.tolist() == kept[-1].codes.tolist()


def test_what_an_error_counts_by_hand():
    """|x| + rms of the block of 32."""
    x = np.zeros((8, 32), np.float32)
    x[0, 0] = 8
    assert quantize_q4_k.weight_importance(x)[0, :2] == pytest.approx([8 + np.sqrt(2), np.sqrt(2)])
