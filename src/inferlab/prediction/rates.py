"""Measured rates of devices and links, and the seconds that follow from them; no file is read.

The rates of a matrix depend on its type and on the buffer that holds it, because llama.cpp's kernels do: "Q4_K" has the
file's own layout, "Q4_K/CPU_REPACK" is repacked (see model.kernels).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inferlab.machine import HOST_DEVICE
from inferlab.model.ggml_types import TYPES

LOOPBACK = "loopback"  # the place of a loopback device
ACTIVATION = 4  # bytes of one value between layers
TILE = 64  # queries and cells that flash attention computes together on a CPU (GGML_FA_TILE_Q, _KV; ggml-cpu/common.h)
TILED_CACHES = ("f16", "f32")  # keys and values that have tiles, and a decode shared by cells (ops.cpp:9490, 9547)
SPLIT_CELLS_FROM = 512  # cells from which threads share the cells of one query (ops.cpp:9491)
REPACK_TOKENS = 4  # tokens that a repacked kernel multiplies together; the rest go one by one (repack.cpp:4638)


class MatrixKey(str):
    """A type of weights and, where they are repacked, the buffer that holds them: "Q4_K" or "Q4_K/CPU_REPACK"."""

    __slots__ = ()

    @classmethod
    def from_parts(cls, type: str, buffer: str = "") -> MatrixKey:
        return cls(f"{type}/{buffer}" if buffer else type)

    @property
    def type(self) -> str:
        return self.partition("/")[0]

    @property
    def buffer(self) -> str:
        """The extra buffer; "" for the file's own layout."""
        return self.partition("/")[2]


class AttentionKey(str):
    """The type of keys and values, the path and the values of a head: "f16/flash/128"."""

    __slots__ = ()

    @classmethod
    def from_parts(cls, type: str, path: str, head_dim: int) -> AttentionKey:
        return cls(f"{type}/{path}/{head_dim}")

    @property
    def type_and_path(self) -> tuple[str, str]:
        type, path, _ = self.split("/")
        return type, path

    @property
    def head_dim(self) -> int:
        return int(self.split("/")[2])


class DeviceKey(str):
    """A calibrated device: "host/2" is the host with two threads, "loopback/1" such a device, "CUDA0" a card."""

    __slots__ = ()

    @classmethod
    def from_parts(cls, place: str, n_threads: int) -> DeviceKey:
        return cls(f"{place}/{n_threads}")

    @property
    def place(self) -> str:
        """The device without its number of threads."""
        return self.partition("/")[0]

    @property
    def n_threads(self) -> int | None:
        threads = self.partition("/")[2]
        return int(threads) if threads else None


@dataclass(frozen=True)
class MatrixRates:
    """Seconds of a matrix (rows x columns) of one type in one buffer, times one token's values or a batch's.

    one token  bytes * seconds_per_byte + rows * seconds_per_row + seconds_per_product
    a batch    weights * (seconds_per_weight + tokens * seconds_per_weight_token)
               + tokens * (columns * seconds_per_input + rows * seconds_per_output) + seconds_per_product

    seconds_per_weight  unpacking, once for all tokens; inputs are rounded to the type that weights are multiplied with
    """

    seconds_per_byte: float
    seconds_per_weight_token: float
    seconds_per_row: float = 0.0
    seconds_per_weight: float = 0.0
    seconds_per_input: float = 0.0
    seconds_per_output: float = 0.0
    seconds_per_product: float = 0.0

    def one_token(self, n_bytes: float, n_rows: int) -> float:
        """Seconds of a product with one column."""
        return n_bytes * self.seconds_per_byte + n_rows * self.seconds_per_row + self.seconds_per_product

    def batch(self, n_rows: int, n_columns: int, n_tokens: float) -> float:
        """Seconds of a product with n_tokens columns, where arithmetic takes longer than reading the weights."""
        weights = n_rows * n_columns * (self.seconds_per_weight + n_tokens * self.seconds_per_weight_token)
        values = n_columns * self.seconds_per_input + n_rows * self.seconds_per_output
        return weights + n_tokens * values + self.seconds_per_product


@dataclass(frozen=True)
class AttentionRates:
    """Seconds of attention for keys and values of one type, with heads of one size.

    A head and cell is one query head that attends to one cell. On a CPU, heads that share keys and values read them
    from its caches, so that the bytes count once.

    seconds_per_head_cell   one token: arithmetic of one query head and one cell
    seconds_per_byte        one token: reading keys and values from memory
    seconds_per_batch_cell  a batch: one query of one head and one cell
    """

    seconds_per_head_cell: float
    seconds_per_byte: float
    seconds_per_batch_cell: float


