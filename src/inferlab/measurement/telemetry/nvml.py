"""Telemetry of NVIDIA GPUs through NVML; a field that the driver refuses is None, with a reason."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

from inferlab.errors import DeviceUnavailable
from inferlab.machine import Device, pci_id
from inferlab.measurement.telemetry.samples import (
    GPU_FIELDS,
    GPU_LOST,
    NOT_PERMITTED,
    NOT_REPORTED,
    PCIE_FIELDS,
    Deadlines,
    PerGpu,
)


class Gpu:
    """One NVML device; a field that the driver refuses for good is not read again, and `missing` says why."""

    def __init__(self, index: int, nvml: ModuleType) -> None:
        self.nvml = nvml
        self.missing: dict[str, str] = {}
        self._given_up: set[str] = set()
        handle = self.handle = self._try("handle", lambda: nvml.nvmlDeviceGetHandleByIndex(index))
        self.power_source: str | None = None
        self._power_sources = [("instant", self._instant_watts), ("average", self._average_watts)]
        self._reads: dict[str, Callable[[], float]] = {
            "vram_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "gpu_utilization_percent": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "power_watts": self._watts,
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
            "memory_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
            "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        }
        self._pcie_reads: dict[str, Callable[[], float]] = {
            "pcie_tx_bytes_per_second": lambda: self._pcie_rate(nvml.NVML_PCIE_UTIL_TX_BYTES),
            "pcie_rx_bytes_per_second": lambda: self._pcie_rate(nvml.NVML_PCIE_UTIL_RX_BYTES),
        }
        self.name: str | None = self._try("name", lambda: _text(nvml.nvmlDeviceGetName(handle)))
        self.id: str | None = self._try("id", lambda: pci_id(nvml.nvmlDeviceGetPciInfo(handle).busId))

    def read(self) -> dict[str, float | None]:
        """One reading of each field that the driver returns without delay."""
        return {name: self._try(name, read) for name, read in self._reads.items()}

    def read_pcie(self) -> dict[str, float | None]:
        """Bytes per second in both directions; takes two windows of 20 ms."""
        return {name: self._try(name, read) for name, read in self._pcie_reads.items()}

    @property
    def reports_pcie(self) -> bool:
        """Whether the driver may still report either direction."""
        return not self._given_up.issuperset(PCIE_FIELDS)

    def _try(self, name: str, read: Callable[[], Any]) -> Any:
        """The reading, or None and a reason in `missing`."""
        if name in self._given_up:
            return None
        try:
            return read()
        except Exception as error:  # no error of the driver's binding may end a measurement
            self._record_refusal(name, error)
        return None

    def _record_refusal(self, name: str, error: Exception) -> None:
        reason, final = nvml_reason(self.nvml, error)
        whole_gpu = reason == GPU_LOST or name == "handle"
        affected = (set(GPU_FIELDS) - self._given_up) if whole_gpu else {name}
        self.missing.update(dict.fromkeys(affected, reason))
        if final or whole_gpu:
            self._given_up.update(affected)

    def _watts(self) -> float:
        """Instantaneous power if this driver has it, else its average; the same one for the whole sampling."""
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
        value = self.nvml.nvmlDeviceGetFieldValues(self.handle, [self.nvml.NVML_FI_DEV_POWER_INSTANT])[0]
        if value.nvmlReturn != self.nvml.NVML_SUCCESS:
            raise self.nvml.NVMLError(value.nvmlReturn)
        return value.value.uiVal / 1e3

    def _average_watts(self) -> float:
        return self.nvml.nvmlDeviceGetPowerUsage(self.handle) / 1e3

    def _pcie_rate(self, counter: int) -> float:
        return 1e3 * self.nvml.nvmlDeviceGetPcieThroughput(self.handle, counter)


class GpuReader:
    """Every NVIDIA GPU that the driver shows, through NVML; `why_none` says why there is none."""

    def __init__(self) -> None:
        self.gpus: tuple[Gpu, ...] = ()
        self.why_none: str | None = None
        self._nvml: ModuleType | None = None
        try:
            import pynvml
        except Exception:
            self.why_none = "the package nvidia-ml-py is not installed"
            return
        try:
            pynvml.nvmlInit()
            self._nvml = pynvml
            self.gpus = tuple(Gpu(index, pynvml) for index in range(pynvml.nvmlDeviceGetCount()))
        except Exception as error:  # a broken driver installation must not end a measurement
            self.why_none = nvml_reason(pynvml, error)[0]
        else:
            self.why_none = None if self.gpus else "no NVIDIA GPU"

    def read(self) -> dict[str, PerGpu]:
        """The fields of one `Sample` that NVML returns without delay."""
        return per_gpu([gpu.read() for gpu in self.gpus])

    @property
    def missing(self) -> dict[str, str]:
        """Field -> why it is unknown, with the GPU's number where there are several."""
        if self.why_none:
            return dict.fromkeys(GPU_FIELDS, self.why_none)
        return {name: self._reasons(name) for name in GPU_FIELDS if self._reasons(name)}

    def close(self) -> None:
        """Shut NVML down."""
        if self._nvml is not None:
            with suppress(Exception):  # no reading follows
                self._nvml.nvmlShutdown()

    def _reasons(self, name: str) -> str:
        several = len(self.gpus) > 1
        reasons = {index: gpu.missing[name] for index, gpu in enumerate(self.gpus) if name in gpu.missing}
        return "; ".join(f"GPU {index}: {reason}" if several else reason for index, reason in reasons.items())


