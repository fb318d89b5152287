"""Opens blocks of Q4_K in NumPy, from the bytes of a file to weights, without calling ggml.

Layout: block_q4_K of ggml/src/ggml-common.h. Arithmetic: `dequantize_row_q4_K` of ggml/src/ggml-quants.c, in 32-bit
floats and in its order, so that the results are equal bit by bit (test_dequantize.py compares them).
Both files at llama.cpp 0c1e57098, which the line numbers below refer to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import Model, Tensor

Bytes = np.ndarray
Weights = np.ndarray


@dataclass(frozen=True)
class Q4KSuperBlock:
    """One Q4_K super-block, 256 weights in 144 bytes (block_q4_K, ggml-common.h:327).

    d, dmin   two 16-bit floats: the unit of the scales, the unit of the minima
    scales    8 integers of 6 bits, one for each block of 32 weights
    minima    8 integers of 6 bits, likewise
    codes     8 x 32 integers of 4 bits, one for each weight
    """

    d: float
    dmin: float
    scales: np.ndarray
    minima: np.ndarray
    codes: np.ndarray

    @property
    def weights(self) -> Weights:
        """The 8 x 32 weights: (d x scale) x code - (dmin x minimum), in 32-bit floats."""
        return _weights(np.float32(self.d), np.float32(self.dmin), self.scales, self.minima, self.codes)


def open_q4_k(data: bytes | Bytes) -> Q4KSuperBlock:
    """The fields of the first super-block."""
    d, dmin, scales, minima, codes = (field[0] for field in _fields(data))
    return Q4KSuperBlock(float(d), float(dmin), scales, minima, codes)


def q4_k_weights(data: bytes | Bytes) -> Weights:
    """All weights of whole super-blocks, as 32-bit floats in their order (dequantize_row_q4_K, ggml-quants.c:1529)."""
    return _weights(*_fields(data)).reshape(-1)


def tensor_bytes(model: Model, name: str) -> bytes:
    """The stored bytes of one tensor. Raises InvalidSettings for a name the file does not have."""
    tensor = _tensor(model, name)
    with model.path.open("rb") as file:
        file.seek(tensor.offset)
        return file.read(tensor.n_bytes)


def tensor_weights(model: Model, name: str) -> Weights:
    """The weights of an F16 tensor as 32-bit floats, a row of the matrix in each row of the array.

    Raises InvalidSettings for a tensor of another type, or a name the file does not have.
    """
    tensor = _tensor(model, name)
    if tensor.type != "F16":
        raise InvalidSettings(f"{name} of {model.path.name} is in {tensor.type}. Take a file in F16.")
    return np.frombuffer(tensor_bytes(model, name), "<f2").astype(np.float32).reshape(-1, tensor.shape[0])


def _tensor(model: Model, name: str) -> Tensor:
    tensor = next((t for t in model.tensors if t.name == name), None)
    if tensor is None:
        some = ", ".join(t.name for t in model.tensors[:3])
        raise InvalidSettings(f"{model.path.name} has no tensor {name!r}. It begins with: {some}.")
    return tensor


def six_bit_pairs(packed: Bytes) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and eight minima of 6 bits each out of 12 bytes (get_scale_min_k4, ggml-quants.c:880).

    Bytes 0-3 hold scales 0-3 in their low six bits, bytes 4-7 minima 0-3.
    Bytes 8-11 hold the low four bits of scales and minima 4-7, whose high two bits are the high bits of bytes 0-7.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.hstack([first & 63, third & 15 | first >> 6 << 4])
    minima = np.hstack([second & 63, third >> 4 | second >> 6 << 4])
    return scales, minima


def _fields(data: bytes | Bytes) -> tuple[np.ndarray, ...]:
    """d, dmin, scales, minima and codes of each super-block.

    Each 32 bytes of codes hold two blocks of 32, one in their low and one in their high halves.
    """
    blocks = np.frombuffer(bytes(data), np.uint8).reshape(-1, TYPES["Q4_K"].block_bytes)
    halves = np.ascontiguousarray(blocks[:, :4]).view("<f2").astype(np.float32)
    codes = (blocks[:, 16:].reshape(-1, 4, 1, 32) >> np.array([[0], [4]], np.uint8) & 15).reshape(-1, 8, 32)
    return halves[:, 0], halves[:, 1], *six_bit_pairs(blocks[:, 4:16]), codes


def _weights(d: np.ndarray, dmin: np.ndarray, scales: np.ndarray, minima: np.ndarray, codes: np.ndarray) -> Weights:
    """d x scale x code - dmin x minimum, each product rounded to 32 bits as in C."""
    unit = d[..., None] * scales.astype(np.float32)
    floor = dmin[..., None] * minima.astype(np.float32)
    return unit[..., None] * codes.astype(np.float32) - floor[..., None]