@dataclass(frozen=True)
class DeviceRates:
    """Measured rates of one device.

    matrices        rates by type, and by the buffer where weights are repacked
    attention       rates by type of keys and values, "flash" or "plain", and values of a head
    block_seconds   for each block of a step, beside its matrices and attention
    step_seconds    once for each step
    value_seconds   for each token and each value that enters or leaves a matrix: norms, additions, rotations
    on_cpu          whether flash attention skips masked cells
    """

    name: str
    n_threads: int | None
    on_cpu: bool
    bandwidth_bytes_per_second: float
    matrices: dict[MatrixKey, MatrixRates]
    attention: dict[AttentionKey, AttentionRates] = field(default_factory=dict)
    block_seconds: float = 0.0
    step_seconds: float = 0.0
    value_seconds: float = 0.0

    def matrix(self, type: str, repacked: bool) -> MatrixRates:
        """Rates of a type, or of the nearest that was measured; in an extra buffer where it was, and `repacked`."""
        measured = type if type in self.types else self.nearest_type(type)
        return self.matrices[MatrixKey.from_parts(measured, self.extra_buffer(measured) if repacked else "")]

    def extra_buffer(self, type: str) -> str:
        """The buffer of repacked weights in which a type was measured; "" for none."""
        return next((key.buffer for key in self._keys if key.type == type and key.buffer), "")

    @property
    def repacked_types(self) -> set[str]:
        """The types that were measured in an extra buffer."""
        return {key.type for key in self._keys if key.buffer}

    @property
    def types(self) -> set[str]:
        """The types that were measured."""
        return {key.type for key in self._keys}

    @property
    def _keys(self) -> list[MatrixKey]:
        return [*map(MatrixKey, self.matrices)]

    def nearest_type(self, type: str) -> str:
        """The calibrated type whose weights are nearest in size."""
        bits = TYPES[type].bits_per_weight
        return min((key.type for key in self._keys), key=lambda t: abs(TYPES[t].bits_per_weight - bits))

    def attention_of(self, type: str, path: str, head_dim: int) -> AttentionRates | None:
        """Rates for heads of a size, between the nearest measured ones; None for a type that was not measured."""
        keys = [key for key in map(AttentionKey, self.attention) if key.type_and_path == (type, path)]
        return _interpolated({key.head_dim: self.attention[key] for key in keys}, head_dim) if keys else None


def host_rates(devices: Mapping[str, DeviceRates], n_threads: int | None) -> DeviceRates:
    """Rates of the host with n_threads, or with the nearest number that was measured (None: the most)."""
    by_threads = {key.n_threads or 1: devices[key] for key in map(DeviceKey, devices) if key.place == HOST_DEVICE}
    nearest = max(by_threads) if n_threads is None else min(by_threads, key=lambda n: abs(n - n_threads))
    return by_threads[nearest]


def attended_cells(
    n_tokens: int, depth: int, n_cells: int, *, window: int = 0, skips_masked: bool, tiled: bool, n_threads: int = 1
) -> float:
    """Cells that the queries of a step compute with, summed over them; n_cells are in the cache's view.

    All cells of the view for each query, unless masked ones are skipped (ggml-cpu/ops.cpp:8969). Then a batch computes
    whole tiles of 64 cells, and the threads share one query's view in equal parts, of which the last may be masked:

        batch   sum of unmasked cells + n_tokens * (64 - 1) / 2
        token   n_threads * min(unmasked cells, n_cells / n_threads)
    """
    if not skips_masked:
        return n_tokens * n_cells
    unmasked = unmasked_cells(n_tokens, depth, window)
    if tiled and n_tokens >= TILE:
        return unmasked + n_tokens * (TILE - 1) / 2
    if tiled and n_tokens == 1 and n_cells >= SPLIT_CELLS_FROM and not window:
        return n_threads * min(unmasked, -(-n_cells // n_threads))
    return unmasked


def unmasked_cells(n_tokens: int, depth: int, window: int) -> float:
    """Cells that `n_tokens` queries on top of `depth` cells attend to, summed: causal, and within a window.

    Query i attends to min(depth + i, window) cells. The sum over n queries is
    k (depth + (k + 1) / 2) + (n - k) window, where k queries attend to every cell:
    k = max(0, window - depth), at most n; k = n without a window.
    """
    n_full = min(n_tokens, max(0, window - depth)) if window else n_tokens
    return n_full * (depth + (n_full + 1) / 2) + (n_tokens - n_full) * window


def _interpolated(known: dict[int, AttentionRates], head_dim: int) -> AttentionRates:
    """Rates at a head size: linear between two measured sizes, in proportion to the size outside of them."""
    below = max((size for size in known if size <= head_dim), default=min(known))
    above = min((size for size in known if size >= head_dim), default=max(known))
    if below == above:
        return _mixed(known[below], known[below], 0.0, head_dim / below)
    return _mixed(known[below], known[above], (head_dim - below) / (above - below))


def _mixed(smaller: AttentionRates, larger: AttentionRates, share: float, factor: float = 1.0) -> AttentionRates:
    """(1 - share) of the first and `share` of the second; `factor` multiplies the seconds of a cell, not of a byte."""

    def mix(name: str) -> float:
        return (1 - share) * getattr(smaller, name) + share * getattr(larger, name)

    return AttentionRates(
        factor * mix("seconds_per_head_cell"), mix("seconds_per_byte"), factor * mix("seconds_per_batch_cell")
    )


@dataclass(frozen=True)
class LinkRates:
    """Measured rates of a link to a device. A split is a part of the graph that is sent to a device by itself.

    round_trip_seconds        when the other rates were measured; they include it
    extra_seconds             added to a round trip since then, or by a slowed relay over one that is not slowed
    split_seconds             for each split
    split_waits               round trips for each split
    split_bytes               bytes of a split's description and activations (RPC backend; 0 on a bus)
    relay_round_trip_seconds  round trip through a relay that is not slowed
    relay_step_seconds        added to each step by a relay before a loopback device: it shares the processor's cores
                              with the computation
    relay_split_seconds       added to each split by such a relay
    """

    bytes_per_second: float
    round_trip_seconds: float
    split_seconds: float = 0.0
    split_waits: float = 0.0
    split_bytes: float = 0.0
    extra_seconds: float = 0.0
    relay_round_trip_seconds: float = 0.0
    relay_step_seconds: float = 0.0
    relay_split_seconds: float = 0.0

    @property
    def crossing_seconds(self) -> float:
        """Seconds of a split beside its bytes: work, the relay's work, and its round trips' extra seconds."""
        return self.split_seconds + self.relay_split_seconds + self.split_waits * self.extra_seconds
