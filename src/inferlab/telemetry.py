"""What the machine does while a model runs: readings of NVML and of the operating system, taken beside the work.

`Sampler` takes one `Sample` each interval in a thread of the caller's process, never in the engine's.
What cannot be read is None, never 0, and `Sampling.missing` says why; nothing here raises into a measurement.

What bounds the readings, whatever the interval:

    gpu_utilization_percent   the driver averages over 1/6 s to 1 s: it cannot resolve a token
    power_watts               about a 1 s average, unless the driver has the instantaneous field
    pcie_..._per_second       the driver counts for 20 ms while the caller waits: read in a thread of its own
    cpu_percent               the kernel counts in hundredths of a second: 10 % steps at 10 readings a second
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

from inferlab.errors import DeviceUnavailable, InvalidSettings
from inferlab.machine import Device, pci_id

DEFAULT_INTERVAL_SECONDS = 0.1
SHORTEST_CPU_SECONDS = 0.05
PATIENCE_SECONDS = 2.0

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
    """One reading; every field is None where unknown, a field of the GPUs holds one value (or None) for each.

    seconds                  when the reading began: the clock of the tokens' timestamps; in a `Run`, its time axis
    vram_used_bytes          memory in use on the whole GPU, by every process
    gpu_utilization_percent  share of the driver's last sample period with a kernel running
    power_watts              the board's power; `Sampling.power_source` says which of the driver's two
    sm_clock_mhz, memory_clock_mhz, temperature_celsius
    pcie_tx_bytes_per_second, pcie_rx_bytes_per_second   sent and received by the GPU, latest 20 ms window
    rss_bytes                the engine process's resident memory, mapped model included
    minor_faults, major_faults   page faults of that process since it started, without and with a disk read
    process_read_bytes       bytes fetched from disk for that process since it started
    machine_read_bytes       bytes read from all disks since the system started
    cpu_percent              how busy each logical processor was since the sample before, all processes
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

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Sample:
        """A sample from what JSON kept of it."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})


@dataclass(frozen=True)
class Sampling:
    """How samples were taken: the interval asked for, deadlines that passed unused, and why fields are unknown.

    gpus, power_source   for each GPU of the machine: its name, and `instant`, `average` or None
    gpu_ids              and its place on the PCI bus, because NVML counts in the order of the bus and CUDA in its own
    missing              field of `Sample` -> why some or all of its values are None
    """

    interval_seconds: float
    n_skipped: int = 0
    gpus: tuple[str | None, ...] = ()
    power_source: tuple[str | None, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
    gpu_ids: tuple[str | None, ...] = ()

    def column(self, device: Device) -> int | None:
        """Where a device's values stand in the tuples of a `Sample`; None where the driver does not show it."""
        return self.gpu_ids.index(device.id) if device.id and device.id in self.gpu_ids else None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Sampling:
        """How samples were taken, from what JSON kept of it."""
        return cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in data.items()})


def sampling_interval(telemetry: bool | float) -> float | None:
    """Seconds between samples that `telemetry` asks for: True is 0.1, False is None. Raises InvalidSettings."""
    if telemetry is False or telemetry is None:
        return None
    seconds = DEFAULT_INTERVAL_SECONDS if telemetry is True else telemetry
    if not isinstance(seconds, (int, float)) or not (0 < seconds < math.inf):
        raise InvalidSettings(f"telemetry={telemetry!r} must be True, False or the seconds between two samples.")
    return float(seconds)


class Deadlines:
    """Moments one interval apart that never drift: each is counted from the first, not from the reading before."""

    def __init__(self, first: float, interval_seconds: float) -> None:
        self.next = first + interval_seconds
        self.interval_seconds = interval_seconds
        self.n_skipped = 0

    def seconds_left(self, now: float) -> float:
        """Seconds from `now` to the next deadline; those that have passed are skipped and counted."""
        late = now - self.next
        if late > 0:
            passed = math.ceil(late / self.interval_seconds)
            self.n_skipped += passed
            self.next += passed * self.interval_seconds
        return self.next - now

    def met(self) -> None:
        """The deadline was used; the one after it comes next."""
        self.next += self.interval_seconds


