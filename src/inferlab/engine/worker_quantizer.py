"""The quantizer's parameters as C structures: an importance matrix, and types that single tensors get."""

from __future__ import annotations

import ctypes
from typing import Any

from inferlab.engine.worker_model import metadata_array
from inferlab.model.ggml_types import TYPE_IDS
from inferlab.model.imatrix import ImportanceMatrix, read_imatrix

BUFFER_BYTES = 2**30  # most bytes of rows that the quantizer buffers; its own default is 8 GiB


def quantizer_params(
    api: Any, file_type: int, requantize: bool, dry_run: bool, imatrix: str | None, tensor_types: list[tuple[str, str]]
) -> tuple[Any, list[Any]]:
    """llama_model_quantize_params, and the objects that it points to, to be kept until the quantizer is done.

    api      the module llama_cpp
    imatrix  path of an importance matrix, which is recorded in the new file as llama-quantize does, without its folder
    """
    params = api.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.dry_run = file_type, requantize, dry_run
    params.max_buf_size = BUFFER_BYTES
    matrix = read_imatrix(imatrix) if imatrix else None
    if matrix:
        params.imatrix, params.kv_overrides = _columns(api, matrix), _origin(api, matrix)
    if tensor_types:
        params.tt_overrides = _overrides(api, tensor_types)
    return params, [matrix, params.imatrix, params.kv_overrides, params.tt_overrides]


def _columns(api: Any, matrix: ImportanceMatrix) -> Any:
    """llama_model_imatrix_data of every tensor; an entry without a name ends the array."""
    entry, floats = api.llama_model_imatrix_data, ctypes.POINTER(ctypes.c_float)
    entries = [entry(n.encode(), c.ctypes.data_as(floats), c.size) for n, c in matrix.columns.items()]
    return (entry * (len(entries) + 1))(*entries)


def _origin(api: Any, matrix: ImportanceMatrix) -> Any:
    """The metadata that llama-quantize writes of a matrix (tools/quantize/quantize.cpp:509-545)."""
    metadata: dict[str, str | int] = {
        "quantize.imatrix.file": matrix.path.name,
        "quantize.imatrix.dataset": ", ".join(matrix.datasets),
        "quantize.imatrix.entries_count": len(matrix.columns),
        "quantize.imatrix.chunks_count": matrix.n_chunks,
    }
    return metadata_array(api, metadata)


def _overrides(api: Any, tensor_types: list[tuple[str, str]]) -> Any:
    """llama_model_tensor_override of every pattern; an entry without a pattern ends the array."""
    entry = api.llama_model_tensor_override
    entries = [entry(pattern.encode(), TYPE_IDS[type]) for pattern, type in tensor_types]
    return (entry * (len(entries) + 1))(*entries)
