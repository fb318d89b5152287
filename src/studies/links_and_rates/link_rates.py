"""Rates of this machine's links and memories: disk, page cache, device links, RAM, and a read sweep over the caches.

disk        a file of random bytes, read once after its pages were dropped from the page cache
page cache  the same file again, copied by read(2) into a buffer that is used again
device      copies of a large block to a device and back (`ceilings.link`); a GPU's own memory too
host RAM    all cores read a block larger than every cache (`ceilings.host_bandwidth`), before and after the sweep
read sweep  one core: NumPy's largest value of 8-byte integers, over blocks of growing size, many times in one call

The sweep's code does little for each byte, but it is no bare load: near the core it shows what NumPy reaches, which is
a lower bound of the cache. A step in its rates is a cache that ends; it cannot name the cache, nor see who shares it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.engine.session import default_engine
from inferlab.errors import DeviceUnavailable, EngineRefused, InvalidSettings
from inferlab.machine import Machine, data_cache_bytes, physical_cores
from inferlab.measurement import ceilings
from inferlab.measurement.page_cache import fill_cache
from inferlab.measurement.queued import queued
from inferlab.shown import Shown
from inferlab.units import KIB, MIB

LOOPBACK = "loopback device"
FILE_BYTES, PIECE = 256 * MIB, 4 * MIB
LEAST_SWEPT = 16 * KIB
READ_IN_A_CALL = 64 * MIB
SWEEP_REPEATS = 7


@dataclass(frozen=True)
class ReadPoint:
    """Reading a block of one size over and over on one core: bytes, and bytes per second in the fastest call."""

    n_bytes: int
    bytes_per_second: float


@dataclass(frozen=True)
class DeviceRates:
    """A device's link in bytes per second each way, and its own memory; None where that is the host's."""

    name: str
    to_device: float
    to_host: float
    memory: float | None = None


@dataclass(frozen=True)
class CacheLevel:
    """A data cache of a core as the system reports it."""

    level: int
    n_bytes: int


@dataclass(frozen=True, kw_only=True)
class LinkRates(Shown):
    """Rates of one machine in bytes per second; None where a rate could not be measured.

    disk     None where pages cannot be dropped from the page cache, as in a file system in memory
    threads  that read `host_ram` together
    """

    machine: Machine
    date: str
    disk: float | None
    page_cache: float
    host_ram: float
    threads: int
    caches: tuple[CacheLevel, ...]
    sweep: tuple[ReadPoint, ...]
    devices: tuple[DeviceRates, ...]

    @property
    def badge(self) -> str:
        return self.machine.badge(self.date)

    @property
    def rates(self) -> dict[str, tuple[str, float | None]]:
        """Name -> (place, bytes per second) of every rung, as `prediction.link_rates` takes them."""
        found: dict[str, tuple[str, float | None]] = {
            "this disk": ("disk", self.disk),
            "page cache, read()": ("page cache", self.page_cache),
            f"host RAM, {self.threads} threads": ("host RAM", self.host_ram),
        }
        for cache in self.caches:
            found[f"L{cache.level} cache, one core"] = ("cache", self.cache_rate(cache))
        for one in self.devices:
            place = "network" if one.name == LOOPBACK else "bus"
            found[f"to {one.name}"] = (place, one.to_device)
            found[f"memory of {one.name}"] = ("VRAM", one.memory)
        return found

    @property
    def missing(self) -> tuple[str, ...]:
        """What this machine could not measure, among "disk", "caches" and "device"."""
        found = {"disk": self.disk, "caches": self.caches, "device": self.devices}
        return tuple(name for name, one in found.items() if not one)

    def cache_rate(self, cache: CacheLevel) -> float | None:
        """The rate of the largest block that fills at most half of a cache, and is too large for the one before."""
        before = max((one.n_bytes for one in self.caches if one.level < cache.level), default=0)
        fitting = [point for point in self.sweep if before < point.n_bytes <= cache.n_bytes / 2]
        return fitting[-1].bytes_per_second if fitting else None


@queued
def link_rates(
    folder: str | Path | None = None, file_bytes: int = FILE_BYTES, engine: LlamaEngine | None = None
) -> LinkRates:
    """Measure this machine in a few seconds. A file of `file_bytes` is written to `folder`, and deleted.

    folder  on the disk to measure; None: the system's folder for temporary files
    Raises InvalidSettings for a file without bytes or a folder that cannot be written, EngineError for a worker.
    """
    engine = engine or default_engine()
    with _random_file(folder, file_bytes) as path:
        disk, cached = ceilings.disk(path, file_bytes), page_cache_rate(path)
    threads = physical_cores()
    before = ceilings.host_bandwidth(threads)
    sweep, devices = read_sweep(swept_sizes(ceilings.block_bytes())), tuple(_devices(engine))
    return LinkRates(
        machine=engine.machine(), date=date.today().isoformat(), disk=disk, page_cache=cached,
        host_ram=max(before, ceilings.host_bandwidth(threads)), threads=threads,
        caches=tuple(CacheLevel(level, n) for level, n in data_cache_bytes().items()), sweep=sweep, devices=devices,
    )  # fmt: skip


@queued
def page_cache_rate(path: str | Path, repeats: int = 3) -> float:
    """Bytes per second at which read(2) copies a file from the page cache, in the fastest of several passes."""
    fill_cache(path)
    buffer = bytearray(PIECE)

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return os.path.getsize(path) / _least_seconds(read, repeats)


def swept_sizes(most: int) -> list[int]:
    """Powers of two from 16 KiB up to `most` bytes."""
    sizes = [LEAST_SWEPT]
    while 2 * sizes[-1] <= most:
        sizes.append(2 * sizes[-1])
    return sizes


@queued
def read_sweep(sizes: Sequence[int], repeats: int = SWEEP_REPEATS) -> tuple[ReadPoint, ...]:
    """The rate at which one core reads a block of each size, in bytes; each is a multiple of 8.

    A block is repeated by a stride of 0, so that one call of NumPy reads it many times and the call costs nothing.
    Raises InvalidSettings for a size that holds no whole integer.
    """
    if any(n < 8 or n % 8 for n in sizes):
        raise InvalidSettings(f"sizes={tuple(sizes)} must be multiples of 8 bytes, at least 8.")
    return tuple(ReadPoint(n, _read_rate(n, repeats)) for n in sizes)


def _read_rate(n_bytes: int, repeats: int) -> float:
    import numpy as np

    n_times = max(1, READ_IN_A_CALL // n_bytes)
    block = np.ones(n_bytes // 8, np.int64)
    repeated = np.broadcast_to(block, (n_times, block.size))
    return n_times * n_bytes / _least_seconds(lambda: repeated.max(axis=1), repeats)


def _least_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _devices(engine: LlamaEngine) -> Iterator[DeviceRates]:
    """The link and the memory of each GPU, then the link of a loopback device; what is refused is left out."""
    for gpu in engine.machine().gpus:
        with suppress(EngineRefused):
            yield _rates_of(gpu.name, gpu.name, engine, own_memory=True)
    with suppress(DeviceUnavailable), loopback_device(n_threads=1) as device:
        yield _rates_of(LOOPBACK, device.endpoint, engine, own_memory=False)


def _rates_of(name: str, device: str, engine: LlamaEngine, own_memory: bool) -> DeviceRates:
    found = ceilings.link(device, engine=engine)
    memory = ceilings.device_bandwidth(device, engine=engine) if own_memory else None
    return DeviceRates(name, found.to_device_bytes_per_second, found.to_host_bytes_per_second, memory)


@contextmanager
def _random_file(folder: str | Path | None, n_bytes: int) -> Iterator[Path]:
    """A file of random bytes, which no disk can compress, deleted at the end."""
    if n_bytes < 1:
        raise InvalidSettings(f"file_bytes={n_bytes} is no file to read. Ask for at least 1 byte, better {FILE_BYTES}.")
    try:
        with tempfile.TemporaryDirectory(dir=folder) as inside:
            path = Path(inside) / "random"
            with open(path, "wb") as file:
                for written in range(0, n_bytes, PIECE):
                    file.write(os.urandom(min(PIECE, n_bytes - written)))
            yield path
    except OSError as error:
        raise InvalidSettings(f"The folder {folder} cannot hold a test file: {error}. Name another folder.") from error
