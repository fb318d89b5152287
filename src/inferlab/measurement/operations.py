"""Times of single operations on a device: matrix products and one block's attention, with made-up numbers.

Operations are measured in rounds: each of them once, then all again. A disturbance of some seconds then affects one
round of each, and not every round of one. No model and no prediction is involved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from inferlab.measurement.queued import queued
from inferlab.measurement.turns import in_turns
from inferlab.model.ggml_types import row_bytes, tensor_type

if TYPE_CHECKING:
    from inferlab.engine.client import LlamaEngine

LEAST_PASSES = 2  # of each operation in a round, after a warm-up


@dataclass(frozen=True)
class Product:
    """A matrix (n_rows, n_cols) of a type times n_tokens columns; of n_matrices, so that no cache holds them.

    n_threads    on a CPU; None elsewhere
    extra_bufts  whether the matrix may be repacked, as llama.cpp repacks it
    buffer       the buffer type that held the matrix, such as CPU_REPACK; "" before it was measured
    seconds      of one product, the fastest pass of each round
    """

    type: str
    n_rows: int
    n_cols: int
    n_tokens: int
    n_matrices: int = 1
    n_threads: int | None = None
    extra_bufts: bool = True
    buffer: str = ""
    seconds: tuple[float, ...] = ()

    @property
    def typical(self) -> float:
        """The median over the rounds."""
        return median(self.seconds)

    @property
    def n_bytes(self) -> int:
        """Bytes of one matrix."""
        return tensor_type(self.type).bytes_of(self.n_rows * self.n_cols)


@dataclass(frozen=True)
class Attention:
    """Attention of n_tokens queries on top of `depth` cells, of which the view has n_cells; of n_blocks caches.

    seconds  of one block, the fastest pass of each round
    """

    type_k: str
    type_v: str
    flash: bool
    head_dim: int
    n_head: int
    n_head_kv: int
    n_tokens: int
    n_cells: int
    depth: int
    n_blocks: int = 1
    n_threads: int | None = None
    seconds: tuple[float, ...] = ()

    @property
    def cell_bytes(self) -> int:
        """Bytes of one cell's keys and values."""
        return self.n_head_kv * (row_bytes(self.type_k, self.head_dim) + row_bytes(self.type_v, self.head_dim))

    @property
    def typical(self) -> float:
        """The median over the rounds."""
        return median(self.seconds)


@queued
def timed(
    operations: Sequence[Product | Attention], device: str, rounds: int, engine: LlamaEngine
) -> list[Product | Attention]:
    """The operations with their seconds, and products with their buffers; `device` is ggml's name, such as "CPU".

    Raises EngineRefused for an operation that the device cannot compute.
    """
    turns = in_turns(lambda operation: _pass(operation, device, engine), operations, range(rounds))
    return [_with_passes(*result) for result in zip(operations, turns, strict=True)]


def _pass(operation: Product | Attention, device: str, engine: LlamaEngine) -> tuple[float, str]:
    """Seconds of one product or block in the fastest of some passes, and the buffer of the weights."""
    work = {k: v for k, v in asdict(operation).items() if k not in ("seconds", "buffer")}
    work |= {"seconds": 0.0, "least_passes": LEAST_PASSES}
    if isinstance(operation, Product):
        seconds, buffer = engine.multiply(device, **work)
        return min(seconds) / operation.n_matrices, buffer
    return min(engine.attend(device, **work)) / operation.n_blocks, ""


def _with_passes(operation: Product | Attention, passes: Sequence[tuple[float, str]]) -> Product | Attention:
    result = replace(operation, seconds=tuple(seconds for seconds, _ in passes))
    return replace(result, buffer=passes[-1][1]) if isinstance(result, Product) else result
