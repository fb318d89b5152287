"""A smaller card than there is: memory held back, so that what would fill a card of 8 GiB fills this one.

GPU              a process of its own allocates plain buffers through ggml and keeps them; what it takes itself, the
                 driver's context, counts as held back. Whether less is free for others is looked at, not assumed.
loopback device  has no memory of its own; the kernel limits what its process may allocate (Linux)

Both end with the session that asked for them, however it ends.
Not limited: memory that a driver moves to RAM when a card is full (Windows can), and GPUs that share the host's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_at
from inferlab.engine.protocol import Engine
from inferlab.engine.registry import limit_on, set_limit
from inferlab.engine.session import default_engine
from inferlab.errors import DeviceUnavailable, EngineRefused, InvalidSettings
from inferlab.machine import Device
from inferlab.units import MIB, bytes_from_text, bytes_text

NOTICEABLE = 0.5  # share of the held bytes that must be missing for others, else nothing was held back
CLOSE_BYTES = 64 * MIB


@dataclass(frozen=True)
class Limit:
    """What a device, by its name or endpoint, is limited to; held_bytes is None where the kernel limits it."""

    device: str
    limited_to_bytes: int
    held_bytes: int | None = None


@contextmanager
def limit_vram(
    limit: int | str, device: str | LoopbackDevice | None = None, engine: Engine | None = None
) -> Iterator[Limit]:
    """Hold memory back while the block runs: `with lab.limit_vram("8GiB"): lab.measure(...)`.

    limit   bytes, or a text such as "8GiB" or "8 GB": as if the card were sold with so much
    device  ggml's name of a GPU, or a loopback device or its endpoint (None: this machine's one GPU)

    `lab.this_machine()` shows the limit and `lab.fit` keeps to it. Raises InvalidSettings for a limit that the device
    cannot have, and DeviceUnavailable where too little is free, or where holding memory back takes none from others.
    """
    n_bytes = bytes_from_text(limit) if isinstance(limit, str) else limit
    if isinstance(n_bytes, bool) or not isinstance(n_bytes, int) or n_bytes <= 0:
        raise InvalidSettings(f"limit={limit!r} leaves nothing to use. Give bytes, or a text such as '8GiB'.")
    far = _loopback(device)
    name = far.endpoint if far else _gpu(device, engine or default_engine()).name
    if limit_on(name):
        raise InvalidSettings(f"{name} is limited to {bytes_text(limit_on(name))} already. End that block first.")
    way = _within_a_limit(far, n_bytes) if far else _held_back(name, n_bytes, engine or default_engine())
    with way as found:
        set_limit(name, n_bytes)
        try:
            yield found
        finally:
            set_limit(name, None)


def _loopback(device: str | LoopbackDevice | None) -> LoopbackDevice | None:
    """The loopback device that is meant, if one is; another machine's is refused."""
    if isinstance(device, LoopbackDevice) or device is None or ":" not in device:
        return device if isinstance(device, LoopbackDevice) else None
    if (found := loopback_at(device)) is None:
        raise DeviceUnavailable(
            f"{device} is no loopback device of this session. An RPC server serves one client at a time, so a process "
            "that held its memory would keep everyone else out. Limit the card on the machine that has it."
        )
    return found


def _gpu(name: str | None, engine: Engine) -> Device:
    cards = [device for device in engine.machine().gpus if device.backend != "RPC"]
    found = [device for device in cards if name in (None, device.name)]
    known = ", ".join(device.name for device in cards)
    if not found:
        what = f"There is no GPU {name!r}" if name else "There is no GPU whose memory could be held back"
        have = f"; llama.cpp sees {known}." if cards else "; llama.cpp sees none."
        raise DeviceUnavailable(f"{what}{have} Without one: lab.fit(..., vram='8GiB') plans for a card, and "
                                "limit_vram(..., device=lab.loopback_device()) limits a second device.")  # fmt: skip
    if len(found) > 1:
        raise InvalidSettings(f"There are several GPUs: {known}. Say which one: device={found[0].name!r}.")
    return found[0]


@contextmanager
def _within_a_limit(far: LoopbackDevice, n_bytes: int) -> Iterator[Limit]:
    far.limit_memory(n_bytes)
    try:
        yield Limit(far.endpoint, n_bytes)
    finally:
        if far.alive:
            far.limit_memory(None)


@contextmanager
def _held_back(name: str, n_bytes: int, engine: Engine) -> Iterator[Limit]:
    """A worker of its own that holds all but `n_bytes` of a card."""
    before = _gpu(name, engine)
    held = _to_hold(before, n_bytes)
    holder = LlamaEngine()
    try:
        try:
            holder.hold_memory(name, before.free_bytes - held)
        except EngineRefused as refused:
            raise DeviceUnavailable(f"{bytes_text(held)} of {name} could not be held back: {refused}") from refused
        missing = before.free_bytes - (_gpu(name, engine).free_bytes or 0)
        if missing < NOTICEABLE * held:
            raise DeviceUnavailable(
                f"{bytes_text(held)} of {name} were allocated, but only {bytes_text(missing)} fewer are free for "
                "others: its memory is the host's, or its driver makes room. Plan with lab.fit(..., vram=...) instead."
            )
        if abs(missing - held) > CLOSE_BYTES:
            raise DeviceUnavailable(
                f"While {bytes_text(held)} of {name} were taken, {bytes_text(missing)} went: another program uses the "
                "card. Close it and try again."
            )
        yield Limit(name, n_bytes, missing)
    finally:
        holder.close()


def _to_hold(card: Device, n_bytes: int) -> int:
    """How much to hold; refused where the card is too small, or too full."""
    if card.memory_bytes is None or card.free_bytes is None:
        raise DeviceUnavailable(f"{card.name} does not tell its memory, so none can be held back. Plan with vram=.")
    if n_bytes >= card.memory_bytes:
        raise InvalidSettings(
            f"{card.name} has {bytes_text(card.memory_bytes)}, which is not more than {bytes_text(n_bytes)}: there is "
            "nothing to hold back. Give a smaller limit, or do without."
        )
    held = card.memory_bytes - n_bytes
    if held > card.free_bytes:
        raise DeviceUnavailable(
            f"A limit of {bytes_text(n_bytes)} needs {bytes_text(held)} of {card.name} held back, but only "
            f"{bytes_text(card.free_bytes)} are free. Close what uses the card (nvidia-smi lists it)."
        )
    return held
