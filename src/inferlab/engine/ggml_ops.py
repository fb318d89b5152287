"""Single ggml operations on one device, inside the worker: the matrix products and copies that a probe times.

No model is needed. Buffers are written once before they are used, so that every page is resident.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from inferlab.model.ggml_types import TYPE_IDS

FILL = 0x3C  # a byte that gives normal numbers in every type: no zeros, no subnormals
MAX_GRAPH_NODES = 4096
GPU_PAGE_BYTES = 2**21  # the pages in which a GPU's memory is mapped


class DeviceProperties(ctypes.Structure):
    """struct ggml_backend_dev_props of ggml-backend.h; the capabilities at its end are flags."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("memory_free", ctypes.c_size_t),
        ("memory_total", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("id", ctypes.c_char_p),
        ("capabilities", ctypes.c_bool * 16),
    )


class _InitParams(ctypes.Structure):
    """struct ggml_init_params of ggml.h."""

    _fields_ = (("n_bytes", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


def hold_memory(base: ctypes.CDLL, device: int, read_free: Callable[[], int], free_bytes: int) -> int:
    """Allocate buffers on a device until it reports at most `free_bytes` free; bytes allocated.

    Never allocates more than the surplus at the start, whatever the device reports later.
    Raises MemoryError when an allocation fails before that.
    """
    kind = call(base, "ggml_backend_dev_buffer_type", ctypes.c_void_p(device))
    largest = call(base, "ggml_backend_buft_get_max_size", ctypes.c_void_p(kind), result=ctypes.c_size_t)
    wanted, held = read_free() - free_bytes, 0
    while (left := min(wanted - held, read_free() - free_bytes)) >= GPU_PAGE_BYTES:
        piece = min(left, largest) // GPU_PAGE_BYTES * GPU_PAGE_BYTES
        if not call(base, "ggml_backend_buft_alloc_buffer", ctypes.c_void_p(kind), ctypes.c_size_t(piece)):
            raise MemoryError(f"it gave {held} bytes to be held back, not the {wanted} that were asked for")
        held += piece
    return held


def call(base: ctypes.CDLL, name: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
    """Call a ggml function."""
    function = getattr(base, name)
    function.restype, function.argtypes = result, None
    return function(*arguments)


class Operations:
    """ggml on one device: `base` is libggml-base, `device` a pointer from its registry; a context manager."""

    def __init__(self, base: ctypes.CDLL, device: int, set_n_threads: Any = None, n_threads: int | None = None) -> None:
        self.base = base
        self.backend = self._call("ggml_backend_dev_init", ctypes.c_void_p(device), None)
        if not self.backend:
            raise MemoryError("the device did not start")
        if set_n_threads and n_threads:
            set_n_threads(ctypes.c_void_p(self.backend), ctypes.c_int(n_threads))

    def __enter__(self) -> Operations:
        return self

    def __exit__(self, *_: object) -> None:
        self._call("ggml_backend_free", ctypes.c_void_p(self.backend), result=None)

    def mul_mat(
        self, type: str, n_rows: int, n_cols: int, n_tokens: int, n_matrices: int, seconds: float
    ) -> list[float]:
        """Seconds of each pass over `n_matrices` products (n_rows, n_cols) x (n_cols, n_tokens), without a warm-up."""
        with self._context() as context:
            columns = self._tensor(context, "F32", n_cols, n_tokens)
            weights = [self._tensor(context, type, n_cols, n_rows) for _ in range(n_matrices)]
            graph = self._call("ggml_new_graph_custom", context, ctypes.c_size_t(MAX_GRAPH_NODES), ctypes.c_bool(False))
            for matrix in weights:
                product = self._call("ggml_mul_mat", context, ctypes.c_void_p(matrix), ctypes.c_void_p(columns))
                self._call("ggml_build_forward_expand", ctypes.c_void_p(graph), ctypes.c_void_p(product), result=None)
            with self._allocated(context):
                return self._repeated(lambda: self._compute(graph, product), seconds)

    def transfer(self, n_bytes: int, seconds: float) -> tuple[list[float], list[float]]:
        """Seconds of each copy of n_bytes to the device, and of each copy back."""
        with self._context() as context:
            tensor = self._tensor(context, "F32", n_bytes // 4, 1)
            data = ctypes.create_string_buffer(n_bytes)
            with self._allocated(context):
                to_device = self._repeated(lambda: self._send(tensor, data, n_bytes), seconds / 2)
                from_device = self._repeated(lambda: self._receive(tensor, data, n_bytes), seconds / 2)
        return to_device, from_device

    def _compute(self, graph: int, last: int) -> None:
        """One pass; a number of its result is read back, because an RPC device replies before it has computed."""
        status = self._call(
            "ggml_backend_graph_compute", ctypes.c_void_p(self.backend), ctypes.c_void_p(graph), result=ctypes.c_int
        )
        if status:
            raise MemoryError(f"the device returned status {status} for a product")
        self._receive(last, ctypes.create_string_buffer(4), 4)

    def _send(self, tensor: int, data: Any, n_bytes: int) -> None:
        """One copy to the device; a number is read back, because an RPC device does not confirm what it received."""
        sizes = ctypes.c_size_t(0), ctypes.c_size_t(n_bytes)
        self._call("ggml_backend_tensor_set", ctypes.c_void_p(tensor), data, *sizes, result=None)
        self._receive(tensor, ctypes.create_string_buffer(4), 4)

    def _receive(self, tensor: int, data: Any, n_bytes: int) -> None:
        sizes = ctypes.c_size_t(0), ctypes.c_size_t(n_bytes)
        self._call("ggml_backend_tensor_get", ctypes.c_void_p(tensor), data, *sizes, result=None)

    def _repeated(self, work: Callable[[], None], seconds: float) -> list[float]:
        """Seconds of each repetition until `seconds` have passed, at least three; a warm-up is left out."""
        work()
        times: list[float] = []
        while len(times) < 3 or sum(times) < seconds:
            began = time.perf_counter()
            work()
            times.append(time.perf_counter() - began)
        return times

    @contextmanager
    def _context(self) -> Iterator[ctypes.c_void_p]:
        context = self._call("ggml_init", _InitParams(2**22, None, True))
        try:
            yield ctypes.c_void_p(context)
        finally:
            self._call("ggml_free", ctypes.c_void_p(context), result=None)

    @contextmanager
    def _allocated(self, context: ctypes.c_void_p) -> Iterator[None]:
        """Allocate all tensors of the ggml context on the device and write them once; free them at the end."""
        buffer = self._call("ggml_backend_alloc_ctx_tensors", context, ctypes.c_void_p(self.backend))
        if not buffer:
            raise MemoryError("the device has no room for the operands")
        try:
            self._call("ggml_backend_buffer_clear", ctypes.c_void_p(buffer), ctypes.c_uint8(FILL), result=None)
            yield
        finally:
            self._call("ggml_backend_buffer_free", ctypes.c_void_p(buffer), result=None)

    def _tensor(self, context: ctypes.c_void_p, type: str, n_cols: int, n_rows: int) -> int:
        sizes = ctypes.c_int64(n_cols), ctypes.c_int64(n_rows)
        return self._call("ggml_new_tensor_2d", context, ctypes.c_int(TYPE_IDS[type]), *sizes)

    def _call(self, name: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
        return call(self.base, name, *arguments, result=result)
