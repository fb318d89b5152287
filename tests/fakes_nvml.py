"""A stand-in for NVIDIA's driver: the part of the module `pynvml` that telemetry asks, with scenarios.

`FakeNvml(...)` is put into `sys.modules["pynvml"]`. It answers as the module does: milliwatts, KB/s, MHz,
bytes; a field value carries its own return code; refusals are NVMLError with NVML's numbers.
tests/measurement/test_telemetry.py compares its names and numbers with the installed module.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

CONSTANTS = {
    "NVML_SUCCESS": 0,
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
    "NVML_ERROR_DRIVER_NOT_LOADED": 9,
    "NVML_ERROR_TIMEOUT": 10,
    "NVML_ERROR_LIBRARY_NOT_FOUND": 12,
    "NVML_ERROR_FUNCTION_NOT_FOUND": 13,
    "NVML_ERROR_GPU_IS_LOST": 15,
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": 18,
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH": 25,
    "NVML_CLOCK_SM": 1,
    "NVML_CLOCK_MEM": 2,
    "NVML_TEMPERATURE_GPU": 0,
    "NVML_PCIE_UTIL_TX_BYTES": 0,
    "NVML_PCIE_UTIL_RX_BYTES": 1,
    "NVML_FI_DEV_POWER_INSTANT": 186,
}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        return f"NVML error {self.value}"


@dataclass
class FakeGpu:
    """One GPU; `refuses` maps a question to the error number it is answered with, `lost_after` counts questions."""

    name: str = "Example GPU"
    bus: str = "00000000:01:00.0"
    vram_used_bytes: int = 3 * 2**30
    utilization: int = 97
    instant_milliwatts: int = 251_500
    average_milliwatts: int = 180_000
    refuses: dict[str, int] = field(default_factory=dict)
    lost_after: int | None = None
    n_asked: int = 0

    def answer(self, question: str) -> "FakeGpu":
        self.n_asked += 1
        if self.lost_after is not None and self.n_asked > self.lost_after:
            raise NVMLError(CONSTANTS["NVML_ERROR_GPU_IS_LOST"])
        if question in self.refuses:
            raise NVMLError(self.refuses[question])
        return self


class FakeNvml:
    """The module; `start` is the error number that nvmlInit is answered with, `pcie` is called in each window."""

    NVMLError = NVMLError

    def __init__(self, *gpus: FakeGpu, start: int = 0, pcie=lambda: None) -> None:
        vars(self).update(CONSTANTS)
        self.gpus, self.start, self.pcie, self.n_open = gpus, start, pcie, 0

    def nvmlInit(self) -> None:  # noqa: N802
        if self.start:
            raise NVMLError(self.start)
        self.n_open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.n_open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:  # noqa: N802
        return self.gpus[index].answer("handle")

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str:  # noqa: N802
        return gpu.answer("name").name

    def nvmlDeviceGetPciInfo(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=gpu.answer("place").bus.encode())

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(used=gpu.answer("memory").vram_used_bytes)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(gpu=gpu.answer("utilization").utilization)

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, clock: int) -> int:  # noqa: N802
        gpu.answer("clock")
        return {self.NVML_CLOCK_SM: 1980, self.NVML_CLOCK_MEM: 2619}[clock]

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:  # noqa: N802
        gpu.answer("temperature")
        return 41

    def nvmlDeviceGetFieldValues(self, gpu: FakeGpu, ids: list[int]) -> list[SimpleNamespace]:  # noqa: N802
        assert ids == [self.NVML_FI_DEV_POWER_INSTANT]
        gpu.answer("fields")
        value = SimpleNamespace(uiVal=gpu.instant_milliwatts)
        return [SimpleNamespace(nvmlReturn=gpu.refuses.get("instant power", 0), value=value)]

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:  # noqa: N802
        return gpu.answer("average power").average_milliwatts

    def nvmlDeviceGetPcieThroughput(self, gpu: FakeGpu, counter: int) -> int:  # noqa: N802
        self.pcie()
        gpu.answer("pcie")
        return {self.NVML_PCIE_UTIL_TX_BYTES: 1_500, self.NVML_PCIE_UTIL_RX_BYTES: 12_000}[counter]
