"""Dequantizes tensors in NumPy, from the bytes of a file to weights, without calling ggml.

A type stores its weights in blocks of a fixed number of bytes. `dequantize` returns the weights of all blocks,
`open_q4_k` the scales, minima and codes of one Q4_K super-block.
Layouts: the structs of ggml/src/ggml-common.h. Arithmetic: `dequantize_row_*` of ggml/src/ggml-quants.c, in 32-bit
floats and in its order, so that the results are equal bit by bit (test_dequantize.py compares them).
Both files at llama.cpp 0c1e57098, which the line numbers below refer to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import Model

IQ4_NL_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # ggml-common.h:1120

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
        return _affine(np.float32(self.d), np.float32(self.dmin), self.scales, self.minima, self.codes)


def open_q4_k(data: bytes | Bytes) -> Q4KSuperBlock:
    """The fields of one super-block of 144 bytes. Raises InvalidSettings for another number of bytes."""
    blocks = _blocks(data, "Q4_K")
    if len(blocks) != 1:
        raise InvalidSettings(f"One Q4_K super-block has 144 bytes; these are {blocks.size}. Cut one out.")
    d, dmin = float(_half(blocks, 0)[0]), float(_half(blocks, 2)[0])
    scales, minima = six_bit_pairs(blocks[:, 4:16])
    return Q4KSuperBlock(d, dmin, scales[0], minima[0], _pairs_of_nibbles(blocks[:, 16:])[0])


def dequantize(data: bytes | Bytes, type: str) -> Weights:
    """All weights in the bytes of one ggml type, as 32-bit floats, in the order of the tensor's rows.

    Raises InvalidSettings for a type without a decoder here, or bytes that do not fill its blocks.
    """
    if type not in DECODERS:
        raise InvalidSettings(f"{type!r} is not opened here. Opened are: {', '.join(DECODERS)}.")
    return DECODERS[type](_blocks(data, type)).reshape(-1)


def tensor_bytes(model: Model, name: str) -> bytes:
    """The stored bytes of one tensor. Raises InvalidSettings for a name the file does not have."""
    tensor = next((t for t in model.tensors if t.name == name), None)
    if tensor is None:
        some = ", ".join(t.name for t in model.tensors[:3])
        raise InvalidSettings(f"{model.path.name} has no tensor {name!r}. It begins with: {some}.")
    with model.path.open("rb") as file:
        file.seek(tensor.offset)
        return file.read(tensor.n_bytes)


def tensor_weights(model: Model, name: str) -> Weights:
    """One tensor's weights as 32-bit floats, a row of the matrix in each row of the array."""
    data = tensor_bytes(model, name)
    tensor = next(t for t in model.tensors if t.name == name)
    return dequantize(data, tensor.type).reshape(-1, tensor.shape[0])


