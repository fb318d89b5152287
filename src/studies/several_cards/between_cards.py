"""Computes the bytes that several devices exchange for each token of a batch, from the model's shape.

    whole layers   n_embd * 4 bytes at each boundary, where a block's device is not that of the block before
    shared         two sums for each block, of n_embd * 4 bytes each: of two devices each sends its part to the other
Beside that the first device receives the embedded token, n_embd * 4 bytes, and the host reads the logits, n_vocab * 4
bytes: from the last device, or from each device its part of them. Masks, positions and cell numbers are a few bytes.
The sums are those of the attention output and of the feed-forward network, the two products that are divided by their
inputs (ggml-backend-meta.cpp:640-700, 2031-2210); the experts of a token are summed on their device first.
With more than two devices the exchange has ceil(log2(devices)) steps of this size (:2323-2440); NCCL has its own ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from inferlab.model.gguf import Model

VALUE_BYTES = 4  # activations are f32 between operations
SUMS_PER_BLOCK = 2
HOST = "host"


def boundary_bytes(model: Model, layers: Sequence[str]) -> int:
    """Bytes per token that cross between devices with whole layers on each: `layers` as a plan's layer_devices."""
    crossings = sum(HOST not in pair and pair[0] != pair[1] for pair in pairwise(layers))
    return crossings * vector_bytes(model)


def sum_bytes(model: Model, layers: Sequence[str]) -> int:
    """Bytes per token that each of two devices sends to the other where they share every matrix."""
    return SUMS_PER_BLOCK * sum(layer != HOST for layer in layers[:-1]) * vector_bytes(model)


def vector_bytes(model: Model) -> int:
    """Bytes of one token's hidden state."""
    return model.n_embd * VALUE_BYTES
