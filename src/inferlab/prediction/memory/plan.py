"""Records of a memory plan: bytes on each device and in each layer, and the method that computed them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from inferlab.machine import HOST_DEVICE
from inferlab.model.gguf import ModelCard
from inferlab.prediction.memory.host_weights import HostWeights
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import bytes_text

CLOSED_FORM, SIMULATED, BOUND, PARTIAL = "closed form", "oracle", "bound", "partial"
SHARED = "shared"
"""The memory that host and GPU have together; every other memory has the name of a device."""
NAMES = {"weights": "weights", "kv_cache": "KV cache", "compute": "compute buffer", "output": "output"}

MemoryBytes = Mapping[str, int | None]
"""Bytes that may be used, by memory; None where they are not known."""


def sum_of(numbers: Iterable[int | None]) -> int | None:
    """Their sum; None where one of them is unknown."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


@dataclass(frozen=True)
class DeviceBytes:
    """Bytes that one device holds: of weights, KV cache, compute buffer and output buffer; None where unknown."""

    weights_bytes: int | None = 0
    kv_cache_bytes: int | None = 0
    compute_bytes: int | None = 0
    output_bytes: int | None = 0

    @property
    def parts(self) -> dict[str, int | None]:
        """The four kinds under the names that `Run.bytes_on` uses."""
        return {
            "weights": self.weights_bytes,
            "kv_cache": self.kv_cache_bytes,
            "compute": self.compute_bytes,
            "output": self.output_bytes,
        }

    @property
    def total_bytes(self) -> int | None:
        """Their sum; None as long as one of them is unknown."""
        return sum_of(self.parts.values())


@dataclass(frozen=True)
class LayerBytes:
    """One layer: the devices and bytes of its weights and of its share of the KV cache.

    name           "input" (the token embedding), "block 0" ..., "output"
    weights_bytes  its tensors on its device, each once; a device may hold a little more, see `host_weights`
    moved_bytes    of its tensors that an override put elsewhere, by device
    shared_weights, shared_cache  bytes of each device where the devices share every matrix (split_mode "tensor"), of
                   which `device` is the first; their sums are weights_bytes and kv_cache_bytes
    """

    name: str
    device: str
    weights_bytes: int
    kv_cache_device: str
    kv_cache_bytes: int
    index: int | None = None
    moved_bytes: dict[str, int] = field(default_factory=dict)
    shared_weights: dict[str, int] = field(default_factory=dict)
    shared_cache: dict[str, int] = field(default_factory=dict)

    @property
    def weights_by_device(self) -> dict[str, int]:
        """Bytes of its weights on each device that has some."""
        return (self.shared_weights or {self.device: self.weights_bytes}) | self.moved_bytes

    @property
    def cache_by_device(self) -> dict[str, int]:
        """Bytes of its cache on each device that has some."""
        return self.shared_cache or {self.kv_cache_device: self.kv_cache_bytes}

    def weights_on(self, device: str) -> int:
        """Bytes of its weights that one device has."""
        return self.weights_by_device.get(device, 0)


