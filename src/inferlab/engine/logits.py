"""Scores from rows of logits: the cost of each token, and the divergence from a reference model.

A row has one logit for each entry of the vocabulary, at one position. Plain NumPy in double precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

SLICE_LOGITS = 2**16  # logits in one slice, so that each copy in double precision takes 512 KiB and stays in a cache


class ComparedLosses(NamedTuple):
    """Two models on the same positions, one entry each.

    nats, reference_nats  cost of the actual token for the model and for the reference
    kl_nats               Kullback-Leibler divergence of the model's distribution from the reference's
    same_top              whether both have the same likeliest token
    """

    nats: list[float]
    reference_nats: list[float]
    kl_nats: list[float]
    same_top: list[bool]

    def extend(self, more: ComparedLosses) -> None:
        """Append the entries of further positions."""
        self.nats.extend(more.nats)
        self.reference_nats.extend(more.reference_nats)
        self.kl_nats.extend(more.kl_nats)
        self.same_top.extend(more.same_top)


def log_probabilities(logits: np.ndarray) -> np.ndarray:
    """log softmax of each row, in nats."""
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def nats_of(logits: np.ndarray, tokens: np.ndarray) -> list[float]:
    """Nats that each row's token costs: the negative log of its probability."""
    costs: list[float] = []
    for rows in _slices(logits):
        costs += _costs(log_probabilities(logits[rows]), tokens[rows])
    return costs


def compared(logits: np.ndarray, reference: np.ndarray, tokens: np.ndarray) -> ComparedLosses:
    """Compare rows of a model with rows of a reference at the same positions; `tokens` are the actual ones."""
    columns = ComparedLosses([], [], [], [])
    for rows in _slices(logits):
        model, full = log_probabilities(logits[rows]), log_probabilities(reference[rows])
        tops = model.argmax(axis=1) == full.argmax(axis=1)
        nats, reference_nats = _costs(model, tokens[rows]), _costs(full, tokens[rows])
        columns.extend(ComparedLosses(nats, reference_nats, divergence(model, full), tops.tolist()))
    return columns


def divergence(model: np.ndarray, full: np.ndarray) -> list[float]:
    """sum p log(p / q) of each row, for log-probabilities p of the reference and q of the model; nats."""
    share = np.exp(full)
    gap = np.subtract(full, model, where=share > 0, out=np.zeros_like(share))
    return (share * gap).sum(axis=1).tolist()


def _costs(log_p: np.ndarray, tokens: np.ndarray) -> list[float]:
    return (-log_p[np.arange(len(tokens)), tokens]).tolist()


def _slices(logits: np.ndarray) -> Iterator[slice]:
    count, n_vocab = logits.shape
    step = max(1, SLICE_LOGITS // n_vocab)
    return (slice(start, min(start + step, count)) for start in range(0, count, step))
