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

Q4_K = 12
IN_C = """
import ctypes, sys
path, kind, rows, width, size = sys.argv[1], *map(int, sys.argv[2:])
quantize = ctypes.CDLL(path).ggml_quantize_chunk
quantize.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, ctypes.c_void_p]
quantize.restype, out = ctypes.c_size_t, ctypes.create_string_buffer(size)
weights, importance = sys.stdin.buffer.read(4 * rows * width), sys.stdin.buffer.read() or None
quantize(kind, weights, out, 0, rows, width, importance)
sys.stdout.buffer.write(out.raw)
"""


def in_c(weights: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
    """The Q4_K super-blocks that libggml itself makes of a tensor, in a process of its own."""
    given = weights.tobytes() + (b"" if importance is None else importance.tobytes())
    counts = (Q4_K, *weights.shape, weights.size // 256 * 144)
    command = [sys.executable, "-c", IN_C, str(libraries.shared_library("ggml-base")), *map(str, counts)]
    done = subprocess.run(command, input=given, capture_output=True, check=True, timeout=60)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, 144)


def in_numpy(weights: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
    return np.frombuffer(quantize_q4_k.q4_k_bytes(weights, importance), np.uint8).reshape(-1, 144)


def assert_made_alike(ours: np.ndarray, theirs: np.ndarray, least: float = 0.99) -> None:
    """Byte by byte on x86-64; where a compiler fuses products and sums, a few codes may fall on the other side."""
    if platform.machine() in ("x86_64", "AMD64"):
        np.testing.assert_array_equal(ours, theirs)
    assert np.mean(ours == theirs) > least


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
    """A few dozen lines of NumPy make the very bytes that llama.cpp's quantizer makes of trained weights."""
    weights = odd_weights() if name == "odd" else trained(name)
    assert_made_alike(in_numpy(weights), in_c(weights))


IMPORTANCES = {
    "even": lambda generator, n: np.ones(n),
    "positive": lambda generator, n: generator.random(n) + 0.01,
    "heavy tail": lambda generator, n: generator.lognormal(0, 2, n),
    "half zero": lambda generator, n: generator.random(n) * (generator.random(n) < 0.5),
    "blocks unused": lambda generator, n: np.repeat(generator.random(n // 32) * (generator.random(n // 32) < 0.7), 32),
    "all zero": lambda generator, n: np.zeros(n),
}


def importance_of(kind: str, n_cols: int) -> np.ndarray:
    return IMPORTANCES[kind](np.random.default_rng(11), n_cols).astype(np.float32)


@pytest.mark.engine
@pytest.mark.parametrize("kind", IMPORTANCES)
@pytest.mark.parametrize("name", ["blk.3.ffn_up.weight", "blk.3.attn_v.weight", "random", "odd"])
def test_q4_k_with_an_importance_matrix_is_made_as_in_ggml(name, kind):
    """With an importance matrix too the bytes are llama.cpp's, for even, very uneven and missing importances."""
    made_up = {"odd": odd_weights, "random": lambda: np.float32(np.random.default_rng(5).normal(0, 0.02, (16, 1024)))}
    weights = made_up[name]() if name in made_up else trained(name)
    importance = importance_of(kind, weights.shape[1])
    assert_made_alike(in_numpy(weights, importance), in_c(weights, importance), least=0.95)


@pytest.mark.engine
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="fused products and sums decide here")
def test_nearly_unused_blocks_are_made_as_in_ggml():
    """Where few columns of a block count, ggml's search can end with a negative scale, which its bytes cannot hold.

    Its code wraps around and spills into another block's scale. The NumPy code repeats this too.
    """
    generator = np.random.default_rng(2)
    weights = np.float32(generator.normal(0, 0.02, (64, 1024)))
    importance = np.float32(generator.lognormal(0, 1, 1024) * (generator.random(1024) < 0.06))
    used, rows = importance.reshape(-1, 8, 32), weights.reshape(64, -1, 8, 32)
    w = quantize_q4_k.weight_importance(rows, used)
    scale, _, _ = quantize_q4_k.fit_scale_and_minimum(rows, w)
    assert scale.min() < 0
    np.testing.assert_array_equal(in_numpy(weights, importance), in_c(weights, importance))


def test_q4_k_keeps_more_than_k_means_at_equal_bits():
    """On trained weights, blocks of 32 with a scale and a minimum beat sixteen centroids for the same bits."""
    weights = trained("blk.0.ffn_down.weight")
    ours, clustered, a_row = (
        quantize_numpy.q4_k(weights),
        quantize_numpy.k_means(weights),
        quantize_numpy.absmax(weights),
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


def test_even_importances_are_not_no_importances():
    """A matrix of ones changes the search all the same: other weights of errors, more trials, searched units."""
    weights = trained("blk.0.ffn_down.weight")
    ones = np.ones(weights.shape[1], np.float32)
    even, plain = (dequantize.q4_k_weights(quantize_q4_k.q4_k_bytes(weights, matrix)) for matrix in (ones, None))
    errors = [np.sqrt(np.mean((some - weights.reshape(-1)) ** 2)) for some in (even, plain)]
    assert 0.95 * errors[1] < errors[0] < errors[1]


def test_a_matrix_moves_the_error_to_columns_that_matter_less():
    """With uneven importances the weighted error of a super-block falls, and its plain error rises."""
    weights = trained("blk.3.ffn_up.weight")[0, :256]
    effect = quantize_numpy.imatrix_effect(weights, importance_of("heavy tail", 256))
    assert effect.weighted_squared_error(effect.weighted) < 0.8 * effect.weighted_squared_error(effect.plain)
    assert effect.squared_error(effect.weighted) > effect.squared_error(effect.plain)
    assert 0 < effect.n_codes_changed < 256


def test_the_effect_of_a_matrix_by_hand():
    """Errors are summed over the weights, each times its column's importance."""
    weights, importance = np.zeros(256, np.float32), np.zeros(256, np.float32)
    weights[:2], importance[:2] = (1, -1), (3, 0)
    effect = quantize_numpy.imatrix_effect(weights, importance)
    off = weights - effect.plain.weights.reshape(-1)
    assert effect.squared_error(effect.plain) == pytest.approx(np.sum(off**2), rel=1e-4)
    assert effect.weighted_squared_error(effect.plain) == pytest.approx(3 * off[0] ** 2, rel=1e-4)
    assert effect.n_codes_changed == np.sum(effect.plain.codes != effect.weighted.codes)


def test_a_super_block_without_importance_is_lost():
    """When all 256 columns have importance 0, ggml stores zeros for the weights, whatever they were."""
    weights = np.random.default_rng(4).normal(0, 0.02, 256).astype(np.float32)
    effect = quantize_numpy.imatrix_effect(weights, np.zeros(256, np.float32))
    assert not effect.weighted.weights.any()
    assert effect.plain.weights.any()


def test_groups_must_fill_a_row():
    """Groups that leave a remainder are refused with both numbers."""
    with pytest.raises(InvalidSettings, match="Groups of 100 do not fill 256 weights"):
        quantize_numpy.absmax(np.zeros((2, 256), np.float32), group=100)


def test_super_blocks_and_importances_must_fit_the_rows():
    """Rows that are not whole super-blocks are refused, and importances that are not one for each column."""
    with pytest.raises(InvalidSettings, match="Rows of 100 weights are not whole super-blocks of 256"):
        quantize_q4_k.q4_k_bytes(np.zeros((2, 100), np.float32))
    with pytest.raises(InvalidSettings, match="There are 255 importances for 256 columns"):
        quantize_q4_k.q4_k_bytes(np.zeros((2, 256), np.float32), np.ones(255, np.float32))
    with pytest.raises(InvalidSettings, match="There are 1x256 importances for 256 columns"):
        quantize_numpy.imatrix_effect(np.zeros(256, np.float32), np.ones((1, 256), np.float32))


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


def test_the_search_with_a_matrix_tells_its_trials():
    """With a matrix there are 37 trials from 14.1 to 15.9 steps, and its best one serves the important columns more."""
    weights, importance = trained("blk.3.ffn_up.weight")[0, :256], importance_of("heavy tail", 256)
    x, a = weights[64:96], importance[64:96]
    counted = quantize_q4_k.weight_importance(weights.reshape(8, 32), importance.reshape(8, 32))[2]
    plain, told = (list(quantize_q4_k.trials(x, w)) for w in (None, counted))
    assert [round(trial.steps, 2) for trial in told] == [15.0, *(round(14.1 + 0.05 * n, 2) for n in range(37))]
    assert len(plain) == 1 + 21
    plain_best, best = ([trial for trial in some if trial.kept][-1] for some in (plain, told))

    def error(trial):
        return float(np.sum(a * (trial.scale * trial.codes + trial.minimum - x) ** 2))

    assert error(best) < error(plain_best)
    assert (best.codes != plain_best.codes).any()


def test_what_an_error_counts_by_hand():
    """Without a matrix |x| + rms of the block; with one the column's importance times sqrt(2 mean square + x**2)."""
    x = np.zeros((8, 32), np.float32)
    x[0, 0], x[7, 31] = 8, -16  # mean square of the 256: 320 / 256 = 1.25
    assert quantize_q4_k.weight_importance(x)[0, :2] == pytest.approx([8 + np.sqrt(2), np.sqrt(2)])
    a = np.full((8, 32), 3, np.float32)
    expected = 3 * np.sqrt([2.5 + 64, 2.5])
    assert quantize_q4_k.weight_importance(x, a)[0, :2] == pytest.approx(expected)
