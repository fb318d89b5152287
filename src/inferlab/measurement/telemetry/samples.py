"""Types of telemetry: a `Sample` with its fields, None if unknown, and `Sampling`, how samples were taken."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from inferlab.errors import InvalidSettings
from inferlab.machine import Device

DEFAULT_INTERVAL_SECONDS = 0.1
NOT_REPORTED = "not reported by this driver"
NOT_PERMITTED = "not permitted for this user"
NOT_HERE = "not reported by this system"
GPU_LOST = "the GPU was lost"
PROCESS_ENDED = "the process ended"
PCIE_FIELDS = ("pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second")
GPU_FIELDS = (
    "vram_used_bytes",
    "gpu_utilization_percent",
    "power_watts",
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_celsius",
    *PCIE_FIELDS,
)
PROCESS_FIELDS = ("rss_bytes", "minor_faults", "major_faults", "process_read_bytes")
PerGpu = tuple[float | None, ...] | None


@dataclass(frozen=True)
class Sample:
    """One reading; a field is None if unknown; a field of the GPUs has one value (or None) for each GPU.

    seconds                  when the reading began: on the clock of the tokens' timestamps, or on a `Run`'s time axis
    vram_used_bytes          memory in use on the whole GPU, by every process
    gpu_utilization_percent  share of the driver's last sample period with a kernel running
    power_watts              the board's power; `Sampling.power_source` says which of the driver's two values
    sm_clock_mhz, memory_clock_mhz, temperature_celsius
    pcie_tx_bytes_per_second, pcie_rx_bytes_per_second   sent and received by the GPU, latest 20 ms window
    rss_bytes                the engine process's resident memory, mapped model included
    minor_faults, major_faults   page faults of that process since it started, without and with a disk read
    process_read_bytes       bytes fetched from disk for that process since it started
    machine_read_bytes       bytes read from all disks since the system started
    cpu_percent              busy share of each logical processor since the sample before, all processes
    """

    seconds: float
    vram_used_bytes: PerGpu = None
    gpu_utilization_percent: PerGpu = None
    power_watts: PerGpu = None
    sm_clock_mhz: PerGpu = None
    memory_clock_mhz: PerGpu = None
    temperature_celsius: PerGpu = None
    pcie_tx_bytes_per_second: PerGpu = None
    pcie_rx_bytes_per_second: PerGpu = None
    rss_bytes: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    process_read_bytes: int | None = None
    machine_read_bytes: int | None = None
    cpu_percent: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Sampling:
    """How samples were taken: the requested interval, the number of skipped deadlines, and why fields are unknown.

    gpus, power_source   for each GPU of the machine: its name, and `instant`, `average` or None
    gpu_ids              its PCI bus id, because NVML's order of GPUs may differ from CUDA's
    missing              field of `Sample` -> why some or all of its values are None
    """

    interval_seconds: float
    n_skipped: int = 0
    gpus: tuple[str | None, ...] = ()
    power_source: tuple[str | None, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    gpu_ids: tuple[str | None, ...] = ()

    def column(self, device: Device) -> int | None:
        """Index of a device's values in the tuples of a `Sample`; None if the driver does not show the device."""
        return self.gpu_ids.index(device.id) if device.id and device.id in self.gpu_ids else None


def sampling_interval(telemetry: bool | float) -> float | None:
    """Seconds between samples for `telemetry`: True is 0.1, False is None. Raises InvalidSettings."""
    if telemetry is False or telemetry is None:
        return None
    seconds = DEFAULT_INTERVAL_SECONDS if telemetry is True else telemetry
    if not isinstance(seconds, (int, float)) or not (0 < seconds < math.inf):
        raise InvalidSettings(f"telemetry={telemetry!r} must be True, False or the seconds between two samples.")
    return float(seconds)


class Deadlines:
    """Times one interval apart, without drift: each is counted from the first, not from the reading before."""

    def __init__(self, first: float, interval_seconds: float) -> None:
        self.next = first + interval_seconds
        self.interval_seconds = interval_seconds
        self.n_skipped = 0

    def seconds_left(self, now: float) -> float:
        """Seconds from `now` to the next deadline; deadlines that have passed are skipped and counted."""
        late = now - self.next
        if late > 0:
            passed = math.ceil(late / self.interval_seconds)
            self.n_skipped += passed
            self.next += passed * self.interval_seconds
        return self.next - now

    def met(self) -> None:
        """Advance to the deadline after this one."""
        self.next += self.interval_seconds
