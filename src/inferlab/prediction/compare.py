"""Compares a memory plan with the buffers of a run and with the bytes that a driver counted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inferlab.engine.log import Buffer
from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_DEVICE, on_host
from inferlab.measurement.memory import Occupied
from inferlab.measurement.run import Run
from inferlab.prediction.memory import MemoryPlan
from inferlab.units import MIB, bytes_text

REPACKED = re.compile(r"AMX|CPU_REPACK|CPU_KLEIDIAI|CPU_RISCV|CPU_HBM")  # ggml-cpu.cpp: its extra buffer types
MAPPED = "CPU_Mapped"
BUFFER_SUFFIX = re.compile(r"_Mapped$|_Private$")
AGREEMENT_SHARE, AGREEMENT_BYTES = 0.03, 150 * MIB
ENDPOINT = re.compile(r"RPC\d*\[(.+)\]")


@dataclass(frozen=True)
class Gap:
    """One kind of bytes on one device: planned, and measured from llama.cpp's log, exact to 0.01 MiB.

    predicted_range  least and most, where the plan is a bound and predicted_bytes None
    repacked_bytes   second, repacked copies of host weights; not part of measured_bytes
    """

    device: str
    kind: str
    predicted_bytes: int | None
    measured_bytes: int
    predicted_range: tuple[int, int] | None = None
    repacked_bytes: int = 0

    @property
    def difference_bytes(self) -> int | None:
        """Measured minus predicted; None where the plan has a range."""
        return None if self.predicted_bytes is None else self.measured_bytes - self.predicted_bytes

    @property
    def note(self) -> str | None:
        """An explanation of repacked host weights; None where nothing is repacked."""
        if not self.repacked_bytes:
            return None
        return (
            f"llama.cpp maps the file from the first to the last tensor that it uses in place, as planned, and keeps "
            f"repacked copies of the others beside it: {bytes_text(self.repacked_bytes)}, counted apart."
        )


@dataclass(frozen=True)
class Total:
    """All bytes of a model on one device: the plan plus the device's context, and what its driver counted.

    planned_range  least and most bytes of the plan; equal unless the plan is a bound
    """

    device: str
    planned_range: tuple[int, int]
    context_bytes: int
    measured_bytes: int

    @property
    def difference_bytes(self) -> int:
        """Measured minus predicted; 0 inside the range of a bound."""
        least, most = (end + self.context_bytes for end in self.planned_range)
        return self.measured_bytes - min(max(self.measured_bytes, least), most)

    @property
    def agrees(self) -> bool:
        """Whether the difference is at most 3 % of the measured bytes, or at most 150 MiB."""
        return abs(self.difference_bytes) <= max(AGREEMENT_SHARE * self.measured_bytes, AGREEMENT_BYTES)


def compare_total(plan: MemoryPlan, occupied: Occupied, context_bytes: int) -> Total:
    """A plan's bytes on one device plus the device's context, and the growth that its driver counted.

    Raises InvalidSettings where the plan has no such device: it was made for another machine, or other settings.
    """
    if occupied.place not in plan.devices:
        raise InvalidSettings(
            f"The plan has {', '.join(plan.devices)}, but {occupied.place} was measured. Plan with "
            "the same settings and machine=lab.this_machine()."
        )
    ends = plan.least_bytes(occupied.place), plan.most_bytes(occupied.place)
    return Total(occupied.device, ends, context_bytes, occupied.grown_bytes)


def compare(plan: MemoryPlan, run: Run) -> tuple[Gap, ...]:
    """Planned and measured bytes of every kind on every device, in the plan's order, without those that are both 0.

    The run needs `buffers`. Devices are matched by llama.cpp's order: RPC servers first.
    """
    measured = measured_bytes(run.buffers, run.settings.rpc_servers)
    places = [(device, kind) for device, planned in plan.devices.items() for kind in planned.parts]
    places += [place for place in measured if place not in places]
    gaps = [_gap(plan, run, place, measured.get(place, 0)) for place in places]
    return tuple(gap for gap in gaps if gap.predicted_bytes != 0 or gap.measured_bytes)


def measured_bytes(buffers: Iterable[Buffer], rpc_servers: Sequence[str] = ()) -> dict[tuple[str, str], int]:
    """Bytes by ("host" or "gpu0" ..., kind), summed over the buffers of llama.cpp's backends.

    Repacked copies of weights that are mapped as well are left out: see `repacked_bytes`.
    """
    buffers = tuple(buffers)
    second_copies = set(_repacked(buffers))
    buffers = tuple(b for b in buffers if b not in second_copies)
    names = {_device_of_buffer(b.device) for b in buffers if not on_host(b.device)}
    devices = sorted(names, key=lambda name: _device_order(name, list(rpc_servers)))
    totals: dict[tuple[str, str], int] = {}
    for b in buffers:
        device = HOST_DEVICE if on_host(b.device) else f"gpu{devices.index(_device_of_buffer(b.device))}"
        totals[device, b.kind] = totals.get((device, b.kind), 0) + b.n_bytes
    return totals


def repacked_bytes(buffers: Iterable[Buffer]) -> int:
    """Bytes of weights that llama.cpp keeps as repacked second copies beside the mapped file."""
    return sum(b.n_bytes for b in _repacked(tuple(buffers)))


def _repacked(buffers: tuple[Buffer, ...]) -> list[Buffer]:
    mapped = any(b.device == MAPPED for b in buffers)
    return [b for b in buffers if mapped and b.kind == "weights" and REPACKED.match(b.device)]


def _gap(plan: MemoryPlan, run: Run, place: tuple[str, str], measured: int) -> Gap:
    ends = plan.compute_range.get(place[0]) if place[1] == "compute" else None
    if place == (HOST_DEVICE, "weights"):
        return Gap(*place, _planned_host_weights(plan, run), measured, ends, repacked_bytes(run.buffers))
    return Gap(*place, _planned(plan, *place), measured, ends)


def _planned(plan: MemoryPlan, device: str, kind: str) -> int | None:
    planned = plan.devices.get(device)
    return planned.parts[kind] if planned else 0


def _planned_host_weights(plan: MemoryPlan, run: Run) -> int | None:
    """The plan's host weights; where it leaves the processor open, those of the kind that the log's copies fit best."""
    if len(plan.host_weights) < 2:
        return _planned(plan, HOST_DEVICE, "weights")
    copied = sum(b.n_bytes for b in run.buffers if b.kind == "weights" and REPACKED.match(b.device))
    return min(plan.host_weights.values(), key=lambda held: abs(held.repacked_bytes - copied)).n_bytes


def _device_of_buffer(device: str) -> str:
    """The device of a buffer: `MTL0_Mapped` -> `MTL0`."""
    return BUFFER_SUFFIX.sub("", device)


def _device_order(device: str, rpc_servers: list[str]) -> tuple[int, str]:
    """Sort key of llama.cpp's order: RPC devices first, in the order of their servers (src/llama.cpp:276)."""
    endpoint = ENDPOINT.match(device)
    if endpoint and endpoint[1] in rpc_servers:
        return rpc_servers.index(endpoint[1]), device
    return len(rpc_servers) + (not endpoint), device
