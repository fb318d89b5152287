"""Limit a device's memory, so that a card of 24 GiB behaves like one of 8 GiB.

GPU              a separate worker process allocates buffers through ggml and holds them; the driver's context of that
                 process counts as held. The free memory is read again to verify that others have less.
loopback device  has no memory of its own; the kernel limits what its process may allocate (Linux)

Both limits end with the session that set them, even when it is killed.
Where measurements are queued (INFERLAB_QUEUE), a GPU's limit waits for its turn and keeps it to the end of the block,
so users of one card limit it one after the other.
Not limited: memory that a driver moves to RAM when a card is full (Windows), and GPUs that share the host's memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

from inferlab.engine import measurement_queue
from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_at
from inferlab.engine.protocol import Engine
from inferlab.engine.registry import limit_on, set_limit
from inferlab.engine.session import default_engine
from inferlab.errors import DeviceUnavailable, EngineRefused, InvalidSettings
from inferlab.machine import Device
from inferlab.units import MIB, bytes_from_text, bytes_text

MIN_EFFECT = 0.5  # share of the held bytes that others must lose, else holding had no effect
TOLERANCE_BYTES = 64 * MIB  # by which the loss may differ from the held bytes


@dataclass(frozen=True)
class Limit:
    """A limit on a device, given by name or endpoint; held_bytes is None where the kernel limits it."""

    device: str
    limited_to_bytes: int
    held_bytes: int | None = None


@contextmanager
def limit_vram(
    limit: int | str,
    device: str | LoopbackDevice | None = None,
    engine: Engine | None = None,
    holder: LlamaEngine | None = None,
) -> Iterator[Limit]:
    """Limit a device's memory while the block runs: `with lab.limit_vram("8GiB"): lab.measure(...)`.

    limit   bytes, or a text such as "8GiB" or "8 GB": as if the card had so much
    device  ggml's name of a GPU, or a loopback device or its endpoint (None: this machine's only GPU)
    engine  reads the free memory (None: the session's engine)
    holder  the engine whose worker holds a GPU's memory, closed at the end (None: a new one)

    `lab.this_machine()` shows the limit and `lab.fit` respects it. Raises InvalidSettings for a limit that the device
    cannot have, and DeviceUnavailable where too little is free, or where holding memory leaves as much to others.
    """
    n_bytes = bytes_from_text(limit) if isinstance(limit, str) else limit
    if isinstance(n_bytes, bool) or not isinstance(n_bytes, int) or n_bytes <= 0:
        raise InvalidSettings(f"limit={limit!r} leaves nothing to use. Give bytes, or a text such as '8GiB'.")
    engine = engine or default_engine()
    named = _named(device, engine)
    name = named.endpoint if isinstance(named, LoopbackDevice) else named.name
    if earlier := limit_on(name):
        raise InvalidSettings(f"{name} is limited to {bytes_text(earlier)} already. End that block first.")
    if isinstance(named, LoopbackDevice):
        limited = _limited_by_kernel(named, n_bytes)
    else:
        limited = _limited_by_holding(name, n_bytes, engine, holder or LlamaEngine())
    with measurement_queue.turn() if isinstance(named, Device) else nullcontext(), limited as what:
        set_limit(name, n_bytes)
        try:
            yield what
        finally:
            set_limit(name, None)


def _named(device: str | LoopbackDevice | None, engine: Engine) -> LoopbackDevice | Device:
    """The loopback device or the GPU that `device` names. Refuses another machine's RPC server."""
    if isinstance(device, LoopbackDevice):
        return device
    if device is None or ":" not in device:
        return _gpu(device, engine)
    if (loopback := loopback_at(device)) is None:
        raise DeviceUnavailable(
            f"{device} is no loopback device of this session. An RPC server serves one client at a time, so a process "
            "that held its memory would block every other client. Limit the card on the machine that has it."
        )
    return loopback


def _gpu(name: str | None, engine: Engine) -> Device:
    cards = [device for device in engine.machine().gpus if device.backend != "RPC"]
    meant = [device for device in cards if name in (None, device.name)]
    known = ", ".join(device.name for device in cards)
    if not meant:
        what = f"There is no GPU {name!r}" if name else "There is no GPU whose memory could be limited"
        have = f"; llama.cpp sees {known}." if cards else "; llama.cpp sees none."
        raise DeviceUnavailable(
            f"{what}{have} Without one: lab.fit(..., vram='8GiB') plans for a card, and "
            "limit_vram(..., device=lab.loopback_device()) limits a second device."
        )
    if len(meant) > 1:
        raise InvalidSettings(f"There are several GPUs: {known}. Say which one: device={meant[0].name!r}.")
    return meant[0]


@contextmanager
def _limited_by_kernel(device: LoopbackDevice, n_bytes: int) -> Iterator[Limit]:
    device.limit_memory(n_bytes)
    try:
        yield Limit(device.endpoint, n_bytes)
    finally:
        if device.alive:
            device.limit_memory(None)


@contextmanager
def _limited_by_holding(name: str, n_bytes: int, engine: Engine, holder: LlamaEngine) -> Iterator[Limit]:
    """Let the holder's worker allocate all but `n_bytes` of a card, and verify that others have so much less."""
    held, free = _bytes_to_hold(_gpu(name, engine), n_bytes)
    try:
        try:
            holder.hold_memory(name, free - held)
        except EngineRefused as refused:
            raise DeviceUnavailable(f"{bytes_text(held)} of {name} could not be allocated: {refused}") from refused
        missing = free - (_gpu(name, engine).free_bytes or 0)
        if missing < MIN_EFFECT * held:
            raise DeviceUnavailable(
                f"{bytes_text(held)} of {name} were allocated, but only {bytes_text(missing)} fewer are free for "
                "others: its memory is the host's, or its driver moves memory to RAM, or tells only the card's size "
                "(Vulkan without VK_EXT_memory_budget). Plan with lab.fit(..., vram=...)."
            )
        if abs(missing - held) > TOLERANCE_BYTES:
            raise DeviceUnavailable(
                f"{bytes_text(held)} of {name} were allocated, but {bytes_text(missing)} fewer are free: another "
                "program uses the card. Close it and try again."
            )
        yield Limit(name, n_bytes, missing)
    finally:
        holder.close()


def _bytes_to_hold(card: Device, n_bytes: int) -> tuple[int, int]:
    """(bytes of the card above the limit, its free bytes); refused where the card is too small, or too full."""
    if card.memory_bytes is None or card.free_bytes is None:
        raise DeviceUnavailable(f"{card.name} does not report its memory, so it cannot be limited. Plan with vram=.")
    if n_bytes >= card.memory_bytes:
        raise InvalidSettings(
            f"{card.name} has {bytes_text(card.memory_bytes)}, which is not more than {bytes_text(n_bytes)}: the "
            "limit would change nothing. Give a smaller limit, or none."
        )
    held = card.memory_bytes - n_bytes
    if held > card.free_bytes:
        raise DeviceUnavailable(
            f"A limit of {bytes_text(n_bytes)} needs {bytes_text(held)} of {card.name} free, but only "
            f"{bytes_text(card.free_bytes)} are free. Close what uses the card (nvidia-smi lists it)."
        )
    return held, card.free_bytes