def vram_used_bytes(device: Device) -> int:
    """Bytes in use on a device now, by every process, as its driver counts them; the device is found by its PCI bus id.

    CUDA's and NVML's numbers of a GPU may differ (CUDA_DEVICE_ORDER, CUDA_VISIBLE_DEVICES), so they are not compared.
    Raises DeviceUnavailable if the driver does not show the device, or does not report its memory.
    """
    reader = GpuReader()
    try:
        gpu = next((gpu for gpu in reader.gpus if gpu.id and gpu.id == device.id), None)
        used = gpu.read()["vram_used_bytes"] if gpu else None
        if used is None:
            shown = ", ".join(str(gpu.id) for gpu in reader.gpus)
            why = gpu.missing.get("vram_used_bytes") if gpu else reader.why_none or f"NVML shows {shown}"
            raise DeviceUnavailable(
                f"The driver reports no memory in use of {device.name} at {device.id}: {why}. "
                "Totals need an NVIDIA GPU that NVML shows."
            )
        return int(used)
    finally:
        reader.close()


class PcieReader:
    """PCIe throughput, read in a thread of its own, because each reading takes 20 ms."""

    def __init__(self, gpus: GpuReader, interval_seconds: float, ended: threading.Event) -> None:
        self._gpus, self._interval_seconds, self._ended = gpus.gpus, interval_seconds, ended
        self._latest: tuple[float, dict[str, PerGpu]] = (-math.inf, {})
        self._thread = threading.Thread(target=self._keep_reading, name="inferlab-pcie", daemon=True)
        self._thread.start()

    def latest(self, now: float) -> dict[str, PerGpu]:
        """The newest reading, unless it is older than three intervals (or 0.3 s)."""
        at, readings = self._latest
        return readings if now - at <= max(0.3, 3 * self._interval_seconds) else {}

    def join(self, seconds: float) -> bool:
        """Whether the thread ended within `seconds`."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _keep_reading(self) -> None:
        deadlines = Deadlines(time.perf_counter(), self._interval_seconds)
        while any(gpu.reports_pcie for gpu in self._gpus):
            readings = per_gpu([gpu.read_pcie() for gpu in self._gpus])
            self._latest = (time.perf_counter(), readings)
            if self._ended.wait(deadlines.seconds_left(time.perf_counter())):
                return
            deadlines.met()


def per_gpu(readings: list[dict[str, float | None]]) -> dict[str, PerGpu]:
    """For each field a tuple over the GPUs; None if the field is unknown for all of them."""
    names = readings[0] if readings else ()
    columns = {name: tuple(reading[name] for reading in readings) for name in names}
    return {name: values if any(v is not None for v in values) else None for name, values in columns.items()}


def nvml_reason(nvml: ModuleType, error: Exception) -> tuple[str, bool]:
    """Why NVML refused a reading, in words, and whether it always will."""
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
