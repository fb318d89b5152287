"""Compares quantization methods of about four bits per weight in NumPy: absmax per row or group, k-means, and Q4_K.

`q4_k_bytes` repeats ggml's quantize_row_q4_K_ref in 32-bit floats and in its order of operations, so that its bytes
can be compared with those in a file. The other methods are often mistaken for it.
Lines are those of ggml/src/ggml-quants.c at llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from inferlab.errors import InvalidSettings
from inferlab.model.dequantize import TYPES, Weights, dequantize

CANDIDATES = 21  # q4_K calls make_qkx2_quants with rmin -1, rdelta 0.1, nstep 20, both ends included (line 1476)
LLOYD_STEPS = 40


@dataclass(frozen=True)
class Rounding:
    """Weights after rounding with one method, and its bits per weight."""

    name: str
    bits_per_weight: float
    weights: Weights = field(repr=False)

    def rmse(self, original: Weights) -> float:
        """Root of the mean squared difference from the original weights, in their unit."""
        difference = self.weights.reshape(-1).astype(np.float64) - original.reshape(-1)
        return float(np.sqrt(np.mean(difference**2)))


def absmax(weights: Weights, bits: int = 4, group: int | None = None) -> Rounding:
    """Round to whole multiples of one 16-bit scale for each row, or each `group` of neighbours in a row.

    The scale is the group's largest magnitude divided by the largest code, 2**(bits - 1) - 1; codes are symmetric.
    Raises InvalidSettings when groups do not fill the rows.
    """
    width = weights.shape[-1]
    group = group or width
    grouped, top = _grouped(weights.reshape(-1, width), group), 2 ** (bits - 1) - 1
    scale = (np.abs(grouped).max(axis=1, keepdims=True) / top).astype(np.float16).astype(np.float32)
    codes = np.rint(np.divide(grouped, scale, out=np.zeros_like(grouped), where=scale > 0)).clip(-top, top)
    name = "one scale a row" if group == width else f"one scale for {group}"
    return Rounding(name, bits + 16 / group, (codes * scale).reshape(weights.shape))


def k_means(weights: Weights, n_centroids: int = 16, group: int = 512) -> Rounding:
    """Replace each weight by the nearest of `n_centroids` values, found by Lloyd's algorithm for each `group`.

    The centroids, stored as 16-bit floats, count as bits: 16 of them for 512 weights are half a bit each.
    Lloyd's algorithm repeats two steps: assign each value to its nearest centroid, move each centroid to its mean.
    The start is halfway between quantiles and even spacing; the error ends within a few percent of the minimum.
    """
    grouped = np.sort(_grouped(weights.reshape(1, -1), group), axis=1)
    middle = (np.arange(n_centroids) + 0.5) / n_centroids
    even = grouped[:, :1] + (grouped[:, -1:] - grouped[:, :1]) * middle
    centroids = (even + np.quantile(grouped, middle, axis=1).T) / 2
    for _ in range(LLOYD_STEPS):
        centroids = _means(grouped, _nearest(grouped, centroids), centroids)
    stored = np.sort(centroids, axis=1).astype(np.float16).astype(np.float32)
    grouped = weights.reshape(-1, group)
    rounded = np.take_along_axis(stored, _nearest(grouped, stored), axis=1)
    bits = np.log2(n_centroids) + 16 * n_centroids / group
    return Rounding(f"k-means, {n_centroids} for {group:,}", float(bits), rounded.reshape(weights.shape))


def stored(weights: Weights, type: str, data: bytes) -> Rounding:
    """The weights in the bytes of a quantized tensor, to compare with the other methods."""
    kind = TYPES[type]
    return Rounding(type, kind.bits_per_weight, dequantize(data, type).reshape(weights.shape))


def q4_k(weights: Weights) -> Rounding:
    """Q4_K as ggml rounds it without an importance matrix."""
    return stored(weights, "Q4_K", q4_k_bytes(weights))


def q4_k_bytes(weights: Weights) -> bytes:
    """The Q4_K super-blocks of a tensor (quantize_row_q4_K_ref, line 1457).

    For each block of 32 a scale and a minimum are searched. The 8 scales and 8 minima of a super-block are
    rounded to 6 bits, in units of the largest of each; then every weight is rounded again with the rounded values.
    """
    x = _grouped(np.float32(weights).reshape(-1, weights.shape[-1]), 256).reshape(-1, 8, 32)
    scale, minimum, codes = fit_scale_and_minimum(x)
    (d, six_scales), (dmin, six_minima) = _six_bits(scale), _six_bits(minimum)
    unit, floor = d[:, None] * six_scales, dmin[:, None] * six_minima
    with np.errstate(divide="ignore", invalid="ignore"):
        again = np.rint((x + floor[..., None]) / unit[..., None]).clip(0, 15)
    codes = np.where(unit[..., None] == 0, codes, again).astype(np.uint8)
    halves = np.stack([d, dmin], axis=1).astype("<f2").view(np.uint8)
    nibbles = codes[:, 0::2] | codes[:, 1::2] << 4
    packed = _packed(six_scales.astype(np.uint8), six_minima.astype(np.uint8))
    return np.hstack([halves, packed, nibbles.reshape(-1, 128)]).tobytes()


@dataclass(frozen=True)
class Trial:
    """One trial of Q4_K's search over one or more blocks: the range of codes, the fitted values, the error.

    steps  codes' steps between the minimum and the greatest weight: 15 for the first guess, then 14.0 to 16.0
    error  the weighted sum of squares that the search minimizes
    kept   whether this was better than every trial before it
    """

    steps: float
    scale: Weights
    minimum: Weights
    codes: Weights
    error: Weights
    kept: np.ndarray


def fit_scale_and_minimum(x: Weights) -> tuple[Weights, Weights, Weights]:
    """The scale, the (positive) minimum and the codes 0..15 of each block of 32 (make_qkx2_quants, line 799)."""
    best: Trial | None = None
    for trial in trials(x):
        best = trial if best is None else _better_trial(best, trial)
    flat = x.max(axis=-1) == np.minimum(x.min(axis=-1), 0)
    scale, codes = np.where(flat, np.float32(0), best.scale), np.where(flat[..., None], 0, best.codes)
    return scale, -best.minimum, codes


def trials(x: Weights) -> Iterator[Trial]:
    """Every trial of the search, in its order; x is one block of 32 weights or an array of such blocks.

    The error is the sum of w (scale x code + minimum - x)**2 with w = rms(x) + |x|.
    The first guess spreads the codes evenly from the least weight, at most 0, to the greatest.
    Then 21 trials, each with a slightly wider range of codes than the one before, 14 to 16 steps from the minimum
    found so far to the greatest weight; the codes of each give, by least squares, the best scale and minimum for
    them; a trial with a smaller error than all before it is kept, and the next trials use its minimum.
    """
    w = np.sqrt(_sum_as_in_c(x * x) / np.float32(32))[..., None] + np.abs(x)
    low, high = np.minimum(x.min(axis=-1), 0), x.max(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        step = np.float32(15) / (high - low)
        scale, codes = np.float32(1) / step, _codes(step, x, low)
        error = _error(scale, codes, low, x, w)
        yield Trial(15.0, scale, low, codes, error, np.ones_like(low, bool))
        for number in range(CANDIDATES):
            steps = np.float32(-1) + np.float32(0.1) * np.float32(number) + np.float32(15)
            codes = _codes(steps / (high - low), x, low)
            scale, minimum = _least_squares(codes, x, w)
            tried = _error(scale, codes, minimum, x, w)
            kept = tried < error
            yield Trial(float(steps), scale, minimum, codes, tried, kept)
            low, error = np.where(kept, minimum, low), np.where(kept, tried, error)


def _better_trial(best: Trial, trial: Trial) -> Trial:
    """For each block the better of two trials."""
    scale, minimum = (np.where(trial.kept, getattr(trial, n), getattr(best, n)) for n in ("scale", "minimum"))
    return replace(trial, scale=scale, minimum=minimum, codes=np.where(trial.kept[..., None], trial.codes, best.codes))


def _least_squares(codes: Weights, x: Weights, w: Weights) -> tuple[Weights, Weights]:
    """Scale and minimum that fit scale x code + minimum to x best, the minimum at most 0 (lines 839-851)."""
    wl = w * codes
    sum_w, sum_x, sum_l = _sum_as_in_c(w), _sum_as_in_c(w * x), _sum_as_in_c(wl)
    sum_l2, sum_xl = _sum_as_in_c(wl * codes), _sum_as_in_c(wl * x)
    determinant = sum_w * sum_l2 - sum_l * sum_l
    scale = (sum_w * sum_xl - sum_x * sum_l) / determinant
    minimum = (sum_l2 * sum_x - sum_l * sum_xl) / determinant
    scale = np.where(minimum > 0, sum_xl / sum_l2, scale)
    unsolved = ~(determinant > 0)
    return np.where(unsolved, np.float32(np.nan), scale), np.minimum(minimum, np.float32(0))


def _codes(step: Weights, x: Weights, low: Weights) -> Weights:
    return np.rint(step[..., None] * (x - low[..., None])).clip(0, 15)


def _error(scale: Weights, codes: Weights, minimum: Weights, x: Weights, w: Weights) -> Weights:
    difference = scale[..., None] * codes + minimum[..., None] - x
    return _sum_as_in_c(w * (difference * difference))


def _sum_as_in_c(terms: Weights) -> Weights:
    """The sum over the last axis from left to right in 32 bits, as a loop in C adds; NumPy's own sum adds in pairs."""
    return np.add.accumulate(terms, axis=-1)[..., -1]


