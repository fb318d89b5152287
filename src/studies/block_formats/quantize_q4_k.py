"""Quantizes to Q4_K in NumPy, without an importance matrix, to the same bytes as llama.cpp's quantizer.

It repeats quantize_row_q4_K_ref, in 32-bit floats and in their order of operations:

1. the importance of each weight in the search      weight_importance
2. a first guess of each block's scale and minimum  trials
3. trials of better ones                            trials
4. eight scales and eight minima in 6 bits          _round_to_six_bits
5. the codes, rounded again                         _round_again

Lines are those of ggml/src/ggml-quants.c at llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from inferlab.errors import InvalidSettings
from studies.block_formats.dequantize import Weights, six_bit_pairs

FIRST, STEP, N_TRIALS = np.float32(-1), np.float32(0.1), 21
"""rmin, rdelta and nstep + 1 that Q4_K gives to make_qkx2_quants (line 1476)."""


def q4_k_bytes(weights: Weights) -> bytes:
    """The Q4_K super-blocks of a tensor (quantize_q4_K, line 1626).

    For each block of 32 a scale and a minimum are searched. The 8 scales and 8 minima of a super-block become whole
    multiples of two 16-bit units, in 6 bits; then every weight is rounded again with the scale and minimum so stored.
    Raises InvalidSettings when super-blocks do not fill the rows.
    """
    if weights.shape[-1] % 256:
        raise InvalidSettings(f"Rows of {weights.shape[-1]} weights are not whole super-blocks of 256. Choose others.")
    x = np.float32(weights).reshape(-1, 8, 32)
    scale, minimum, codes = fit_scale_and_minimum(x)
    (d, scales), (dmin, minima) = _round_to_six_bits(scale), _round_to_six_bits(minimum)
    halves, packed = np.stack([d, dmin], axis=1).astype("<f2"), _packed(scales, minima)
    codes = _round_again(x, codes, halves.astype(np.float32), packed)
    nibbles = codes[:, 0::2] | codes[:, 1::2] << 4
    return np.hstack([halves.view(np.uint8), packed, nibbles.reshape(-1, 128)]).tobytes()


# --- step 1: how much an error counts -------------------------------------------------------------------------------


def weight_importance(x: Weights) -> Weights:
    """How much the squared error of each weight counts: |x| + rms of the block's 32 weights (lines 1472-1475)."""
    return np.sqrt(_sum_as_in_c(x * x) / np.float32(32))[..., None] + np.abs(x)


# --- steps 2 and 3: a scale and a minimum for each block ------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """One trial of Q4_K's search over one or more blocks: the range of codes, the fitted values, the error.

    steps  codes' steps between the minimum and the greatest weight: 15 for the first guess, then from 14 to 16
    error  the sum of squares, weighted by importance, that the search minimizes
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

    The error is the sum of w (scale x code + minimum - x)**2, with `w` from `weight_importance`.
    The first guess spreads the codes evenly from the least weight, at most 0, to the greatest.
    Then trials, each with a slightly wider range of codes than the one before, from the minimum found so far to the
    greatest weight: 14.0, 14.1, ... 16.0 steps.
    The codes of each give, by least squares, the best scale and minimum for them; a trial with a smaller error than
    all before it is kept, and the next trials use its minimum.
    """
    w = weight_importance(x)
    low, high = np.minimum(x.min(axis=-1), 0), x.max(axis=-1)
    with np.errstate(all="ignore"):
        step = np.float32(15) / (high - low)
        scale, codes = np.float32(1) / step, _codes(step, x, low)
        error = _error(scale, codes, low, x, w)
        yield Trial(15.0, scale, low, codes, error, np.ones_like(low, bool))
        for number in range(N_TRIALS):
            steps = FIRST + STEP * np.float32(number) + np.float32(15)
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
    """Scale and minimum that fit scale x code + minimum to x best, the minimum at most 0 (lines 841-858)."""
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
    return nearest_int(step[..., None] * (x - low[..., None])).clip(0, 15)


def _error(scale: Weights, codes: Weights, minimum: Weights, x: Weights, w: Weights) -> Weights:
    difference = scale[..., None] * codes + minimum[..., None] - x
    return _sum_as_in_c(w * (difference * difference))


# --- step 4: scales and minima in 6 bits ----------------------------------------------------------------------------


def _round_to_six_bits(values: Weights) -> tuple[Weights, np.ndarray]:
    """A unit for eight positive values, and the values as whole multiples of it up to 63 (lines 1487-1504).

    unit = greatest / 63
    """
    greatest = np.maximum(values.max(axis=1), 0)
    inverse = np.divide(np.float32(63), greatest, out=np.zeros_like(greatest), where=greatest > 0)
    return greatest / np.float32(63), np.minimum(nearest_int(inverse[:, None] * values), 63).astype(np.uint8)


# --- step 5 and pieces ----------------------------------------------------------------------------------------------


def _round_again(x: Weights, codes: Weights, halves: Weights, packed: np.ndarray) -> np.ndarray:
    """The codes for the stored scales and minima; where a scale is 0, the codes of the search (lines 1507-1517)."""
    scales, minima = (pair.astype(np.float32) for pair in six_bit_pairs(packed))
    scale, minimum = (halves[:, :1] * scales)[..., None], (halves[:, 1:] * minima)[..., None]
    with np.errstate(all="ignore"):
        again = nearest_int((x + minimum) / scale).clip(0, 15)
    return np.where(scale == 0, codes, again).astype(np.uint8)


def _packed(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """Sixteen numbers of 6 bits in 12 bytes; `dequantize.six_bit_pairs` is the inverse."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    return np.hstack([first, second, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4])


def nearest_int(values: Weights) -> Weights:
    """The nearest whole number, ties to even, read off the mantissa as in C (nearest_int, line 621).

    It is exact up to 2**22; for greater numbers and infinities it is off, and for 0/0 it is 0.
    """
    bits = np.float32(values + np.float32(12582912)).view(np.int32)  # 1.5 x 2**23: the last bit stands for 1
    return ((bits & 0x007FFFFF) - 0x00400000).astype(np.float32)


def _sum_as_in_c(terms: Weights) -> Weights:
    """The sum over the last axis from left to right in 32 bits, as a loop in C adds; NumPy's own sum adds in pairs."""
    return np.add.accumulate(terms, axis=-1)[..., -1]
