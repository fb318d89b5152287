"""The memory that plans are compared with: free bytes by memory.

A memory has the name of a plan's device, "gpu0", ... or "host", and holds that device. Or it is `SHARED`, which host
and GPU have together, and holds every device of a plan. `MemoryPlan` says what it leaves of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from inferlab.engine.registry import limit_on
from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_DEVICE, Device, Machine, read_host
from inferlab.prediction.memory.plan import SHARED, MemoryBytes
from inferlab.units import bytes_from_text, bytes_text

BACKENDS = {"cuda": "CUDA", "rocm": "ROCm", "metal": "MTL", "vulkan": "Vulkan", "sycl": "SYCL"}
"""The backend of a card that is not here -> its name in ggml (GGML_CUDA_NAME, ggml-cuda.h, and the like)."""
DEFAULT_BACKEND = "cuda"

Size = int | str


# --- machines and their free memory -------------------------------------------------------------


def machine_for(
    machine: Machine | None = None,
    vram: Size | Sequence[Size] | None = None,
    unified: Size | None = None,
    backend: str = DEFAULT_BACKEND,
) -> Machine:
    """The machine to plan for: as given, or this one; with `vram` or `unified` one with such cards and unknown RAM.

    vram     free memory of a card, in bytes or as "8GiB", or one size for each of several cards
    unified  memory that host and GPU share
    backend  of those cards, one of `BACKENDS`
    Raises InvalidSettings.
    """
    if vram is not None and unified is not None:
        raise InvalidSettings(
            f"vram={vram!r} and unified={unified!r} exclude each other: memory is a card's own, or shared with the "
            "host. Give one of them."
        )
    if backend not in BACKENDS:
        raise InvalidSettings(f"backend={backend!r} is not one of {', '.join(BACKENDS)}.")
    if vram is None and unified is None:
        if backend != DEFAULT_BACKEND:
            raise InvalidSettings(f"backend={backend!r} is for a card that is not here. Give its vram, or unified.")
        return machine or _this_machine()
    name, sizes = ("unified", unified) if vram is None else ("vram", vram)
    sizes = [sizes] if isinstance(sizes, (int, float, str)) else sizes or ()
    n_bytes = [_card_bytes(size, name) for size in sizes]
    if not n_bytes:
        raise InvalidSettings(f"vram={vram!r} leaves no card to plan for. Give its bytes, or a text such as '8GiB'.")
    host, ggml_name = machine or read_host(), BACKENDS[backend]
    cards = (
        Device(f"{ggml_name}{i}", f"a card with {bytes_text(n)}", "gpu", n, n, ggml_name) for i, n in enumerate(n_bytes)
    )
    return replace(host, ram_bytes=None, devices=tuple(cards))


def size_in_bytes(size: Size) -> int:
    """A size in bytes, given so or as a text. Raises InvalidSettings for a text that is no size."""
    return bytes_from_text(size) if isinstance(size, str) else size


def free_bytes(machine: Machine, gpus: Sequence[Device], unified: Size | None = None) -> dict[str, int | None]:
    """Free bytes by the device names of a plan: each of its devices, `gpus` in its order, and the host where known.

    With `unified` there is one memory, `SHARED`. An RPC device has its limit of this session, else the bytes that it
    reports, else None. Raises InvalidSettings for RPC devices in use beside unified memory: they are no part of it.
    """
    if unified is not None:
        if any(device.backend == "RPC" for device in gpus):
            raise InvalidSettings("unified is the memory of one machine; plan RPC servers without it, or with vram.")
        return {SHARED: size_in_bytes(unified)}
    free = {f"gpu{i}": _free_bytes_of(device, machine) for i, device in enumerate(gpus)}
    cpu = next((d for d in machine.devices if d.kind == "cpu"), None)
    host = _free_or_total(cpu) if cpu else None
    host = machine.ram_bytes if host is None else host
    return free if free and host is None else {**free, HOST_DEVICE: host}


def usable_bytes(free: MemoryBytes, reserve_bytes: int) -> dict[str, int | None]:
    """Free memory minus the reserve, of each memory."""
    return {memory: None if n is None else n - reserve_bytes for memory, n in free.items()}


def compared_with(free: MemoryBytes, reserve_bytes: int) -> str:
    """What is free in each memory, and the reserve, in a sentence."""
    texts = ", ".join(f"{memory} {bytes_text(n)} free" for memory, n in free.items())
    return f"{texts}, of which {bytes_text(reserve_bytes)} stay in reserve"


# --- parts ----------------------------------------------------------------------------------------


def _this_machine() -> Machine:
    from inferlab.engine.session import this_machine

    return this_machine()


def _card_bytes(size: Size, name: str) -> int:
    n_bytes = size_in_bytes(size)
    if n_bytes <= 0:
        raise InvalidSettings(f"{name}={size!r} leaves no card to plan for. Give its bytes, or a text such as '8GiB'.")
    return n_bytes


def _free_bytes_of(device: Device, machine: Machine) -> int | None:
    """Free bytes of a planned device; an RPC device is found by its name, because a plan knows only its endpoint."""
    if device.backend != "RPC":
        return _free_or_total(device)
    reported = next((_free_or_total(listed) for listed in machine.devices if listed.name == device.name), None)
    return limit_on(device.description) or reported


def _free_or_total(device: Device) -> int | None:
    return device.free_bytes if device.free_bytes is not None else device.memory_bytes
