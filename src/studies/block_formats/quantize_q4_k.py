"""Quantizes to Q4_K in NumPy, with and without an importance matrix, to the same bytes as llama.cpp's quantizer.

Without a matrix it repeats quantize_row_q4_K_ref, with one quantize_row_q4_K_impl: in 32-bit floats and in their order
of operations. Of the five steps, a matrix changes the first, the third (other trials) and the fourth:

1. the importance of each weight in the search      weight_importance
2. a first guess of each block's scale and minimum  trials
3. trials of better ones                            trials
4. eight scales and eight minima in 6 bits          _round_to_six_bits, with a matrix _search_six_bits
5. the codes, rounded again                         _round_again

Lines are those of ggml/src/ggml-quants.c at llama.cpp 0c1e57098.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from inferlab.errors import InvalidSettings
from studies.block_formats.dequantize import Weights, six_bit_pairs

PLAIN_TRIALS = (-1.0, 0.1, 20)  # rmin, rdelta, nstep that Q4_K gives to make_qkx2_quants (line 1476)
IMATRIX_TRIALS = (-0.9, 0.05, 36)  # and to make_qkx3_quants, the same search under another name (line 1583)
UNIT_TRIALS = (0, -4, -3, -2, -1, 1, 2, 3, 4)  # tenths of a step more than 63 between 0 and the greatest (line 1096)
PASSES = 5  # in which single scales may still take another code (line 1123)
ALL_ZERO = np.float32(1e-15)  # GROUP_MAX_EPS (line 20)


def q4_k_bytes(weights: Weights, importance: Weights | None = None) -> bytes:
    """The Q4_K super-blocks of a tensor (quantize_q4_K, line 1626); an importance matrix has a number for each column.

    For each block of 32 a scale and a minimum are searched. The 8 scales and 8 minima of a super-block become whole
    multiples of two 16-bit units, in 6 bits; then every weight is rounded again with the scale and minimum so stored.
    Raises InvalidSettings when super-blocks do not fill the rows, or for another number of importances than columns.
    """
    x, n_cols, w = _super_blocks(weights), weights.shape[-1], None
    if importance is not None:
        w = weight_importance(x, _of_columns(importance, n_cols, weights.size // n_cols))
    scale, minimum, codes = fit_scale_and_minimum(x, w)
    six_bits = _round_to_six_bits if w is None else partial(_search_six_bits, w=_sum_as_in_c(w))
    (d, scales), (dmin, minima) = six_bits(scale), six_bits(minimum)
    halves, packed = np.stack([d, dmin], axis=1).astype("<f2"), _packed(scales, minima)
    codes = _round_again(x, codes, halves.astype(np.float32), packed)
    nibbles = codes[:, 0::2] | codes[:, 1::2] << 4
    return np.hstack([halves.view(np.uint8), packed, nibbles.reshape(-1, 128)]).tobytes()


def _super_blocks(weights: Weights) -> Weights:
    """The rows of a tensor as super-blocks of 8 x 32 weights."""
    if weights.shape[-1] % 256:
        raise InvalidSettings(f"Rows of {weights.shape[-1]} weights are not whole super-blocks of 256. Choose others.")
    return np.float32(weights).reshape(-1, 8, 32)


def _of_columns(importance: Weights, n_cols: int, n_rows: int) -> Weights:
    """The importance of each weight's column, in the shape of the super-blocks."""
    importance = np.float32(importance)
    if importance.shape != (n_cols,):
        found = "x".join(map(str, importance.shape))
        raise InvalidSettings(f"There are {found} importances for {n_cols} columns. Give one for each column.")
    return np.tile(importance.reshape(-1, 8, 32), (n_rows, 1, 1))


# --- step 1: how much an error counts -------------------------------------------------------------------------------


def weight_importance(x: Weights, columns: Weights | None = None) -> Weights:
    """How much the squared error of each weight counts in the search (lines 1472-1475 and 1568-1576).

    Without an importance matrix |x| + rms of the block's 32 weights, from the weights alone.
    With one a sqrt(s**2 + x**2): `columns` holds a, the mean square of the activations of the weight's column;
    s**2 is twice the mean square of the super-block's 256 weights; x is (..., 8, 32), and `columns` too.
    """
    if columns is None:
        return np.sqrt(_sum_as_in_c(x * x) / np.float32(32))[..., None] + np.abs(x)
    squares = x * x
    total = _sum_as_in_c(squares.reshape(*x.shape[:-2], 256))
    return columns * np.sqrt((np.float32(2) * total / np.float32(256))[..., None, None] + squares)


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


