"""Compares quantization methods of about four bits per weight in NumPy: absmax per row or group, k-means, and Q4_K.

Q4_K is made as in ggml (quantize_q4_k.py), so that its bytes can be compared with those in a file. The other methods
are often mistaken for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import TYPES
from studies.block_formats.dequantize import Weights, q4_k_weights
from studies.block_formats.quantize_q4_k import q4_k_bytes

N_CENTROIDS = 16
LLOYD_STEPS = 40
GREATEST_CODE = 7


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


def absmax(weights: Weights, group: int | None = None) -> Rounding:
    """Round to whole multiples of one 16-bit scale for each row, or each `group` of neighbours in a row.

    The scale is the group's largest magnitude divided by the largest code of four bits; codes are symmetric, -7 to 7.
    Raises InvalidSettings when groups do not fill the rows.
    """
    width = weights.shape[-1]
    group = group or width
    grouped = _grouped(weights.reshape(-1, width), group)
    scale = (np.abs(grouped).max(axis=1, keepdims=True) / GREATEST_CODE).astype(np.float16).astype(np.float32)
    codes = np.rint(np.divide(grouped, scale, out=np.zeros_like(grouped), where=scale > 0))
    codes = codes.clip(-GREATEST_CODE, GREATEST_CODE)
    name = "one scale a row" if group == width else f"one scale for {group}"
    return Rounding(name, 4 + 16 / group, (codes * scale).reshape(weights.shape))


def k_means(weights: Weights, group: int = 512) -> Rounding:
    """Replace each weight by the nearest of sixteen values, found by Lloyd's algorithm for each `group`.

    The centroids, stored as 16-bit floats, count as bits: 16 of them for 512 weights are half a bit each.
    Lloyd's algorithm repeats two steps: assign each value to its nearest centroid, move each centroid to its mean.
    The start is halfway between quantiles and even spacing; the error ends within a few percent of the minimum.
    """
    grouped = np.sort(_grouped(weights.reshape(1, -1), group), axis=1)
    middle = (np.arange(N_CENTROIDS) + 0.5) / N_CENTROIDS
    even = grouped[:, :1] + (grouped[:, -1:] - grouped[:, :1]) * middle
    centroids = (even + np.quantile(grouped, middle, axis=1).T) / 2
    for _ in range(LLOYD_STEPS):
        centroids = _means(grouped, _nearest(grouped, centroids), centroids)
    stored = np.sort(centroids, axis=1).astype(np.float16).astype(np.float32)
    grouped = weights.reshape(-1, group)
    rounded = np.take_along_axis(stored, _nearest(grouped, stored), axis=1)
    bits = np.log2(N_CENTROIDS) + 16 * N_CENTROIDS / group
    return Rounding(f"k-means, {N_CENTROIDS} for {group:,}", float(bits), rounded.reshape(weights.shape))


def q4_k(weights: Weights) -> Rounding:
    """Q4_K as ggml rounds it, without an importance matrix."""
    restored = q4_k_weights(q4_k_bytes(weights))
    return Rounding("Q4_K", TYPES["Q4_K"].bits_per_weight, restored.reshape(weights.shape))


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