@dataclass(frozen=True)
class MemoryPlan(Shown):
    """What a model takes under given settings, on each device, before anything is loaded.

    method         "closed form", "oracle" (llama.cpp's own simulation), "bound", or "partial" (compute unknown)
    devices        "host" first, then "gpu0", ... in llama.cpp's order
    host_weights   the host's weights by kind of processor: in place, and repacked; one entry where the machine tells
                   its kind, else every kind, and `devices` has the weights as no processor repacks them
    layers         the input, each block, the output
    moved          device of each tensor that is elsewhere than its layer, by an override or since its device refuses it
    compute_range  for a bound: least and most compute bytes of a device whose compute_bytes is None; a device without
                   either has a compute buffer of unknown size
    notes          what the reader should know, such as second copies of repacked weights
    settings       as planned: n_ctx filled in and rounded as llama.cpp rounds it
    planned_for    its devices and its processor, in words; another machine may need other bytes
    aborts         whether llama.cpp ends such a load, however much memory is free; the first note says why
    """

    model: ModelCard
    settings: Settings
    method: str
    devices: dict[str, DeviceBytes]
    layers: tuple[LayerBytes, ...] = ()
    notes: tuple[str, ...] = ()
    compute_range: dict[str, tuple[int, int]] = field(default_factory=dict)
    host_weights: dict[str, HostWeights] = field(default_factory=dict)
    moved: dict[str, str] = field(default_factory=dict)
    aborts: bool = False
    planned_for: str = ""

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """Bytes on each device, by kind, and the notes."""
        total = f"{bytes_text(self.total_bytes)} in all ({self.method})"
        title = f"{self.model.name} with n_ctx={self.settings.n_ctx}: {total}"
        place = [("planned for", self.planned_for)] if self.planned_for else []
        return title, [*self.device_rows, *place, *(("note", note) for note in self.notes)]

    @property
    def device_rows(self) -> list[tuple[str, str]]:
        """The name of each device, and its bytes of each kind as text; bytes inside a bound from least to most."""
        return [(name, self._device_text(name)) for name in self.devices]

    def _device_text(self, device: str) -> str:
        least, most = self.compute_range.get(device, (None, None))
        bound = f"{bytes_text(least)} to {bytes_text(most)}"
        texts = {kind: bytes_text(n) for kind, n in self.devices[device].parts.items()}
        texts |= {"compute": bound} if least is not None else {}
        return ", ".join(f"{kind.replace('_', ' ')} {text}" for kind, text in texts.items())

    @cached_property
    def layer_devices(self) -> tuple[str, ...]:
        """The device of each block and, last, of the output."""
        return tuple(row.device for row in self.layers[1:])

    # --- what it needs in a memory -----------------------------------------------------------

    def devices_in(self, memory: str) -> tuple[str, ...]:
        """The devices whose bytes lie in a memory."""
        return tuple(self.devices) if memory == SHARED else (memory,) if memory in self.devices else ()

    def least_bytes(self, memory: str) -> int:
        """Bytes that a memory, or a device, needs in any case."""
        return sum(self._total(device, 0) for device in self.devices_in(memory))

    def most_bytes(self, memory: str) -> int:
        """Bytes that suffice, without what is left open; equal to `least_bytes` unless the plan is a bound."""
        return sum(self._total(device, 1) for device in self.devices_in(memory))

    def is_open(self, memory: str) -> bool:
        """Whether the plan leaves bytes in the memory unknown, without a range for them."""
        return any(
            None in self.devices[device].parts.values() and device not in self.compute_range
            for device in self.devices_in(memory)
        )

    def fits(self, usable: MemoryBytes) -> str:
        """ "yes" if every memory is large enough for the most that is needed, "no" if one is too small for the least.

        "unsure" otherwise: the usable bytes lie inside a bound, or memory or a compute buffer is not known.
        """
        if self.aborts or any(n is not None and self.least_bytes(memory) > n for memory, n in usable.items()):
            return "no"
        fits = all(n is not None and self.most_bytes(memory) <= n for memory, n in usable.items())
        return "yes" if fits and not any(map(self.is_open, usable)) else "unsure"

    def fullest_memory(self, usable: MemoryBytes) -> str:
        """The memory of which the most that may be needed leaves least; the first where no memory is known."""
        known = {memory: n for memory, n in usable.items() if n is not None}
        return min(known, key=lambda memory: known[memory] - self.most_bytes(memory)) if known else next(iter(usable))

    def margin(self, usable: MemoryBytes) -> int | None:
        """Bytes left in the fullest memory by the most that may be needed; None where free memory is unknown.

        A compute buffer of unknown size is not in it.
        """
        memory = self.fullest_memory(usable)
        free = None if None in usable.values() else usable[memory]
        return None if free is None else free - self.most_bytes(memory)

    def shortfall(self, usable: MemoryBytes) -> str:
        """The bytes missing in the fullest memory, or why it is not known whether they are, in a clause."""
        if self.aborts:
            return "llama.cpp aborts this load, however much memory is free"
        margin = self.margin(usable)
        if margin is None:
            unknown = next(memory for memory, n in usable.items() if n is None)
            return f"{unknown} does not tell how much memory is free"
        memory = self.fullest_memory(usable)
        at_most = "up to " if any(device in self.compute_range for device in self.devices_in(memory)) else ""
        contents = ", ".join(self._contents(memory))
        if margin >= 0:
            return f"{memory} would hold {contents}{', and ' if contents else ''}a compute buffer of unknown size"
        return f"{memory} would hold {contents}, {at_most}{bytes_text(-margin)} too much"

    def _contents(self, memory: str) -> list[str]:
        """The bytes of each kind in a memory, in words; for a bound the most that the compute buffers may need."""
        devices = self.devices_in(memory)
        held = {kind: sum(self.devices[device].parts[kind] or 0 for device in devices) for kind in NAMES}
        held["weights"] -= self.never_read_bytes if HOST_DEVICE in devices else 0
        texts = [f"{bytes_text(n)} of {NAMES[kind]}" for kind, n in held.items() if n]
        bounds = [self.compute_range[device][1] for device in devices if device in self.compute_range]
        return [*texts, *(f"up to {bytes_text(sum(bounds))} of {NAMES['compute']}",) * bool(bounds)]

    @property
    def never_read_bytes(self) -> int:
        """Bytes of a mapped file that llama.cpp counts for the host and nothing reads once the model is loaded."""
        if not any(held.mapped for held in self.host_weights.values()):
            return 0
        read = sum(row.weights_on(HOST_DEVICE) for row in self.layers)
        return max(0, (self.devices[HOST_DEVICE].weights_bytes or 0) - read)

    def bytes_of(self, kind: str) -> int | None:
        """Bytes of one kind over all devices: weights, kv_cache, compute or output; None if one is unknown."""
        return sum_of(device.parts[kind] for device in self.devices.values())

    @property
    def total_bytes(self) -> int | None:
        """Bytes on all devices together; None as long as some are unknown."""
        return sum_of(device.total_bytes for device in self.devices.values())

    def _total(self, device: str, end: int) -> int:
        known = sum(filter(None, self.devices[device].parts.values()))
        return known + self.compute_range.get(device, (0, 0))[end]