def fit_scale_and_minimum(x: Weights, w: Weights | None = None) -> tuple[Weights, Weights, Weights]:
    """The scale, the (positive) minimum and the codes 0..15 of each block of 32 (make_qkx2_quants, line 799).

    `w` is the importance of each weight by an importance matrix, if there is one (make_qkx3_quants, line 993).
    """
    best: Trial | None = None
    for trial in trials(x, w):
        best = trial if best is None else _better_trial(best, trial)
    flat = x.max(axis=-1) == np.minimum(x.min(axis=-1), 0)
    scale, codes = np.where(flat, np.float32(0), best.scale), np.where(flat[..., None], 0, best.codes)
    return scale, -best.minimum, codes


def trials(x: Weights, w: Weights | None = None) -> Iterator[Trial]:
    """Every trial of the search, in its order; x is one block of 32 weights or an array of such blocks.

    The error is the sum of w (scale x code + minimum - x)**2, with `w` from `weight_importance`.
    The first guess spreads the codes evenly from the least weight, at most 0, to the greatest.
    Then trials, each with a slightly wider range of codes than the one before, from the minimum found so far to the
    greatest weight: 21 of 14.0, 14.1, ... 16.0 steps, or with a `w` given 37 of 14.10, 14.15, ... 15.90 steps.
    The codes of each give, by least squares, the best scale and minimum for them; a trial with a smaller error than
    all before it is kept, and the next trials use its minimum.
    """
    rmin, rdelta, nstep = map(np.float32, PLAIN_TRIALS if w is None else IMATRIX_TRIALS)
    w = weight_importance(x) if w is None else w
    low, high = np.minimum(x.min(axis=-1), 0), x.max(axis=-1)
    with np.errstate(all="ignore"):
        step = np.float32(15) / (high - low)
        scale, codes = np.float32(1) / step, _codes(step, x, low)
        error = _error(scale, codes, low, x, w)
        yield Trial(15.0, scale, low, codes, error, np.ones_like(low, bool))
        for number in range(int(nstep) + 1):
            steps = rmin + rdelta * np.float32(number) + np.float32(15)
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


def _search_six_bits(values: Weights, w: Weights) -> tuple[Weights, np.ndarray]:
    """The same, with a search for the least sum of w (unit x code - value)**2 (make_qp_quants, line 1076).

    `w` is the importance of each of the eight blocks, the sum over its weights.
    The codes start from the best of nine units; then single codes move, as in `_moved`, in five passes over them.
    The unit is fitted to the codes by least squares: unit = sum of w value code / sum of w code**2
    """
    values = np.where(values.max(axis=1, keepdims=True) >= ALL_ZERO, values, 0)
    with np.errstate(all="ignore"):
        codes = np.minimum(nearest_int(_best_inverse(values, w) * values), 63)
        value_code, code_code = _sum_as_in_c(w * values * codes), _sum_as_in_c(w * codes * codes)
        codes = _as_byte(codes)
        for i in [*range(8)] * PASSES:
            moved = _moved(w[:, i], values[:, i], codes[:, i], value_code, code_code)
            codes[:, i], value_code, code_code = moved
        unit = np.where(code_code > 0, value_code / code_code, np.float32(0))
    return unit, codes.astype(np.uint8)


def _best_inverse(values: Weights, w: Weights) -> Weights:
    """The inverse of the best unit: greatest / 63, or greatest / 62.6, 62.7, ... 63.4 (lines 1085-1112)."""
    inverses = (np.float32(0.1) * np.float32(UNIT_TRIALS) + np.float32(63)) / values.max(axis=1, keepdims=True)
    codes = np.minimum(nearest_int(inverses[..., None] * values[:, None]), 63)
    codes[:, 0] = _as_byte(codes[:, 0])
    difference = values[:, None] - (np.float32(1) / inverses)[..., None] * codes
    errors = _sum_as_in_c(w[:, None] * difference * difference)
    return np.take_along_axis(inverses, errors.argmin(axis=1)[:, None], axis=1)


def _moved(w: Weights, value: Weights, code: Weights, value_code: Weights, code_code: Weights) -> tuple[Weights, ...]:
    """The best code of one value while the other seven stay, and the two sums with it (lines 1125-1138).

    With the unit fitted to the codes the error is the sum of w value**2 less this gain; a code moves if it grows:
    gain = (sum of w value code)**2 / sum of w code**2
    """
    rest_vc, rest_cc = value_code - w * value * code, code_code - w * code * code
    new = np.minimum(nearest_int(value * rest_cc / rest_vc), 63)
    new_vc, new_cc = rest_vc + w * value * new, rest_cc + w * new * new
    gains = new_vc * new_vc * code_code > value_code * value_code * new_cc
    moves = (rest_vc > 0) & (rest_cc > 0) & (new != code) & gains
    return tuple(np.where(moves, *pair) for pair in ((_as_byte(new), code), (new_vc, value_code), (new_cc, code_code)))


def _as_byte(codes: Weights) -> Weights:
    """Codes as C keeps them in one byte without a sign, where -1 becomes 255.

    A block's scale is negative at times where nearly all of its columns have importance 0.
    """
    return np.mod(codes, np.float32(256))


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
