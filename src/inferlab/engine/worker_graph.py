"""Exact sizes of the tensors that the scheduler copies for a graph, inside the worker.

The scheduler's own debug lines round sizes down to KiB or MiB (fmt_size, ggml-backend.cpp:987). So llama.cpp's
callback for nodes (llama_context_params.cb_eval) reads each size exactly. It returns false, so no node is computed
apart from its split (ggml-backend.cpp:1825).
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

TENSOR_SOURCES, N_SOURCES, TENSOR_NAME = 152, 10, 256  # offsets and a length of struct ggml_tensor (ggml.h:685)
COPY_MARK = "#"  # a copy is named backend#tensor#number (ggml-backend.cpp:1380)


class GraphWatch:
    """What `callback`, a ggml_backend_sched_eval_callback, has seen since `clear`."""

    def __init__(self, api: Any, ggml_base: ctypes.CDLL) -> None:
        self._n_bytes = ggml_base.ggml_nbytes
        self._n_bytes.restype, self._n_bytes.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
        self.callback = api.ggml_backend_sched_eval_callback(self._on_node)
        self.clear()

    @staticmethod
    def wanted() -> bool:
        """Whether this process was started with GGML_SCHED_DEBUG=2."""
        return os.environ.get("GGML_SCHED_DEBUG") == "2"

    def clear(self) -> None:
        self._copies: dict[str, int] = {}

    def sizes(self) -> dict[str, Any]:
        """`copy_bytes`, by the name of the copy."""
        return {"copy_bytes": self._copies}

    def _on_node(self, tensor: int, before: bool, _: Any) -> bool:
        """Note the sizes of a node's copied sources; false means that nobody needs its values."""
        if before:
            sources = (ctypes.c_void_p * N_SOURCES).from_address(tensor + TENSOR_SOURCES)
            for source in filter(None, sources):
                name = ctypes.string_at(source + TENSOR_NAME).decode("utf-8", errors="replace")
                if COPY_MARK in name:
                    self._copies[name] = self._n_bytes(source)
        return not before
