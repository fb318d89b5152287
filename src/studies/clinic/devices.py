"""Limits for the error clinic: a device with too little memory, no locked memory, an RPC server of another version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from inferlab.engine.limit_vram import limit_vram
from inferlab.engine.loopback import loopback_device
from inferlab.engine.loopback.other_version import server_of_another_version
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import bytes_text

DEVICE = "gpu0"  # the plan's name of the first device
PARTS = ("weights", "cache", "compute")


@dataclass(frozen=True)
class Placed:
    """Settings for the worker; for a memory case also the device's limit and the planned bytes of its parts."""

    settings: Settings
    limit_bytes: int | None = None
    planned: dict[str, int] | None = None

    @property
    def verdict(self) -> str:
        """The plan in one sentence, "" without one."""
        if not self.planned:
            return ""
        parts = ", ".join(f"{name} {bytes_text(n)}" for name, n in self.planned.items())
        fits = "fits" if sum(self.planned.values()) <= self.limit_bytes else "does not fit"
        return f"{parts}: {fits} in {bytes_text(self.limit_bytes)}"


@contextmanager
def short_device(path: Path, settings: Settings, missing: str) -> Iterator[Placed]:
    """A loopback device with memory for all parts that llama.cpp allocates before `missing`, and for half of that one.

    Raises DeviceUnavailable on other systems than Linux, and where llama.cpp has no RPC.
    """
    with loopback_device(n_threads=1) as device:
        placed = device.settings(settings)
        planned = _planned(path, placed)
        earlier = PARTS[: PARTS.index(missing)]
        limit = sum(planned[part] for part in earlier) + planned[missing] // 2
        with limit_vram(limit, device):
            yield Placed(placed, limit, planned)


def _planned(path: Path, settings: Settings) -> dict[str, int]:
    """Bytes of each part on the device, from the closed form."""
    device = predict_memory(path, settings, simulate=False).devices[DEVICE]
    return dict(zip(PARTS, (device.weights_bytes, device.kv_cache_bytes, device.compute_bytes), strict=True))


@contextmanager
def other_version(path: Path, settings: Settings) -> Iterator[Placed]:
    """A server on this machine that answers every RPC client with another version."""
    with server_of_another_version() as endpoint:
        yield Placed(settings.but(rpc_servers=(endpoint,)))


def no_lock_command() -> tuple[str, ...]:
    """A command that runs the one behind it with no right to lock memory; empty where its programs are missing.

    An administrator's process may lock beyond every limit, so it also gives up that right (CAP_IPC_LOCK).
    """
    limit, rights = shutil.which("prlimit"), shutil.which("setpriv")
    administrator = hasattr(os, "geteuid") and os.geteuid() == 0
    if not limit or (administrator and not rights):
        return ()
    return (limit, "--memlock=0", *((rights, "--bounding-set=-ipc_lock") if administrator else ()))