class Sampler:
    """Takes samples of process `pid` and of the whole machine from `with` to the end of its block.

    The first sample is taken before the block begins, the last one after it, the others at their deadlines.
    Without `pid` the process's fields stay None. Raises InvalidSettings for an interval that is not positive.
    """

    def __init__(self, pid: int | None = None, interval_seconds: float = DEFAULT_INTERVAL_SECONDS) -> None:
        self.pid = pid
        self.interval_seconds = sampling_interval(interval_seconds) or DEFAULT_INTERVAL_SECONDS
        self._samples: list[Sample] = []
        self._missing: dict[str, str] = {}
        self._deadlines = Deadlines(0.0, self.interval_seconds)
        self._ended = threading.Event()

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The samples taken so far, oldest first; `seconds` is time.perf_counter()."""
        return tuple(self._samples)

    @property
    def sampling(self) -> Sampling:
        """How they were taken."""
        return Sampling(
            self.interval_seconds,
            self._deadlines.n_skipped,
            tuple(gpu.name for gpu in self._gpus.gpus),
            tuple(gpu.power_source for gpu in self._gpus.gpus),
            {**self._missing, **self._gpus.missing},
            tuple(gpu.id for gpu in self._gpus.gpus),
        )

    def __enter__(self) -> Sampler:
        self._host = host_reader(self.pid, self._missing)
        self._gpus = GpuReader()
        self._pcie = PcieReader(self._gpus, self.interval_seconds, self._ended)
        self._take()
        self._deadlines = Deadlines(self._samples[0].seconds, self.interval_seconds)
        self._thread = threading.Thread(target=self._keep_taking, name="inferlab-sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(PATIENCE_SECONDS)
        if not self._thread.is_alive():
            self._take()
        if self._pcie.joined(PATIENCE_SECONDS) and not self._thread.is_alive():
            self._gpus.close()

    def _keep_taking(self) -> None:
        while not self._ended.wait(self._deadlines.seconds_left(time.perf_counter())):
            self._deadlines.met()
            self._take()

    def _take(self) -> None:
        now = time.perf_counter()
        readings = {**self._host.read(now), **self._gpus.read(), **self._pcie.latest(now)}
        self._samples.append(Sample(now, **readings))


class HostReader:
    """The operating system's answers, through psutil; what it has none for goes to `missing`."""

    def __init__(self, pid: int | None, missing: dict[str, str]) -> None:
        import psutil

        self.psutil, self.pid, self.missing = psutil, pid, missing
        self._times_before: tuple[float, list[tuple[float, float]]] | None = None
        self._ended = False
        self.process = self._ask(PROCESS_FIELDS, lambda: psutil.Process(pid)) if pid else None
        if pid is None:
            self.missing.update(dict.fromkeys(PROCESS_FIELDS, "no process was named"))

    def read(self, now: float) -> dict[str, Any]:
        """The fields of one `Sample` that the operating system tells."""
        found: dict[str, Any] = {"cpu_percent": self._ask(("cpu_percent",), lambda: self._cpu(now))}
        found["machine_read_bytes"] = self._ask(("machine_read_bytes",), self._disks)
        if self.process is not None and not self._ended:
            found["rss_bytes"] = self._ask(("rss_bytes",), self._resident)
            found["process_read_bytes"] = self._ask(("process_read_bytes",), self._read_by_process)
            faults = self._ask(("minor_faults", "major_faults"), self._faults) or (None, None)
            found["minor_faults"], found["major_faults"] = faults
        return found

    def _ask(self, names: tuple[str, ...], question: Callable[[], Any]) -> Any:
        """The answer, or None and a reason; a process that ended is not asked again."""
        try:
            return question()
        except Exception as error:  # whatever a system raises here, the measurement goes on
            reason = self._reason(error)
            self._ended = self._ended or reason == PROCESS_ENDED
            self.missing.update(dict.fromkeys(PROCESS_FIELDS if reason == PROCESS_ENDED else names, reason))
        return None

    def _reason(self, error: Exception) -> str:
        if isinstance(error, (self.psutil.NoSuchProcess, ProcessLookupError)):
            return PROCESS_ENDED
        if isinstance(error, (self.psutil.AccessDenied, PermissionError)):
            return NOT_PERMITTED
        if isinstance(error, (AttributeError, NotImplementedError, FileNotFoundError)):
            return NOT_HERE
        return f"{type(error).__name__}: {error}"

    def _cpu(self, now: float) -> tuple[float, ...] | None:
        """Percent of each processor's time since the reading before; None when that was too short ago."""
        if self._times_before and now - self._times_before[0] < SHORTEST_CPU_SECONDS:
            return None
        before, self._times_before = self._times_before, (now, self._processor_times())
        if before is None or len(before[1]) != len(self._times_before[1]):
            return None
        return tuple(busy_percent(*pair) for pair in zip(before[1], self._times_before[1], strict=True))

    def _processor_times(self) -> list[tuple[float, float]]:
        """(time spent idle, time in all) of each processor since the system started."""
        return [(times.idle, sum(times)) for times in self.psutil.cpu_times(percpu=True)]

    def _disks(self) -> int:
        counters = self.psutil.disk_io_counters(nowrap=False)
        if counters is None:
            raise NotImplementedError
        return counters.read_bytes

    def _resident(self) -> int:
        resident = self.process.memory_info().rss
        if not resident:  # an ended process that nobody has waited for yet
            raise ProcessLookupError(self.pid)
        return resident

    def _read_by_process(self) -> int:
        return self.process.io_counters().read_bytes

    def _faults(self) -> tuple[int, int]:
        """Minor and major page faults, which macOS counts; Windows does not tell them apart."""
        memory = self.process.memory_info()
        return memory.pfaults - memory.pageins, memory.pageins