def _six_bits(values: Weights) -> tuple[Weights, Weights]:
    """A 16-bit unit for eight positive values, and the values as whole multiples of it up to 63 (lines 1488-1507)."""
    greatest = np.maximum(values.max(axis=1), 0)
    inverse = np.divide(np.float32(63), greatest, out=np.zeros_like(greatest), where=greatest > 0)
    unit = (greatest / np.float32(63)).astype(np.float16).astype(np.float32)
    return unit, np.minimum(np.rint(inverse[:, None] * values), 63)


def _packed(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """Sixteen numbers of 6 bits in 12 bytes; `dequantize.six_bit_pairs` is the inverse."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    return np.hstack([first, second, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4])


def _grouped(rows: Weights, group: int) -> Weights:
    if group < 1 or rows.shape[-1] % group:
        raise InvalidSettings(f"Groups of {group} do not fill {rows.shape[-1]} weights. Choose a divisor.")
    return np.float32(rows).reshape(-1, group)


def _nearest(values: Weights, centroids: Weights) -> np.ndarray:
    """For each value the index of the nearest of its group's centroids, in ascending order."""
    centroids = np.sort(centroids, axis=1)
    between = (centroids[:, 1:] + centroids[:, :-1]) / 2
    return sum((values >= edge[:, None]).astype(np.intp) for edge in between.T)


def _means(values: Weights, owner: np.ndarray, centroids: Weights) -> Weights:
    """The mean of each centroid's values; a centroid without values is unchanged."""
    flat = (np.arange(len(values))[:, None] * centroids.shape[1] + owner).reshape(-1)
    count = np.bincount(flat, minlength=centroids.size).reshape(centroids.shape)
    total = np.bincount(flat, weights=values.reshape(-1), minlength=centroids.size).reshape(centroids.shape)
    return np.where(count > 0, total / np.maximum(count, 1), centroids)
