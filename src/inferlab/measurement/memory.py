"""Measured memory: llama.cpp's buffers, a GPU's memory as its driver counts it, and the process's pages in RAM.

reserved   llama.cpp's buffers, from its log after opening a model and creating a context
occupied   growth of the driver's count. It exceeds the buffers by the process's CUDA context, the code of the kernels
           that ran, and the workspaces of cuBLAS and of ggml's pool; this difference, measured once on a small
           model, is the device's constant
resident   pages of a mapped file, anonymous memory, huge pages, locked pages: Linux only, from /proc/<pid>/smaps
           (proc_pid_smaps(5)); None, which means "unknown", on other systems
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.machine import Device
from inferlab.measurement.queued import queued
from inferlab.measurement.telemetry.nvml import vram_used_bytes
from inferlab.model.find import find_model, tiny_model
from inferlab.options.devices import used_devices
from inferlab.settings import Settings
from inferlab.units import KIB

N_PROMPT, N_GEN = 512, 8
SETTLE_SECONDS, POLL_SECONDS = 5.0, 0.2
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


# --- llama.cpp's buffers ----------------------------------------------------------------------


def reserved_bytes(
    model: str | Path | None, settings: Settings, kind: str = "kv_cache", engine: Engine | None = None
) -> int:
    """Bytes of one kind over all devices: weights, kv_cache, compute or output; exact to 0.01 MiB per buffer.

    Nothing is generated. Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    engine = engine or default_engine()
    with engine.exclusive():
        buffers = engine.open(find_model(model), settings).buffers
    return sum(buffer.n_bytes for buffer in buffers if buffer.kind == kind)


# --- the driver's count -----------------------------------------------------------------------


@dataclass(frozen=True)
class Occupied:
    """Bytes in use on one device before a model was opened and after a pass, and the buffers that llama.cpp logged.

    place  the device's name in plans: "gpu0", "gpu1", ...
    """

    device: str
    place: str
    before_bytes: int
    after_bytes: int
    buffers_bytes: int

    @property
    def grown_bytes(self) -> int:
        """Growth of the driver's count."""
        return self.after_bytes - self.before_bytes

    @property
    def outside_buffers_bytes(self) -> int:
        """The part of the growth that is in no buffer of llama.cpp."""
        return self.grown_bytes - self.buffers_bytes


@queued
def occupied(
    model: str | Path | None,
    settings: Settings,
    device: str | None = None,
    engine: Engine | None = None,
) -> Occupied:
    """Open a model in a fresh worker, run one short pass, and read the driver's count before and after.

    device is ggml's name (None: the only one that the settings use). No other program should use the GPU meanwhile.
    Raises DeviceUnavailable if the driver does not report the count, InvalidSettings, ModelError and EngineError.
    """
    engine, path = engine or default_engine(), find_model(model)
    n_ctx = settings.n_ctx or 2 * N_PROMPT
    settings = settings.but(n_ctx=n_ctx)
    with engine.exclusive():
        used = used_devices(settings, engine.machine().devices)
        card = _selected_device(device, used)
        engine.close()
        before = _stable_used_bytes(card)
        buffers = engine.open(path, settings).buffers
        engine.generate(engine.random_prompt(min(N_PROMPT, n_ctx - N_GEN)), N_GEN)
        after = vram_used_bytes(card)
    own = sum(buffer.n_bytes for buffer in buffers if buffer.device == card.name)
    return Occupied(card.name, f"gpu{used.index(card)}", before, after, own)


def context_bytes(device: str | None = None, engine: Engine | None = None) -> int:
    """A device's constant: bytes that the driver counts beyond llama.cpp's buffers, with the embedded model.

    Raises as `occupied` does, and DeviceUnavailable if the difference is not positive: another program freed memory.
    """
    settings = Settings(n_ctx=2 * N_PROMPT, devices=(device,) if device else None)
    measured = occupied(tiny_model(), settings, device, engine)
    if measured.outside_buffers_bytes <= 0:
        raise DeviceUnavailable(
            f"The driver counted {measured.grown_bytes} bytes more on {measured.device}, not more than the "
            f"{measured.buffers_bytes} that llama.cpp allocated: another program freed memory. Close it and measure "
            "again."
        )
    return measured.outside_buffers_bytes


