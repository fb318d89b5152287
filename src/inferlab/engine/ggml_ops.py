"""Single ggml operations on one device, inside the worker: matrix products, attention and copies that a probe times.

No model is needed. Weights lie in the buffer type that llama.cpp would choose for them, so that the same kernel
multiplies them. Buffers are written once before they are used, so that every page is resident.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count, takewhile
from typing import Any

from inferlab.model.ggml_types import TYPE_IDS, row_bytes

FILL = 0x3C  # a byte that gives normal numbers in every type: no zeros, no subnormals
MAX_GRAPH_NODES = 4096
ROW, MOST_ROWS = 1024, 2**30  # of the matrices that a device is asked about: up to 2 TiB
GPU_PAGE_BYTES = 2**21  # the pages in which a GPU's memory is mapped
TENSOR_BUFFER, TENSOR_DATA, TENSOR_EXTRA = 8, 248, 320  # offsets of struct ggml_tensor (ggml.h:685)
ATTENDED, MASKED = {"F16": b"\x00\x00", "F32": bytes(4)}, {"F16": b"\x00\xfc", "F32": b"\x00\x00\x80\xff"}  # 0, -inf


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
            raise MemoryError(f"it allocated {held} bytes of {wanted}, then no more")
        held += piece
    return held


def largest_tensor_bytes(base: ctypes.CDLL, device: int) -> int | None:
    """Bytes of the largest F16 matrix that a device multiplies; None where it takes any. Nothing is allocated.

    Vulkan's drivers have such a limit (maxStorageBufferRange, ggml-vulkan.cpp:15311). llama.cpp asks the same question
    of each weight, and leaves a refused one in host memory (llama-model-loader.cpp:927-1072).
    """
    if _multiplies(base, device, MOST_ROWS):
        return None
    taken, refused = 0, MOST_ROWS
    while refused - taken > 1:
        middle = (taken + refused) // 2
        taken, refused = (middle, refused) if _multiplies(base, device, middle) else (taken, middle)
    return taken * row_bytes("F16", ROW)


def _multiplies(base: ctypes.CDLL, device: int, n_rows: int) -> bool:
    """Whether a device multiplies an F16 matrix of so many rows by one column."""
    context = ctypes.c_void_p(call(base, "ggml_init", _InitParams(2**16, None, True)))
    try:
        matrix, column = (
            call(base, "ggml_new_tensor_2d", context, TYPE_IDS[type], ctypes.c_int64(ROW), ctypes.c_int64(n))
            for type, n in (("F16", n_rows), ("F32", 1))
        )
        product = call(base, "ggml_mul_mat", context, ctypes.c_void_p(matrix), ctypes.c_void_p(column))
        asked = ctypes.c_void_p(device), ctypes.c_void_p(product)
        return call(base, "ggml_backend_dev_supports_op", *asked, result=ctypes.c_bool)
    finally:
        call(base, "ggml_free", context, result=None)


def call(base: ctypes.CDLL, name: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
    """Call a ggml function."""
    function = getattr(base, name)
    function.restype, function.argtypes = result, None
    return function(*arguments)


class Operations:
    """ggml on one device: `base` is libggml-base, `device` a pointer from its registry; a context manager."""

    def __init__(self, base: ctypes.CDLL, device: int, set_n_threads: Any = None, n_threads: int | None = None) -> None:
        self.base, self.device = base, device
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
        self,
        type: str,
        n_rows: int,
        n_cols: int,
        n_tokens: int,
        n_matrices: int,
        seconds: float,
        least_passes: int = 3,
        extra_bufts: bool = True,
    ) -> tuple[list[float], str]:
        """Seconds of each pass over n_matrices products (n_rows, n_cols) x (n_cols, n_tokens), and the buffer type.

        The weights lie in the first extra buffer type of the device that supports the product, as in make_cpu_buft_list
        (llama-model.cpp:1078), or in the default one; without `extra_bufts` always in the default one.
        """
        with self._context() as stored, self._context() as context:
            columns = self._tensor(context, "F32", n_cols, n_tokens)
            weights = [self._tensor(stored, type, n_cols, n_rows) for _ in range(n_matrices)]
            products = [self._op("ggml_mul_mat", context, matrix, columns) for matrix in weights]
            graph = self._graph(context, products)
            with self._in_buffer_of(stored, products[0], extra_bufts) as buffer, self._allocated(context):
                times = self._repeated(lambda: self._compute(graph, products[-1]), seconds, least_passes)
        return times, buffer

    def attention(
        self,
        type_k: str,
        type_v: str,
        flash: bool,
        head_dim: int,
        n_head: int,
        n_head_kv: int,
        n_tokens: int,
        n_cells: int,
        depth: int,
        n_blocks: int,
        seconds: float,
        least_passes: int = 3,
    ) -> list[float]:
        """Seconds of each pass over the attention of n_blocks: n_tokens queries on `depth` cells, n_cells in the view.

        The operations and layouts are those of llama_graph_context::build_attn_mha (llama-graph.cpp): with flash
        attention one operation, else two products around a softmax, with the values transposed.
        """
        with self._context() as context:
            mask = self._tensor(context, "F16" if flash else "F32", n_cells, n_tokens)
            queries = self._tensor(context, "F32", head_dim * n_head, n_tokens)
            q = self._view(context, queries, head_dim, n_tokens, n_head, 4 * head_dim * n_head, 4 * head_dim)
            scale = head_dim**-0.5

            def block() -> int:
                k = self._heads(context, type_k, head_dim, n_head_kv, n_cells)
                if flash:
                    v = self._heads(context, type_v, head_dim, n_head_kv, n_cells)
                    numbers = map(ctypes.c_float, (scale, 0.0, 0.0))  # scale, max_bias, logit_softcap
                    return self._op("ggml_flash_attn_ext", context, q, k, v, mask, *numbers)
                transposed = self._tensor(context, type_v, n_cells, head_dim * n_head_kv)
                row = row_bytes(type_v, n_cells)
                v = self._view(context, transposed, n_cells, head_dim, n_head_kv, row, row * head_dim)
                scores = self._op("ggml_mul_mat", context, k, q)
                numbers = map(ctypes.c_float, (scale, 0.0))  # scale, max_bias
                weights = self._op("ggml_soft_max_ext", context, scores, mask, *numbers)
                return self._op("ggml_mul_mat", context, v, weights)

            results = [block() for _ in range(n_blocks)]
            graph = self._graph(context, results)
            with self._allocated(context):
                data = _causal_mask("F16" if flash else "F32", n_tokens, n_cells, depth)
                self._write(mask, data, len(data))
                return self._repeated(lambda: self._compute(graph, results[-1]), seconds, least_passes)

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
        self._write(tensor, data, n_bytes)
        self._receive(tensor, ctypes.create_string_buffer(4), 4)

    def _receive(self, tensor: int, data: Any, n_bytes: int) -> None:
        sizes = ctypes.c_size_t(0), ctypes.c_size_t(n_bytes)
        self._call("ggml_backend_tensor_get", ctypes.c_void_p(tensor), data, *sizes, result=None)

    def _write(self, tensor: int, data: Any, n_bytes: int) -> None:
        sizes = ctypes.c_size_t(0), ctypes.c_size_t(n_bytes)
        self._call("ggml_backend_tensor_set", ctypes.c_void_p(tensor), data, *sizes, result=None)

    def _repeated(self, work: Callable[[], None], seconds: float, least: int = 3) -> list[float]:
        """Seconds of each repetition until `seconds` have passed, at least `least`; a warm-up is left out."""
        work()
        times: list[float] = []
        while len(times) < least or sum(times) < seconds:
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
        """Allocate all tensors of the ggml context in the device's default buffer type; free them at the end."""
        kind = self._call("ggml_backend_get_default_buffer_type", ctypes.c_void_p(self.backend))
        with self._allocated_in(context, kind):
            yield

    @contextmanager
    def _allocated_in(self, context: ctypes.c_void_p, kind: int) -> Iterator[None]:
        """Allocate all tensors of the ggml context in a buffer type and write them once; free them at the end."""
        buffer = self._call("ggml_backend_alloc_ctx_tensors_from_buft", context, ctypes.c_void_p(kind))
        if not buffer:
            raise MemoryError("the device has no room for the operands")
        try:
            self._call("ggml_backend_buffer_clear", ctypes.c_void_p(buffer), ctypes.c_uint8(FILL), result=None)
            yield
        finally:
            self._call("ggml_backend_buffer_free", ctypes.c_void_p(buffer), result=None)

    @contextmanager
    def _in_buffer_of(self, stored: ctypes.c_void_p, product: int, extra_bufts: bool) -> Iterator[str]:
        """Allocate weights where llama.cpp would put them for `product`; the name of the buffer type."""
        kinds = [*(self._extra_buffer_types() if extra_bufts else ())]
        kinds.append(self._call("ggml_backend_get_default_buffer_type", ctypes.c_void_p(self.backend)))
        for kind in kinds:
            with self._allocated_in(stored, kind):
                if kind == kinds[-1] or self._supports(product):
                    yield self._call("ggml_backend_buft_name", ctypes.c_void_p(kind), result=ctypes.c_char_p).decode()
                    return
            self._forget_buffers(stored)

    def _extra_buffer_types(self) -> list[int]:
        """The device's extra buffer types, in which weights are repacked (ggml_backend_dev_get_extra_bufts)."""
        registry = self._call("ggml_backend_dev_backend_reg", ctypes.c_void_p(self.device))
        name = b"ggml_backend_dev_get_extra_bufts"
        address = self._call("ggml_backend_reg_get_proc_address", ctypes.c_void_p(registry), name)
        if not address:
            return []
        kinds = ctypes.CFUNCTYPE(ctypes.POINTER(ctypes.c_void_p), ctypes.c_void_p)(address)(self.device)
        return list(takewhile(bool, map(kinds.__getitem__, count()))) if kinds else []

    def _supports(self, operation: int) -> bool:
        arguments = ctypes.c_void_p(self.device), ctypes.c_void_p(operation)
        return self._call("ggml_backend_dev_supports_op", *arguments, result=ctypes.c_bool)

    def _forget_buffers(self, context: ctypes.c_void_p) -> None:
        """Mark the context's tensors as not allocated, so that they can be allocated in another buffer type."""
        tensor = self._call("ggml_get_first_tensor", context)
        while tensor:
            for offset in TENSOR_BUFFER, TENSOR_DATA, TENSOR_EXTRA:
                ctypes.c_void_p.from_address(tensor + offset).value = None
            tensor = self._call("ggml_get_next_tensor", context, ctypes.c_void_p(tensor))

    def _heads(self, context: ctypes.c_void_p, type: str, head_dim: int, n_head: int, n_cells: int) -> int:
        """Keys or values as the cache has them, a row for each cell, seen as (head_dim, n_cells, n_head)."""
        rows = self._tensor(context, type, head_dim * n_head, n_cells)
        strides = row_bytes(type, head_dim * n_head), row_bytes(type, head_dim)
        return self._view(context, rows, head_dim, n_cells, n_head, *strides)

    def _view(self, context: ctypes.c_void_p, tensor: int, ne0: int, ne1: int, ne2: int, nb1: int, nb2: int) -> int:
        sizes = (*map(ctypes.c_int64, (ne0, ne1, ne2)), *map(ctypes.c_size_t, (nb1, nb2, 0)))
        return self._call("ggml_view_3d", context, ctypes.c_void_p(tensor), *sizes)

    def _op(self, name: str, context: ctypes.c_void_p, *operands: Any) -> int:
        """A new node: its operands are tensors, or numbers as ctypes."""
        return self._call(name, context, *(ctypes.c_void_p(o) if isinstance(o, int) else o for o in operands))

    def _graph(self, context: ctypes.c_void_p, results: Iterable[int]) -> int:
        graph = self._call("ggml_new_graph_custom", context, ctypes.c_size_t(MAX_GRAPH_NODES), ctypes.c_bool(False))
        for result in results:
            self._call("ggml_build_forward_expand", ctypes.c_void_p(graph), ctypes.c_void_p(result), result=None)
        return graph

    def _tensor(self, context: ctypes.c_void_p, type: str, n_cols: int, n_rows: int) -> int:
        sizes = ctypes.c_int64(n_cols), ctypes.c_int64(n_rows)
        return self._call("ggml_new_tensor_2d", context, ctypes.c_int(TYPE_IDS[type]), *sizes)

    def _call(self, name: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
        return call(self.base, name, *arguments, result=result)


def _causal_mask(type: str, n_tokens: int, n_cells: int, depth: int) -> bytes:
    """The mask of n_tokens queries: query i attends to the first depth + i + 1 cells."""
    attended = [min(depth + i + 1, n_cells) for i in range(n_tokens)]
    return b"".join(ATTENDED[type] * n + MASKED[type] * (n_cells - n) for n in attended)