def six_bit_pairs(packed: Bytes) -> tuple[np.ndarray, np.ndarray]:
    """Eight scales and eight minima of 6 bits each out of 12 bytes (get_scale_min_k4, ggml-quants.c:880).

    Bytes 0-3 hold scales 0-3 in their low six bits, bytes 4-7 minima 0-3.
    Bytes 8-11 hold the low four bits of scales and minima 4-7, whose high two bits are the high bits of bytes 0-7.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.hstack([first & 63, third & 15 | first >> 6 << 4])
    minima = np.hstack([second & 63, third >> 4 | second >> 6 << 4])
    return scales, minima


# --- types of 32 weights: one scale each, some with a minimum ------------------------------------------------------


def _q8_0(blocks: Bytes) -> Weights:
    """34 bytes: scale d, 32 signed bytes (ggml-quants.c:553)."""
    return blocks[:, 2:].view(np.int8).astype(np.float32) * _half(blocks, 0)[:, None]


def _q4_0(blocks: Bytes) -> Weights:
    """18 bytes: scale d, 32 codes of 4 bits, shifted by 8 (ggml-quants.c:459)."""
    return (_halves(blocks[:, 2:]).astype(np.float32) - 8) * _half(blocks, 0)[:, None]


def _q4_1(blocks: Bytes) -> Weights:
    """20 bytes: scale d, minimum m, 32 codes of 4 bits (ggml-quants.c:479)."""
    return _halves(blocks[:, 4:]).astype(np.float32) * _half(blocks, 0)[:, None] + _half(blocks, 2)[:, None]


def _q5_0(blocks: Bytes) -> Weights:
    """22 bytes: scale d, the fifth bits of all codes, 32 times 4 bits; shifted by 16 (ggml-quants.c:500)."""
    codes = _halves(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])
    return (codes.astype(np.float32) - 16) * _half(blocks, 0)[:, None]


def _q5_1(blocks: Bytes) -> Weights:
    """24 bytes: scale d, minimum m, fifth bits, 32 times 4 bits (ggml-quants.c:526)."""
    codes = _halves(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])
    return codes.astype(np.float32) * _half(blocks, 0)[:, None] + _half(blocks, 2)[:, None]


def _iq4_nl(blocks: Bytes) -> Weights:
    """18 bytes: scale d, 32 codes that point into one fixed table of 16 values (ggml-quants.c:2725)."""
    return np.float32(IQ4_NL_VALUES)[_halves(blocks[:, 2:])] * _half(blocks, 0)[:, None]


# --- types of 256 weights: small scales of blocks, and one or two floats for all of them ---------------------------


def _q2_k(blocks: Bytes) -> Weights:
    """84 bytes: 16 scales and minima of 4 bits, 256 codes of 2 bits, d, dmin (ggml-quants.c:961)."""
    packed = blocks[:, :16]
    codes = _quarters(blocks[:, 16:80]).reshape(-1, 16, 16)
    return _affine(_half(blocks, 80), _half(blocks, 82), packed & 15, packed >> 4, codes)


def _q3_k(blocks: Bytes) -> Weights:
    """110 bytes: 256 high bits, 256 times 2 bits, 16 scales of 6 bits, d; no minima (ggml-quants.c:1305)."""
    high = _bits(blocks[:, :32]).reshape(-1, 16, 16)
    codes = (_quarters(blocks[:, 32:96]).reshape(-1, 16, 16) | high << 2).astype(np.float32) - 4
    low, top = blocks[:, 96:104], blocks[:, 104:108]
    scales = np.hstack([low & 15, low >> 4]) | np.hstack([top >> shift & 3 for shift in (0, 2, 4, 6)]) << 4
    return _half(blocks, 108)[:, None, None] * (scales.astype(np.float32) - 32)[:, :, None] * codes


def _q4_k(blocks: Bytes) -> Weights:
    """144 bytes: d, dmin, 12 bytes of scales and minima, 256 codes of 4 bits (ggml-quants.c:1529)."""
    scales, minima = six_bit_pairs(blocks[:, 4:16])
    return _affine(_half(blocks, 0), _half(blocks, 2), scales, minima, _pairs_of_nibbles(blocks[:, 16:]))


def _q5_k(blocks: Bytes) -> Weights:
    """176 bytes: as Q4_K, with 32 bytes of fifth bits before the codes (ggml-quants.c:1731)."""
    scales, minima = six_bit_pairs(blocks[:, 4:16])
    codes = _pairs_of_nibbles(blocks[:, 48:]) | _bits(blocks[:, 16:48]) << 4
    return _affine(_half(blocks, 0), _half(blocks, 2), scales, minima, codes)


def _q6_k(blocks: Bytes) -> Weights:
    """210 bytes: 4 low and 2 high bits of 256 codes, 16 scales of 8 bits, d; no minima (ggml-quants.c:1939)."""
    low = blocks[:, :128].reshape(-1, 2, 1, 64) >> np.uint8([[0], [4]]) & 15
    codes = (low.reshape(-1, 256) | _quarters(blocks[:, 128:192]).reshape(-1, 256) << 4).astype(np.float32) - 32
    unit = _half(blocks, 208)[:, None] * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return unit[:, :, None] * codes.reshape(-1, 16, 16)


# --- floats ---------------------------------------------------------------------------------------------------------


def _f16(blocks: Bytes) -> Weights:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Bytes) -> Weights:
    """The upper half of a 32-bit float."""
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _f32(blocks: Bytes) -> Weights:
    return blocks.view("<f4").astype(np.float32)


DECODERS: dict[str, Callable[[Bytes], Weights]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "IQ4_NL": _iq4_nl,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}

# --- pieces ---------------------------------------------------------------------------------------------------------


def _blocks(data: bytes | Bytes, type: str) -> Bytes:
    """The bytes as one row for each block."""
    kind, flat = TYPES[type], np.frombuffer(bytes(data), np.uint8)
    if len(flat) % kind.block_bytes:
        what = f"whole {type} blocks of {kind.block_bytes}"
        raise InvalidSettings(f"{len(flat):,} bytes are not {what}. Give whole rows.")
    return flat.reshape(-1, kind.block_bytes)


def _half(blocks: Bytes, at: int) -> np.ndarray:
    """The 16-bit float at byte `at` of each block, as a 32-bit float."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)[:, 0]


def _halves(packed: Bytes) -> np.ndarray:
    """Codes of 4 bits: the low halves of all bytes first, then their high halves."""
    return np.hstack([packed & 15, packed >> 4])


def _pairs_of_nibbles(packed: Bytes) -> np.ndarray:
    """256 codes of 4 bits as 8 x 32: each 32 bytes hold two blocks, one in their low and one in their high halves."""
    return (packed.reshape(-1, 4, 1, 32) >> np.uint8([[0], [4]]) & 15).reshape(-1, 8, 32)


def _quarters(packed: Bytes) -> np.ndarray:
    """256 codes of 2 bits as 2 x 4 x 32: each 32 bytes hold four times 32, from the low bits upwards."""
    return packed.reshape(-1, 2, 1, 32) >> np.uint8([[0], [2], [4], [6]]) & 3


def _bits(packed: Bytes) -> np.ndarray:
    """256 single bits as 8 x 32: bit j of 32 bytes belongs to the j-th 32 weights."""
    return packed[:, None, :] >> np.arange(8, dtype=np.uint8)[:, None] & 1


def _fifth_bits(packed: Bytes) -> np.ndarray:
    """32 bits out of 4 bytes, lowest first, each at the place of a code's fifth bit."""
    return np.unpackbits(packed, axis=1, bitorder="little") << 4


def _affine(d: np.ndarray, dmin: np.ndarray, scales: np.ndarray, minima: np.ndarray, codes: np.ndarray) -> Weights:
    """d x scale x code - dmin x minimum, each product rounded to 32 bits as in C."""
    unit = d[..., None] * scales.astype(np.float32)
    floor = dmin[..., None] * minima.astype(np.float32)
    return unit[..., None] * codes.astype(np.float32) - floor[..., None]