def _selected_device(name: str | None, used: tuple[Device, ...]) -> Device:
    cards = [device for device in used if name in (None, device.name) and device.backend != "RPC"]
    if len(cards) == 1:
        return cards[0]
    known = ", ".join(device.name for device in used) or "none"
    if len(cards) > 1:
        raise InvalidSettings(f"The settings use several devices: {known}. Say which one: device={cards[0].name!r}.")
    what = f"The settings do not use a GPU {name!r}" if name else "The settings use no GPU"
    raise DeviceUnavailable(f"{what}; they use {known}. Totals need a driver that counts a GPU's memory.")


def _stable_used_bytes(card: Device) -> int:
    """The driver's count once three readings agree: the memory of an ended process is freed with a delay."""
    readings = [vram_used_bytes(card)]
    deadline = time.monotonic() + SETTLE_SECONDS
    while len(readings) < 3 or (len(set(readings[-3:])) > 1 and time.monotonic() < deadline):
        time.sleep(POLL_SECONDS)
        readings.append(vram_used_bytes(card))
    return readings[-1]


# --- the process's pages ----------------------------------------------------------------------


@dataclass(frozen=True)
class Residence:
    """Resident bytes of one process.

    file_bytes        pages of one mapped file, shared or not (Rss)
    file_share_bytes  the same pages, each divided by the number of processes that map it (Pss)
    own_bytes         anonymous memory: buffers, caches, copies (Anonymous)
    huge_bytes        the part of own_bytes in huge pages (AnonHugePages)
    file_huge_bytes   the part of file_bytes in huge pages (FilePmdMapped)
    locked_bytes      pages that may not be swapped out (Locked)
    """

    file_bytes: int
    file_share_bytes: int
    own_bytes: int
    huge_bytes: int
    file_huge_bytes: int
    locked_bytes: int


def read_residence(pid: int | None, file: str | Path, root: Path = Path("/proc")) -> Residence | None:
    """Resident bytes of process `pid`, those of `file` separately; None where the system does not report them."""
    try:
        text = (root / str(pid) / "smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    mappings = list(_mappings(text))
    of_file = [sizes for name, sizes in mappings if name == os.path.realpath(file)]

    def summed(field: str, sizes_of: list[dict[str, int]]) -> int:
        return sum(sizes.get(field, 0) for sizes in sizes_of)

    of_all = [sizes for _, sizes in mappings]
    return Residence(
        file_bytes=summed("Rss", of_file),
        file_share_bytes=summed("Pss", of_file),
        own_bytes=summed("Anonymous", of_all),
        huge_bytes=summed("AnonHugePages", of_all),
        file_huge_bytes=summed("FilePmdMapped", of_file),
        locked_bytes=summed("Locked", of_all),
    )


def _mappings(text: str) -> Iterator[tuple[str, dict[str, int]]]:
    """(file or "", bytes by field) of each mapping: first its address range, then a name and kB for each field."""
    name = ""
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        words = line.split(maxsplit=5)
        if words and not words[0].endswith(":"):
            if sizes:
                yield name, sizes
            name, sizes = (words[5] if len(words) > 5 else ""), {}
        elif len(words) == 3 and words[2] == "kB":
            sizes[words[0].rstrip(":")] = int(words[1]) * KIB
    if sizes:
        yield name, sizes


def resident(
    model: str | Path | None = None, settings: Settings | None = None, engine: LlamaEngine | None = None
) -> Residence | None:
    """Resident bytes of the engine's process right after loading, before any token; None if not on Linux.

    Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    engine, path = engine or default_engine(), find_model(model)
    engine.open(path, settings or Settings(n_ctx=512))
    return read_residence(engine.pid, path)


def huge_page_policy(path: Path = HUGE_PAGES) -> str | None:
    """When the system uses transparent huge pages: "always", "madvise" (on request) or "never"; None if unknown."""
    try:
        words = path.read_text().split()
    except OSError:
        return None
    return next((word.strip("[]") for word in words if word.startswith("[")), None)
