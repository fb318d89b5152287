"""ggml's tables: tensor types with block sizes and bytes of a row, file types, and the step of the KV cache.

A new type is one line of TENSOR_TYPES; a new file type one line of FILE_TYPES. The other tables are derived.
"""

from __future__ import annotations

from typing import NamedTuple

from inferlab.errors import InvalidSettings


class TensorType(NamedTuple):
    """A ggml type: `block` weights are stored together in `block_bytes` bytes."""

    name: str
    block: int
    block_bytes: int

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.block_bytes / self.block

    def bytes_of(self, n_weights: int) -> int:
        """Bytes of `n_weights` in whole blocks: n_weights / block * block_bytes (ggml_row_size, ggml.c)."""
        return n_weights // self.block * self.block_bytes


# enum ggml_type (ggml.h) with the block sizes of ggml-common.h.
TENSOR_TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    9: TensorType("Q8_1", 32, 36),
    10: TensorType("Q2_K", 256, 84),
    11: TensorType("Q3_K", 256, 110),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    15: TensorType("Q8_K", 256, 292),
    16: TensorType("IQ2_XXS", 256, 66),
    17: TensorType("IQ2_XS", 256, 74),
    18: TensorType("IQ3_XXS", 256, 98),
    19: TensorType("IQ1_S", 256, 50),
    20: TensorType("IQ4_NL", 32, 18),
    21: TensorType("IQ3_S", 256, 110),
    22: TensorType("IQ2_S", 256, 82),
    23: TensorType("IQ4_XS", 256, 136),
    24: TensorType("I8", 1, 1),
    25: TensorType("I16", 1, 2),
    26: TensorType("I32", 1, 4),
    27: TensorType("I64", 1, 8),
    28: TensorType("F64", 1, 8),
    29: TensorType("IQ1_M", 256, 56),
    30: TensorType("BF16", 1, 2),
    34: TensorType("TQ1_0", 256, 54),
    35: TensorType("TQ2_0", 256, 66),
    39: TensorType("MXFP4", 32, 17),
    40: TensorType("NVFP4", 64, 36),
    41: TensorType("Q1_0", 128, 18),
    42: TensorType("Q2_0", 64, 18),
}
TYPE_IDS = {kind.name: number for number, kind in TENSOR_TYPES.items()}
TYPES = {kind.name: kind for kind in TENSOR_TYPES.values()}

# enum llama_ftype (llama.h) by the names that llama-quantize takes (QUANT_OPTIONS, tools/quantize/quantize.cpp).
FILE_TYPES = {
    "F32": 0,
    "F16": 1,
    "BF16": 32,
    "Q8_0": 7,
    "Q6_K": 18,
    "Q5_K_M": 17,
    "Q5_K_S": 16,
    "Q5_1": 9,
    "Q5_0": 8,
    "Q4_K_M": 15,
    "Q4_K_S": 14,
    "Q4_1": 3,
    "Q4_0": 2,
    "IQ4_NL": 25,
    "IQ4_XS": 30,
    "MXFP4_MOE": 38,
    "Q3_K_L": 13,
    "Q3_K_M": 12,
    "Q3_K_S": 11,
    "IQ3_M": 27,
    "IQ3_S": 26,
    "IQ3_XS": 22,
    "IQ3_XXS": 23,
    "Q2_K": 10,
    "Q2_K_S": 21,
    "IQ2_M": 29,
    "IQ2_S": 28,
    "IQ2_XS": 20,
    "IQ2_XXS": 19,
    "IQ1_M": 31,
    "IQ1_S": 24,
    "TQ2_0": 37,
    "TQ1_0": 36,
    "Q2_0": 41,
    "Q1_0": 40,
}

CELL_STEP = 256  # llama.cpp reserves and reads the KV cache in multiples of it (llama-kv-cache.cpp, get_n_kv)


def tensor_type(name: str) -> TensorType:
    """The type of that name, in any case: `tensor_type("q4_k")`. Raises InvalidSettings for an unknown one."""
    kind = TYPES.get(name.upper())
    if kind is None:
        raise InvalidSettings(f"ggml has no type {name!r}. It has: {', '.join(TYPES).lower()}.")
    return kind


def row_bytes(type: str, n_weights: int) -> int:
    """Bytes of `n_weights` in one ggml type. Raises InvalidSettings when they do not fill its blocks."""
    kind = tensor_type(type)
    if n_weights % kind.block:
        raise InvalidSettings(f"{n_weights} weights do not fill blocks of {kind.block}, which {type!r} needs.")
    return kind.bytes_of(n_weights)


def padded(n_cells: int) -> int:
    """Cells of the KV cache rounded up to a multiple of 256: ceil(n_cells / 256) * 256."""
    return -(-n_cells // CELL_STEP) * CELL_STEP
