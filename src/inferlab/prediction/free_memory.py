"""The memory that plans are compared with: free bytes by memory.

A memory has the name of a plan's device, "gpu0", ... or "host", and holds that device. Or it is `SHARED`, which host
and GPU have together, and holds every device of a plan. `MemoryPlan` says what it leaves of them.

Of RAM that is given as a whole, `HostRam` takes off what is for the system and for llama-server's cache of prompts.
Of the host's weights in a mapped file only those count that the host computes with (`room_for`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from inferlab.engine.registry import limit_on
from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_DEVICE, Device, Machine, read_host
from inferlab.prediction.memory.plan import SHARED, MemoryBytes, MemoryPlan
from inferlab.units import GIB, MIB, bytes_from_text, bytes_text

BACKENDS = {"cuda": "CUDA", "rocm": "ROCm", "metal": "MTL", "vulkan": "Vulkan", "sycl": "SYCL"}
"""The backend of a card that is not here -> its name in ggml (GGML_CUDA_NAME, ggml-cuda.h, and the like)."""
DEFAULT_BACKEND = "cuda"

SYSTEM_BYTES = 4 * GIB
"""Of RAM that is given as a whole, for the system and other programs: what Windows 11 asks for in all."""
PROMPT_CACHE_BYTES = 8192 * MIB
"""What llama-server keeps of earlier prompts in RAM at most by itself (cache_ram_mib, common/common.h:634)."""

Size = int | str


@dataclass(frozen=True)
class HostRam:
    """The RAM of a machine, and what of it is not for the model.

    n_bytes             all of it
    system_bytes        for the system and other programs
    prompt_cache_bytes  set aside for llama-server's cache of prompts, which grows up to it with use
                        (tools/server/server-task.cpp:1711-1790); None: what is left, at most `PROMPT_CACHE_BYTES`
    """

    n_bytes: int
    system_bytes: int = SYSTEM_BYTES
    prompt_cache_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.n_bytes <= self.system_bytes:
            raise InvalidSettings(
                f"RAM of {bytes_text(self.n_bytes)} leaves nothing beside the {bytes_text(self.system_bytes)} for the "
                "system and other programs. Give all of the machine's RAM, or less for the system."
            )

    @property
    def usable_bytes(self) -> int:
        """Bytes that a plan may use."""
        return self.n_bytes - self.system_bytes - (self.prompt_cache_bytes or 0)


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


def free_bytes(
    machine: Machine, gpus: Sequence[Device], unified: Size | None = None, ram: HostRam | None = None
) -> dict[str, int | None]:
    """Free bytes by the device names of a plan: each of its devices, `gpus` in its order, and the host where known.

    The host has `ram` where that is given.

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
    host = ram.n_bytes if ram else host
    return free if free and host is None else {**free, HOST_DEVICE: host}


def usable_bytes(free: MemoryBytes, reserve_bytes: int, ram: HostRam | None = None) -> dict[str, int | None]:
    """Free memory minus the reserve, of each memory; of RAM that is given as a whole what it leaves.

    A memory that host and GPU share is no more than that RAM leaves, too.
    """
    usable = {memory: None if n is None else n - reserve_bytes for memory, n in free.items()}
    if ram and HOST_DEVICE in usable:
        usable[HOST_DEVICE] = ram.usable_bytes
    shared = usable.get(SHARED)
    if ram and shared is not None:
        usable[SHARED] = min(shared, ram.usable_bytes)
    return usable


def room_for(plan: MemoryPlan, usable: MemoryBytes) -> Mapping[str, int | None]:
    """The usable bytes for one plan: the system drops from RAM what the host does not read of a mapped file.

    llama.cpp counts the file from the host's first tensor to its last (`host_weights`); those of a card between them
    were read once.
    """
    spare = plan.never_read_bytes
    memory = next((memory for memory in (HOST_DEVICE, SHARED) if usable.get(memory) is not None), None)
    return {**usable, memory: (usable[memory] or 0) + spare} if spare and memory else usable


def ram_bytes(plan: MemoryPlan) -> int:
    """The most that a plan needs of RAM, without what the system may drop of a mapped file."""
    return plan.most_bytes(HOST_DEVICE) - plan.never_read_bytes


def compared_with(free: MemoryBytes, reserve_bytes: int, ram: HostRam | None = None) -> str:
    """What is free in each memory, and the reserve, in a sentence."""
    memories = {memory: n for memory, n in free.items() if not (ram and memory == HOST_DEVICE)}
    texts = ", ".join(f"{memory} {bytes_text(n)} free" for memory, n in memories.items())
    told = f"{texts}, of which {bytes_text(reserve_bytes)} stay in reserve" if texts else ""
    return "; ".join(filter(None, [told, _ram_text(ram)]))


def _ram_text(ram: HostRam | None) -> str:
    """The RAM and what of it is not for the model, in a clause; empty without any."""
    if ram is None:
        return ""
    cache = f" and {bytes_text(ram.prompt_cache_bytes)} for the cache of prompts" if ram.prompt_cache_bytes else ""
    return f"{bytes_text(ram.n_bytes)} of RAM, of which {bytes_text(ram.system_bytes)} stay for the system{cache}"


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
