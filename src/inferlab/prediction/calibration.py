"""The record of a machine's measured rates, links and ceilings, with the runs that they were computed from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from inferlab.errors import InvalidSettings, RecordError
from inferlab.machine import Ceiling, Device, Link, Machine
from inferlab.model.find import cache_folder
from inferlab.prediction.speed import DeviceRates, LinkRates
from inferlab.records import load, save

LEAST_BAND = 0.15


@dataclass(frozen=True)
class Timing:
    """One run of a small shape, with every sample: seconds of each prompt, and of each token after it."""

    device: str
    shape: str
    n_prompt: int
    settings: dict[str, object]
    prefill_seconds: tuple[float, ...]
    decode_seconds: tuple[float, ...]
    n_gen: int = 16

    @property
    def prefill(self) -> float:
        return median(self.prefill_seconds)

    @property
    def decode(self) -> float:
        """Median seconds of the second half of each pass; the first tokens after a prompt are less steady."""
        n = self.n_gen - 1
        passes = [self.decode_seconds[i : i + n] for i in range(0, len(self.decode_seconds), n)]
        return median(seconds for samples in passes for seconds in samples[n // 2 :])

    @property
    def depth(self) -> int:
        """Cells in use at the middle one of the tokens that `decode` counts."""
        return self.n_prompt + self.n_gen * 3 // 4


@dataclass(frozen=True)
class Calibration:
    """A machine's rates and ceilings, the date, and the runs that they were computed from.

    devices  "host/2" is the host with two threads, "loopback/1" a loopback device with one, others ggml's names
    bands    share by which predictions of prefill and decode may be off: wider than any error of the check
    disk_bytes_per_second  reading a file that is not in the page cache; None where it cannot be dropped from it
    context_bytes  by card: bytes that its driver counts beyond llama.cpp's buffers, see measurement.memory
    """

    machine: Machine
    date: str
    devices: dict[str, DeviceRates]
    links: dict[str, LinkRates] = field(default_factory=dict)
    ceilings: dict[str, Ceiling] = field(default_factory=dict)
    bands: dict[str, float] = field(default_factory=lambda: {"prefill": LEAST_BAND, "decode": LEAST_BAND})
    timings: tuple[Timing, ...] = ()
    seconds: float | None = None
    disk_bytes_per_second: float | None = None
    context_bytes: dict[str, int] = field(default_factory=dict)

    def host(self, n_threads: int | None) -> DeviceRates:
        """Rates of the host with n_threads, or with the nearest number that was measured (None: the most)."""
        known = {int(name.split("/")[1]): name for name in self.devices if name.startswith("host/")}
        nearest = max(known) if n_threads is None else min(known, key=lambda n: abs(n - n_threads))
        return self.devices[known[nearest]]

    def rates(self, name: str) -> DeviceRates:
        """A device's rates. Raises InvalidSettings for one that was not calibrated."""
        if name not in self.devices:
            raise InvalidSettings(f"{name} was not calibrated; {', '.join(self.devices)} were. Run lab.calibrate().")
        return self.devices[name]

    def calibrated_name(self, device: Device) -> str:
        """The name under which a device was calibrated; an RPC device uses the loopback device's."""
        loopbacks = [name for name in self.devices if name.startswith("loopback/")]
        return loopbacks[0] if device.backend == "RPC" and loopbacks else device.name

    def link(self, name: str, link: Link | None = None) -> LinkRates:
        """Rates of the link to a device: as calibrated, or through a relay with the given measured link."""
        direct = self.links[name]
        if link is None:
            return replace(direct, relay_step_seconds=0.0, relay_split_seconds=0.0)
        extra = max(0.0, link.round_trip_seconds - direct.relay_round_trip_seconds)
        rate = min(direct.bytes_per_second, 1e9 * link.achieved_gigabytes_per_second)
        return replace(direct, bytes_per_second=rate, extra_seconds=extra)

    @property
    def badge(self) -> str:
        """The machine, the date and the engine of the measurements, in one line."""
        return self.machine.badge(self.date, synthetic=True)

    def save(self, path: str | Path | None = None) -> Path:
        """Write the calibration as JSON, to the cache folder if no path is given. Raises RecordError."""
        return save(self, path or calibration_file())

    @classmethod
    def load(cls, name: str | Path | None = None) -> Calibration:
        """This machine's calibration, or one from a file or by a recorded machine's name. Raises RecordError."""
        path = Path(name) if name else calibration_file()
        try:
            return load(path if path.exists() or not name else f"{name}/calibration", cls)
        except RecordError as error:
            raise RecordError(f"{error} lab.calibrate() measures this machine in about a minute.") from error


def calibration_file() -> Path:
    """The file that holds this machine's calibration."""
    return cache_folder() / "calibration.json"
