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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np

from inferlab.engine.loopback import loopback_device
from inferlab.engine.session import this_machine
from inferlab.errors import DeviceUnavailable, EngineRefused
from inferlab.machine import data_cache_bytes, physical_cores
from inferlab.measurement import ceilings
from inferlab.measurement.page_cache import fill_cache
from inferlab.measurement.sweep import Sweep, sweep
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from inferlab.units import KIB, MIB
from studies import recipes
from studies.links_and_rates.study import LOOPBACK, CacheLevel, DeviceRates, LinkRates, ReadPoint
from studies.recipes import Recipe

FILE_BYTES, PIECE = 256 * MIB, 4 * MIB
LEAST_SWEPT, READ_IN_A_CALL = 16 * KIB, 64 * MIB
SWEEP_REPEATS, PAGE_CACHE_REPEATS = 7, 3


def link_rates() -> LinkRates:
    """Measure this machine in a few seconds, with a file in the system's folder for temporary files."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random"
        with open(path, "wb") as file:
            for _ in range(FILE_BYTES // PIECE):
                file.write(os.urandom(PIECE))
        disk, cached = ceilings.disk(path, FILE_BYTES), _page_cache_rate(path)
    threads = physical_cores()
    before = ceilings.host_bandwidth(threads)
    read = tuple(ReadPoint(n, _read_rate(n)) for n in _swept_sizes(ceilings.block_bytes()))
    devices = tuple(_devices())
    return LinkRates(
        machine=this_machine(),
        date=date.today().isoformat(),
        disk=disk,
        page_cache=cached,
        host_ram=max(before, ceilings.host_bandwidth(threads)),
        threads=threads,
        caches=tuple(CacheLevel(level, n) for level, n in data_cache_bytes().items()),
        sweep=read,
        devices=devices,
    )


def _page_cache_rate(path: Path) -> float:
    """Bytes per second at which read(2) copies a file from the page cache."""
    fill_cache(path)
    buffer = bytearray(PIECE)

    def read() -> None:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass

    return path.stat().st_size / _least_seconds(read, PAGE_CACHE_REPEATS)


def _swept_sizes(most: int) -> list[int]:
    """Powers of two from 16 KiB up to `most` bytes."""
    return [2**power for power in range(LEAST_SWEPT.bit_length() - 1, most.bit_length())]


def _read_rate(n_bytes: int) -> float:
    """Bytes per second at which one core reads a block, repeated by a stride of 0 so that the call costs nothing."""
    n_times, block = max(1, READ_IN_A_CALL // n_bytes), np.ones(n_bytes // 8, np.int64)
    repeated = np.broadcast_to(block, (n_times, block.size))
    return n_times * n_bytes / _least_seconds(lambda: repeated.max(axis=1), SWEEP_REPEATS)


def _least_seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def _devices() -> Iterator[DeviceRates]:
    """The link and the memory of each GPU, then the link of a loopback device; what is refused is left out."""
    for gpu in this_machine().gpus:
        with suppress(EngineRefused):
            yield _link_of(gpu.name, gpu.name, ceilings.device_bandwidth(gpu.name))
    with suppress(DeviceUnavailable), loopback_device(n_threads=1) as device:
        yield _link_of(LOOPBACK, device.endpoint, None)


def _link_of(name: str, device: str, memory: float | None) -> DeviceRates:
    link = ceilings.link(device)
    return DeviceRates(name, link.to_device_bytes_per_second, link.to_host_bytes_per_second, memory)


def prompts(n_prompts: Sequence[int]) -> Sweep:
    """Rates of a shape in F16 over lengths of prompts that go through it in one pass."""
    settings = Settings(n_batch=2048, n_ubatch=2048, flash_attn="on")
    path = make_shape("llama-3.2-1b", "F16", n_layer=8, n_vocab=16384)
    return sweep(path, settings, {"n_prompt": n_prompts}, n_gen=3, repeats=2)


RECIPES: Mapping[str, Recipe] = {
    "link-rates": partial(link_rates),
    "roof-F16": partial(prompts, n_prompts=[2**n for n in range(12)]),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