class LinuxReader(HostReader):
    """The same from /proc where psutil takes longer or tells less: a reading must cost the decode next to nothing."""

    STACKED = ("loop", "ram", "zram", "dm-", "md")  # devices on top of others, or of memory

    def __init__(self, pid: int | None, missing: dict[str, str]) -> None:
        super().__init__(pid, missing)
        disks = Path("/sys/block")
        names = [disk.name for disk in disks.iterdir()] if disks.is_dir() else []
        self._disk_names = {name.encode() for name in names if not name.startswith(self.STACKED)}

    def _processor_times(self) -> list[tuple[float, float]]:
        """From /proc/stat, in hundredths of a second; waiting for a disk is idle, guests are within user and nice."""
        rows = takewhile(lambda row: row.startswith(b"cpu"), read_proc("/proc/stat").splitlines()[1:])
        times = [[int(word) for word in row.split()[1:9]] for row in rows]
        return [(one[3] + one[4], sum(one)) for one in times]

    def _disks(self) -> int:
        """From /proc/diskstats, whose third column is the disk's name and sixth the sectors of 512 bytes read."""
        rows = (row.split() for row in read_proc("/proc/diskstats").splitlines())
        sectors = [int(row[5]) for row in rows if row[2] in self._disk_names]
        if not sectors:
            raise NotImplementedError
        return 512 * sum(sectors)

    def _faults(self) -> tuple[int, int]:
        """Fields 10 and 12 of /proc/<pid>/stat; the second, a name in brackets, may hold anything."""
        try:
            words = read_proc(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()
        except FileNotFoundError:
            raise ProcessLookupError(self.pid) from None
        return int(words[7]), int(words[9])


def host_reader(pid: int | None, missing: dict[str, str]) -> HostReader:
    """The reader of this operating system."""
    return (LinuxReader if sys.platform == "linux" else HostReader)(pid, missing)


def read_proc(path: str) -> bytes:
    """All of one of the kernel's files, without the buffers and the decoding that cost more than the reading."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def busy_percent(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Share of a processor's time not spent idle, 0 to 100, between two of its (idle, all) times."""
    idle, total = after[0] - before[0], after[1] - before[1]
    return min(100.0, max(0.0, 100 * (total - idle) / total)) if total > 0 else 0.0


class Gpu:
    """One NVML device; each field is asked until the driver's refusal is final, and `missing` says why."""

    def __init__(self, index: int, nvml: ModuleType) -> None:
        self.nvml = nvml
        self.missing: dict[str, str] = {}
        self._given_up: set[str] = set()
        handle = self.handle = self._ask("handle", lambda: nvml.nvmlDeviceGetHandleByIndex(index))
        self.power_source: str | None = None
        self._power_sources = [("instant", self._instant_watts), ("average", self._average_watts)]
        self._questions: dict[str, Callable[[], float]] = {
            "vram_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "gpu_utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "power_watts": self._watts,
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        }
        self._pcie_questions: dict[str, Callable[[], float]] = {
            "pcie_tx_bytes_per_second": lambda: self._pcie_rate(nvml.NVML_PCIE_UTIL_TX_BYTES),
            "pcie_rx_bytes_per_second": lambda: self._pcie_rate(nvml.NVML_PCIE_UTIL_RX_BYTES),
        }
        self.name: str | None = self._ask("name", lambda: _text(nvml.nvmlDeviceGetName(handle)))
        self.id: str | None = self._ask("id", lambda: pci_id(nvml.nvmlDeviceGetPciInfo(handle).busId))

    def read(self) -> dict[str, float | None]:
        """One reading of each field that answers at once."""
        return {name: self._ask(name, question) for name, question in self._questions.items()}

    def read_pcie(self) -> dict[str, float | None]:
        """Bytes per second in both directions; blocks for two windows of 20 ms."""
        return {name: self._ask(name, question) for name, question in self._pcie_questions.items()}

    @property
    def answers_pcie(self) -> bool:
        """Whether either direction may still be told."""
        return not self._given_up.issuperset(PCIE_FIELDS)

    def _ask(self, name: str, question: Callable[[], Any]) -> Any:
        """The answer, or None and a reason."""
        if name in self._given_up:
            return None
        try:
            return question()
        except Exception as error:  # whatever a driver's binding raises, the measurement goes on
            self._note(name, error)
        return None

    def _note(self, name: str, error: Exception) -> None:
        reason, final = nvml_reason(self.nvml, error)
        whole_gpu = reason == GPU_LOST or name == "handle"
        concerned = (set(GPU_FIELDS) - self._given_up) if whole_gpu else {name}
        self.missing.update(dict.fromkeys(concerned, reason))
        if final or whole_gpu:
            self._given_up.update(concerned)

    def _watts(self) -> float:
        """The instantaneous field if this driver has it, else its average; one of them for the whole sampling."""
        source, read = self._power_sources[0]
        try:
            watts = read()
        except Exception as error:
            if source == "average" or nvml_reason(self.nvml, error)[0] != NOT_REPORTED:
                raise
            self._power_sources.pop(0)
            return self._watts()
        self.power_source = source
        return watts

    def _instant_watts(self) -> float:
        told = self.nvml.nvmlDeviceGetFieldValues(self.handle, [self.nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        if told.nvmlReturn != self.nvml.NVML_SUCCESS:
            raise self.nvml.NVMLError(told.nvmlReturn)
        return told.value.uiVal / 1e3

    def _average_watts(self) -> float:
        return self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3

    def _pcie_rate(self, counter: int) -> float:
        return 1e3 * self.nvml.nvmlDeviceGetPcieThroughput(self.handle, counter)


class GpuReader:
    """Every NVIDIA GPU that the driver shows, through NVML; `nothing` says why there is none."""

    def __init__(self) -> None:
        self.gpus: tuple[Gpu, ...] = ()
        self.nothing: str | None = None
        self._nvml: ModuleType | None = None
        try:
            import pynvml
        except Exception:
            self.nothing = "the package nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            self._nvml = pynvml
            self.gpus = tuple(Gpu(index, pynvml) for index in range(pynvml.nvmlDeviceGetCount()))
        except Exception as error:  # a broken driver installation must not end a measurement
            self.nothing = nvml_reason(pynvml, error)[0]
        else:
            self.nothing = None if self.gpus else "no NVIDIA GPU"

    def read(self) -> dict[str, PerGpu]:
        """The fields of one `Sample` that NVML tells at once."""
        return per_gpu([gpu.read() for gpu in self.gpus])

    @property
    def missing(self) -> dict[str, str]:
        """Field -> why it is unknown, with the GPU's number where there are several."""
        if self.nothing:
            return dict.fromkeys(GPU_FIELDS, self.nothing)
        return {name: self._why(name) for name in GPU_FIELDS if self._why(name)}

    def close(self) -> None:
        """Let the driver go."""
        if self._nvml is not None:
            with suppress(Exception):  # nothing is left to be read
                self._nvml.nvmlShutdown()

    def _why(self, name: str) -> str:
        several = len(self.gpus) > 1
        reasons = {index: gpu.missing[name] for index, gpu in enumerate(self.gpus) if name in gpu.missing}
        return "; ".join(f"GPU {index}: {reason}" if several else reason for index, reason in reasons.items())


def vram_used_bytes(device: Device) -> int:
    """Bytes in use on a device now, by every process, as its driver counts them; found by its place on the PCI bus.

    CUDA's and NVML's numbers of a GPU may differ (CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES), so they are not compared.
    Raises DeviceUnavailable where the driver does not show the device, or does not tell.
    """
    reader = GpuReader()
    try:
        gpu = next((gpu for gpu in reader.gpus if gpu.id and gpu.id == device.id), None)
        used = gpu.read()["vram_used_bytes"] if gpu else None
        if used is None:
            shown = ", ".join(str(gpu.id) for gpu in reader.gpus)
            why = gpu.missing.get("vram_used_bytes") if gpu else reader.nothing or f"NVML shows {shown}"
            raise DeviceUnavailable(f"The driver tells no memory in use of {device.name} at {device.id}: {why}. Totals "
                                    "need an NVIDIA GPU that NVML shows.")  # fmt: skip
        return used
    finally:
        reader.close()


class PcieReader:
    """PCIe throughput in a thread of its own, because each question takes the driver's 20 ms."""

    def __init__(self, gpus: GpuReader, interval_seconds: float, ended: threading.Event) -> None:
        self._gpus, self._interval_seconds, self._ended = gpus.gpus, interval_seconds, ended
        self._latest: tuple[float, dict[str, PerGpu]] = (-math.inf, {})
        self._thread = threading.Thread(target=self._keep_reading, name="inferlab-pcie", daemon=True)
        self._thread.start()

    def latest(self, now: float) -> dict[str, PerGpu]:
        """The newest reading, unless it is older than three intervals (or 0.3 s)."""
        at, readings = self._latest
        return readings if now - at <= max(0.3, 3 * self._interval_seconds) else {}

    def joined(self, seconds: float) -> bool:
        """Whether the thread ended within `seconds`."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _keep_reading(self) -> None:
        deadlines = Deadlines(time.perf_counter(), self._interval_seconds)
        while any(gpu.answers_pcie for gpu in self._gpus):
            readings = per_gpu([gpu.read_pcie() for gpu in self._gpus])
            self._latest = (time.perf_counter(), readings)
            if self._ended.wait(deadlines.seconds_left(time.perf_counter())):
                return
            deadlines.met()


def per_gpu(readings: list[dict[str, float | None]]) -> dict[str, PerGpu]:
    """One tuple a field over the GPUs; None where no GPU told anything."""
    names = readings[0] if readings else ()
    columns = {name: tuple(one[name] for one in readings) for name in names}
    return {name: values if any(v is not None for v in values) else None for name, values in columns.items()}


def nvml_reason(nvml: ModuleType, error: Exception) -> tuple[str, bool]:
    """Why NVML did not answer, in words, and whether it never will."""
    if isinstance(error, AttributeError):
        return NOT_REPORTED, True  # an older nvidia-ml-py without that name
    if not isinstance(error, nvml.NVMLError):
        return f"{type(error).__name__}: {error}", True
    final = {
        nvml.NVML_ERROR_NOT_SUPPORTED: NOT_REPORTED,
        nvml.NVML_ERROR_INVALID_ARGUMENT: NOT_REPORTED,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: NOT_REPORTED,
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: NOT_REPORTED,
        nvml.NVML_ERROR_NO_PERMISSION: NOT_PERMITTED,
        nvml.NVML_ERROR_GPU_IS_LOST: GPU_LOST,
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver is installed",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver and its library differ in version",
    }
    return final.get(error.value, str(error)), error.value in final


def _text(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def known(samples: Iterable[Sample], name: str) -> bool:
    """Whether any sample knows the field `name`."""
    return any(getattr(sample, name) is not None for sample in samples)


def bytes_to_itself() -> int | None:
    """Bytes that this machine has sent to itself over the network since it started; None where it does not tell."""
    import psutil

    counters = psutil.net_io_counters(pernic=True)
    return next((counters[name].bytes_sent for name in ("lo", "lo0") if name in counters), None)
