"""Which weights llama.cpp rearranges for a processor's kernels when it loads a model, and the bytes of the copies.

Whole matrices are rearranged, by type and shape, if they are multiplied; rows that tokens look up, norms and biases
stay as they are in the file. The copies lie in buffers of their own: CPU_REPACK, on processors with AMX also AMX.
Sources: repack.cpp:4946-5145, 5193-5233 (types, multiples of rows), amx/amx.cpp:145-186 and amx/mmq.cpp:246, 2267
(AMX), ggml-cpu.cpp:42-73 (the order of the buffers), llama-model-loader.cpp:925-1076 (the choice for each tensor).
"""

from __future__ import annotations

from collections.abc import Collection

from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import Tensor

NOT_REPACKED, AVX2, AVX512, ARM, AMX = "no repacking", "AVX2", "AVX-512", "Arm dot product", "AMX"
LOOKED_UP = frozenset(["token_embd", "position_embd", "token_types", "per_layer_token_embd"])
"""Stems of the tensors of which a token takes one row (GGML_OP_GET_ROWS, llama-arch.cpp:728, 921)."""
_AVX2_ROWS = dict.fromkeys(("Q4_0", "Q4_K", "IQ4_NL", "MXFP4"), 8)
ROWS = {
    NOT_REPACKED: {},
    AVX2: _AVX2_ROWS,
    AVX512: _AVX2_ROWS | {"Q2_K": 8},
    ARM: dict.fromkeys(("Q4_K", "Q5_K", "Q6_K"), 8) | dict.fromkeys(("Q4_0", "IQ4_NL", "MXFP4", "Q8_0", "Q1_0"), 4),
    AMX: _AVX2_ROWS | {"Q2_K": 8},  # where AMX itself does not take the matrix
}
"""For each kind of processor: the types that CPU_REPACK takes, and what the number of rows must be a multiple of."""
AMX_ROWS = 32
AMX_WIDTHS = {"Q4_0": 32, "Q4_1": 32, "Q8_0": 32, "Q4_K": 256, "Q5_K": 256, "Q6_K": 256, "IQ4_XS": 256, "F16": 16}
AMX_EXTRA_BLOCK_BYTES = {"Q8_0": 4, "Q4_K": 4, "Q5_K": 4, "IQ4_XS": 2}


def processor_kind(instruction_sets: Collection[str] | None) -> str | None:
    """The kind of processor by the instruction sets that ggml was built with; None where its repacking is not known.

    `instruction_sets` are ggml's names, as in `Machine.instruction_sets`.
    """
    if instruction_sets is None or {"KLEIDIAI", "RISCV_V", "VXE"} & set(instruction_sets):
        return None
    if {"AMX_INT8", "AVX512_VNNI"} <= set(instruction_sets):
        return AMX
    if "REPACK" not in instruction_sets:
        return NOT_REPACKED
    known = (("AVX512", AVX512), ("AVX2", AVX2), ("DOTPROD", ARM))
    return next((kind for name, kind in known if name in instruction_sets), NOT_REPACKED)


def repacked_bytes(tensor: Tensor, processor: str) -> int:
    """Bytes of the rearranged copy of a tensor on one kind of processor; 0 where it is used as it is."""
    if not _is_multiplied(tensor):
        return 0
    if processor == AMX and _fits_amx(tensor):
        n_blocks = tensor.n_elements // TYPES[tensor.type].block
        return tensor.n_bytes + n_blocks * AMX_EXTRA_BLOCK_BYTES.get(tensor.type, 0)
    multiple = ROWS[processor].get(tensor.type)
    return tensor.n_bytes if multiple and tensor.shape[1] % multiple == 0 else 0


def takes_rows(tensor: Tensor, buffer: str, types: Collection[str]) -> bool:
    """Whether a buffer of repacked weights takes a matrix with so many rows, where it was seen to take these types.

    buffer  "CPU_REPACK", "AMX", or "" for none
    """
    if buffer == AMX:
        return tensor.shape[1] % AMX_ROWS == 0
    rows = next((rows for rows in ROWS.values() if set(types) <= rows.keys()), {}) if buffer else {}
    multiple = rows.get(tensor.type)
    return multiple is not None and tensor.shape[1] % multiple == 0


def _is_multiplied(tensor: Tensor) -> bool:
    """Whether it is a matrix of GGML_OP_MUL_MAT, or the experts' matrices of GGML_OP_MUL_MAT_ID."""
    stem, matrix = tensor.name.split(".")[0], len(tensor.shape) == 2 and tensor.shape[1] > 1
    experts = len(tensor.shape) == 3 and tensor.name.endswith("_exps.weight")
    return tensor.name.endswith(".weight") and stem not in LOOKED_UP and (matrix or experts)


def _fits_amx(tensor: Tensor) -> bool:
    """Whether ggml's AMX kernels take the matrix; they take no experts."""
    width = AMX_WIDTHS.get(tensor.type)
    fills = width is not None and tensor.shape[0] % width == 0 and tensor.shape[1] % AMX_ROWS == 0
    return fills and len(tensor.shape) == 2
