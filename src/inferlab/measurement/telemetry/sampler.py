"""Telemetry: readings of NVML and of the operating system, taken while a model runs.

`TelemetrySampler` takes one `Sample` each interval in a thread of the caller's process, not of the engine's.
A field that cannot be read is None, never 0, and `Sampling.missing` says why; no error here ends a measurement.

Limits of the readings, whatever the interval:

    gpu_utilization_percent   the driver averages over 1/6 s to 1 s: it cannot resolve a token
    power_watts               about a 1 s average, unless the driver has the instantaneous field
    pcie_..._per_second       the driver counts for 20 ms while the caller waits: read in a thread of its own
    cpu_percent               the kernel counts in hundredths of a second: 10 % steps at 10 readings a second
"""

from __future__ import annotations

import threading
import time

from inferlab.measurement.telemetry.host import host_reader
from inferlab.measurement.telemetry.nvml import GpuReader, PcieReader
from inferlab.measurement.telemetry.samples import (
    DEFAULT_INTERVAL_SECONDS,
    Deadlines,
    Sample,
    Sampling,
    sampling_interval,
)

PATIENCE_SECONDS = 2.0


class TelemetrySampler:
    """Takes samples of process `pid` and of the whole machine during a `with` block.

    The first sample is taken before the block begins, the last one after it, the others once per interval.
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
        """How the samples were taken."""
        return Sampling(
            self.interval_seconds,
            self._deadlines.n_skipped,
            tuple(gpu.name for gpu in self._gpus.gpus),
            tuple(gpu.power_source for gpu in self._gpus.gpus),
            {**self._missing, **self._gpus.missing},
            tuple(gpu.id for gpu in self._gpus.gpus),
        )

    def __enter__(self) -> TelemetrySampler:
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
        if self._pcie.join(PATIENCE_SECONDS) and not self._thread.is_alive():
            self._gpus.close()

    def _keep_taking(self) -> None:
        while not self._ended.wait(self._deadlines.seconds_left(time.perf_counter())):
            self._deadlines.met()
            self._take()

    def _take(self) -> None:
        now = time.perf_counter()
        readings = {**self._host.read(now), **self._gpus.read(), **self._pcie.latest(now)}
        self._samples.append(Sample(now, **readings))
