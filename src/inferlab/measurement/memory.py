"""Where the bytes really are: llama.cpp's buffers, the driver's count of a GPU, and the process's pages in RAM.

reserved   a model opened and a context made, and llama.cpp's own log read
occupied   what the driver counts grows by more than the buffers: the context of the process, the code of the kernels
           that ran, and the workspaces of cuBLAS and of ggml's pool. That difference, measured once on a small model,
           is the device's constant
resident   pages of a mapped file, memory of its own, huge pages, locked pages: Linux only, from /proc/<pid>/smaps
           (proc_pid_smaps(5)); elsewhere the answer is None, which means "unknown"
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.devices import used_devices
from inferlab.engine.protocol import Engine
from inferlab.engine.session import default_engine
from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.machine import Device
from inferlab.measurement.telemetry.nvml import vram_used_bytes
from inferlab.model.find import find_model, tiny_model
from inferlab.settings import Settings
from inferlab.units import KIB

N_PROMPT, N_GEN = 512, 8
SETTLE_SECONDS, LOOK_SECONDS = 5.0, 0.2
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


# --- llama.cpp's buffers ----------------------------------------------------------------------


def reserved_bytes(
    model: str | Path | None, settings: Settings, kind: str = "kv_cache", engine: Engine | None = None
) -> int:
    """Bytes of one kind over all devices: weights, kv_cache, compute or output; exact to 0.01 MiB a buffer.

    Nothing is generated. Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    engine = engine or default_engine()
    with engine.exclusive():
        buffers = engine.open(find_model(model), settings).buffers
    return sum(buffer.n_bytes for buffer in buffers if buffer.kind == kind)


# --- the driver's count -----------------------------------------------------------------------


@dataclass(frozen=True)
class Occupied:
    """Bytes in use on one device before a model was opened and after it worked, and the buffers that llama.cpp logged.

    place  the device's name in plans: "gpu0", "gpu1", ...
    """

    device: str
    place: str
    before_bytes: int
    after_bytes: int
    buffers_bytes: int

    @property
    def grown_bytes(self) -> int:
        """By how much the driver's count grew."""
        return self.after_bytes - self.before_bytes

    @property
    def beyond_bytes(self) -> int:
        """What of it is in no buffer."""
        return self.grown_bytes - self.buffers_bytes


def occupied(
    model: str | Path | None,
    settings: Settings,
    device: str | None = None,
    engine: Engine | None = None,
) -> Occupied:
    """Open a model in a fresh worker, let it read and write a little, and ask the driver before and after.

    device is ggml's name (None: the only one that the settings use). Nobody else should use the card meanwhile.
    Raises DeviceUnavailable where the driver does not tell, InvalidSettings, ModelError and EngineError.
    """
    engine, path = engine or default_engine(), find_model(model)
    settings = settings if settings.n_ctx else settings.but(n_ctx=2 * N_PROMPT)
    with engine.exclusive():
        used = used_devices(settings, engine.machine().devices)
        card = _one(device, used)
        engine.close()
        before = _settled(card)
        buffers = engine.open(path, settings).buffers
        engine.generate(engine.random_prompt(min(N_PROMPT, settings.n_ctx - N_GEN)), N_GEN)
        after = vram_used_bytes(card)
    own = sum(buffer.n_bytes for buffer in buffers if buffer.device == card.name)
    return Occupied(card.name, f"gpu{used.index(card)}", before, after, own)


def context_bytes(device: str | None = None, engine: Engine | None = None) -> int:
    """A device's constant: bytes that the driver counts beyond llama.cpp's buffers, with the embedded model.

    Raises as `occupied` does, and DeviceUnavailable where less than nothing is left: somebody else used the card.
    """
    settings = Settings(n_ctx=2 * N_PROMPT, devices=(device,) if device else None)
    found = occupied(tiny_model(), settings, device, engine)
    if found.beyond_bytes <= 0:
        raise DeviceUnavailable(
            f"The driver counted {found.grown_bytes} bytes more on {found.device}, not more than the "
            f"{found.buffers_bytes} that llama.cpp allocated: another program freed memory. Close it and measure again."
        )
    return found.beyond_bytes


def _one(name: str | None, used: tuple[Device, ...]) -> Device:
    found = [device for device in used if name in (None, device.name) and device.backend != "RPC"]
    if len(found) == 1:
        return found[0]
    known = ", ".join(device.name for device in used) or "none"
    if len(found) > 1:
        raise InvalidSettings(f"The settings use several devices: {known}. Say which one: device={found[0].name!r}.")
    what = f"The settings do not use a GPU {name!r}" if name else "The settings use no GPU"
    raise DeviceUnavailable(f"{what}; they use {known}. Totals need a driver that counts a GPU's memory.")


def _settled(card: Device) -> int:
    """The driver's count once three readings agree: a process that ended gives its memory back a moment later."""
    readings = [vram_used_bytes(card)]
    deadline = time.monotonic() + SETTLE_SECONDS
    while len(readings) < 3 or (len(set(readings[-3:])) > 1 and time.monotonic() < deadline):
        time.sleep(LOOK_SECONDS)
        readings.append(vram_used_bytes(card))
    return readings[-1]


# --- the process's pages ----------------------------------------------------------------------


@dataclass(frozen=True)
class Residence:
    """Resident bytes of one process.

    file_bytes        pages of one file that it has mapped, whoever else uses them (Rss)
    file_share_bytes  the same pages, each divided by the number of processes that have it mapped (Pss)
    own_bytes         memory that is no file's: buffers, caches, copies (Anonymous)
    huge_bytes        the part of own_bytes in huge pages (AnonHugePages)
    file_huge_bytes   the part of file_bytes in huge pages (FilePmdMapped)
    locked_bytes      what may not be swapped out (Locked)
    """

    file_bytes: int
    file_share_bytes: int
    own_bytes: int
    huge_bytes: int
    file_huge_bytes: int
    locked_bytes: int


def read_residence(pid: int, file: str | Path, root: Path = Path("/proc")) -> Residence | None:
    """What process `pid` has in RAM of `file`, and of its own; None where the system does not tell."""
    try:
        text = (root / str(pid) / "smaps").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    every = list(_mappings(text))
    mapped = [sizes for name, sizes in every if name == os.path.realpath(file)]

    def summed(field: str, of: list[dict[str, int]]) -> int:
        return sum(sizes.get(field, 0) for sizes in of)

    everything = [sizes for _, sizes in every]
    return Residence(
        file_bytes=summed("Rss", mapped),
        file_share_bytes=summed("Pss", mapped),
        own_bytes=summed("Anonymous", everything),
        huge_bytes=summed("AnonHugePages", everything),
        file_huge_bytes=summed("FilePmdMapped", mapped),
        locked_bytes=summed("Locked", everything),
    )


def _mappings(text: str) -> Iterator[tuple[str, dict[str, int]]]:
    """(file or "", bytes by field) of each mapping; a head line has an address range, a field line a name and kB."""
    name, sizes = "", {}
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
    """What the engine's process has in RAM right after loading, before any token; None off Linux.

    Raises ModelError, InvalidSettings, EngineRefused or EngineCrashed.
    """
    engine, path = engine or default_engine(), find_model(model)
    engine.open(path, settings or Settings(n_ctx=512))
    return read_residence(engine.pid, path)


def huge_page_policy(path: Path = HUGE_PAGES) -> str | None:
    """When the system uses huge pages for a process: "always", "madvise" (on request) or "never"; None if unknown."""
    try:
        words = path.read_text().split()
    except OSError:
        return None
    return next((word.strip("[]") for word in words if word.startswith("[")), None)
