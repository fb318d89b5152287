"""Ceilings of a machine: the highest measured rates of its memories, arithmetic units, links and disk.

memory bandwidth  host: every thread searches a block larger than its caches for a byte it does not contain (libc's
                  memchr); a device: one column times more F16 matrices than its caches hold
matrix rate       a matrix of each type times some columns, by ggml on the device, in the shape that is fastest; 2 FLOP
                  per weight and column
link              copies of a large block to a device and back, and of four bytes for the round trip
disk              a file read once after its pages were dropped from the page cache
No model and no prediction is involved.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from inferlab.engine.client import LlamaEngine
from inferlab.engine.session import default_engine
from inferlab.machine import HOST_DEVICE, Ceiling, last_level_cache_bytes, physical_cores, ram_bytes
from inferlab.measurement.page_cache import empty_cache
from inferlab.measurement.queued import queued
from inferlab.units import MIB

TYPES = ("F16", "Q8_0", "Q6_K", "Q4_K", "Q4_0")
COLUMNS = 512
SIDE = 4096
PRODUCTS = ((SIDE, COLUMNS), (SIDE, 128), (2048, 128), (2048, 32))
"""Rows, and as many columns, of a square matrix; and the columns that it is multiplied with."""
LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES = 256 * MIB, 1024 * MIB
BLOCK = 16 * MIB


@dataclass(frozen=True)
class LinkCeiling:
    """A link between host and device: bytes per second in each direction, and the seconds of a round trip."""

    to_device_bytes_per_second: float
    to_host_bytes_per_second: float
    round_trip_seconds: float


def ceiling(
    device: str = HOST_DEVICE,
    n_threads: int | None = None,
    types: Sequence[str] = TYPES,
    seconds: float = 0.25,
    engine: LlamaEngine | None = None,
) -> Ceiling:
    """Measure one device's memory bandwidth and its matrix rate for each type; each number takes `seconds`.

    n_threads applies to the host only (None: one per physical core).
    Raises EngineRefused for a device that llama.cpp does not have, or that has too little free memory.
    """
    engine = engine or default_engine()
    host = device == HOST_DEVICE
    threads = (n_threads or physical_cores()) if host else None
    reading = host_bandwidth(threads, seconds) if threads else device_bandwidth(device, seconds, engine)
    rates = {type: matrix_rate(device, type, threads, seconds, engine) for type in types}
    return Ceiling(
        device,
        threads,
        reading,
        {type: rate for type, (rate, _) in rates.items()},
        {type: buffer for type, (_, buffer) in rates.items()},
    )


def highest(*ceilings: Ceiling) -> Ceiling:
    """The highest rates of several measurements of one device: a disturbance during one of them lowers none."""
    rates = {
        type: max(each.matrix_flops_per_second[type] for each in ceilings)
        for type in ceilings[0].matrix_flops_per_second
    }
    reading = max(each.bandwidth_bytes_per_second for each in ceilings)
    return replace(ceilings[0], bandwidth_bytes_per_second=reading, matrix_flops_per_second=rates)


def allowed(ceiling: Ceiling, type: str, flop_per_byte: float) -> float:
    """FLOP per second under both roofs of a type of weights: what is above was faster than anything measured here."""
    return min(ceiling.matrix_flops_per_second[type], flop_per_byte * ceiling.bandwidth_bytes_per_second)


@queued
def host_bandwidth(n_threads: int, seconds: float = 0.25) -> float:
    """Bytes per second that `n_threads` together read from memory, in the fastest pass."""
    share = block_bytes() // n_threads
    with mmap.mmap(-1, share * n_threads) as block:
        view = ctypes.c_char.from_buffer(block)
        start = ctypes.addressof(view)
        ctypes.memset(start, 1, share * n_threads)
        with ThreadPoolExecutor(n_threads) as pool:
            best = min(_pass_seconds(pool, [start + i * share for i in range(n_threads)], share, seconds))
        del view
    return share * n_threads / best


@queued
def device_bandwidth(device: str, seconds: float = 0.25, engine: LlamaEngine | None = None) -> float:
    """Bytes per second at which a device reads F16 matrices, each once per pass; the fastest pass."""
    n_matrices = max(1, block_bytes() // (2 * SIDE * SIDE))
    engine = engine or default_engine()
    work = {"type": "F16", "n_rows": SIDE, "n_cols": SIDE, "n_tokens": 1, "n_matrices": n_matrices}
    times, _ = engine.multiply(_ggml_name(device), None, **work, seconds=seconds)
    return n_matrices * 2 * SIDE * SIDE / min(times)


@queued
def matrix_rate(
    device: str, type: str, n_threads: int | None = None, seconds: float = 0.25, engine: LlamaEngine | None = None
) -> tuple[float, str]:
    """FLOP per second of a square matrix of `type` in the fastest pass of the fastest of PRODUCTS; and its buffer.

    The matrix lies in the buffer type that llama.cpp would choose, so that the kernel is the model's.
    """
    engine, rates = engine or default_engine(), []
    for side, columns in PRODUCTS:
        work = {"type": type, "n_rows": side, "n_cols": side, "n_tokens": columns, "n_matrices": 1}
        times, buffer = engine.multiply(_ggml_name(device), n_threads, **work, seconds=seconds / len(PRODUCTS))
        rates.append(2 * side * side * columns / min(times))
    return max(rates), buffer


@queued
def link(device: str, seconds: float = 0.5, engine: LlamaEngine | None = None) -> LinkCeiling:
    """Rates of the link to a device: a GPU's bus, or a loopback device's connection."""
    engine = engine or default_engine()
    to_device, to_host = engine.transfer(_ggml_name(device), BLOCK, seconds)
    round_trip = min(median(times) for times in engine.transfer(_ggml_name(device), 4, seconds / 4))
    return LinkCeiling(BLOCK / median(to_device), BLOCK / median(to_host), round_trip)


@queued
def disk(path: str | Path, n_bytes: int = 256 * MIB) -> float | None:
    """Bytes per second of reading the file's first n_bytes from disk; None if they cannot be dropped from the cache."""
    if empty_cache(path) != 0:
        return None
    n_bytes = min(n_bytes, os.path.getsize(path))
    began, left = time.perf_counter(), n_bytes
    with open(path, "rb", buffering=0) as file:
        while left > 0 and (piece := file.read(min(left, 4 * MIB))):
            left -= len(piece)
    return n_bytes / (time.perf_counter() - began)


def block_bytes() -> int:
    """Four times the last-level cache, between 256 MiB and 1 GiB, and at most an eighth of the RAM."""
    wanted = 4 * (last_level_cache_bytes() or LEAST_BLOCK_BYTES // 4)
    return min(max(LEAST_BLOCK_BYTES, min(MOST_BLOCK_BYTES, wanted)), (ram_bytes() or 8 * MOST_BLOCK_BYTES) // 8)


def _pass_seconds(pool: ThreadPoolExecutor, starts: list[int], share: int, seconds: float) -> list[float]:
    """Seconds of each pass of all threads over their shares of the block; at least three passes."""
    find = ctypes.CDLL(None).memchr
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    times: list[float] = []
    while len(times) < 3 or sum(times) < seconds:
        began = time.perf_counter()
        list(pool.map(lambda start: find(start, 0, share), starts))
        times.append(time.perf_counter() - began)
    return times


def _ggml_name(device: str) -> str:
    return "CPU" if device == HOST_DEVICE else device
