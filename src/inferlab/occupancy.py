"""What a model takes of a GPU as the driver counts it, beside the buffers that llama.cpp says it allocated.

The driver's count grows by more than the buffers: the context of the process, the code of the kernels that ran, and
the workspaces of cuBLAS and of ggml's pool. That difference, measured once on a small model, is the device's constant.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from inferlab.engine import Engine, default_engine
from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.machine import Device
from inferlab.models import find_model, tiny_model
from inferlab.selection import used_devices
from inferlab.settings import Settings
from inferlab.telemetry import vram_used_bytes

N_PROMPT, N_GEN = 512, 8
SETTLE_SECONDS, LOOK_SECONDS = 5.0, 0.2


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
    with engine.held():
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
