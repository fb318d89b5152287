"""The record of a machine's measured rates, links and ceilings, with the runs that they were computed from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from statistics import median

from inferlab.errors import InvalidSettings, RecordError
from inferlab.machine import HOST_DEVICE, Ceiling, Device, Link, Machine
from inferlab.measurement.operations import Attention, Product
from inferlab.model.find import cache_folder
from inferlab.prediction.rates import LOOPBACK, DeviceKey, DeviceRates, LinkRates, host_rates
from inferlab.records import load, save
from inferlab.settings import Settings
from inferlab.shown import Shown

PHASES = ("prefill", "decode")
UNCHECKED_BAND = 1.0  # a factor of two, where no model was run beside the operations
INSIDE = 0.9  # share of requests that a band is to hold
LEAST_CHECKS = 9  # errors of which the largest bounds the next with 90 %: 9 / (9 + 1)


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
class Check:
    """A model that took no part in the rates: its prediction from operations alone, and its measured seconds.

    device     the device that was checked, by its name in the calibration
    predicted  seconds of "prefill" and of a token of "decode"
    measured   the same of each round
    """

    device: str
    shape: str
    settings: Settings
    n_prompt: int
    predicted: dict[str, float]
    measured: dict[str, tuple[float, ...]]

    @property
    def place(self) -> str:
        return DeviceKey(self.device).place

    def ratio(self, phase: str) -> float:
        """Measured over predicted seconds, from the median round."""
        return median(self.measured[phase]) / self.predicted[phase]

    def spread(self, phase: str) -> float:
        """The slowest round over the fastest, less one."""
        return max(self.measured[phase]) / min(self.measured[phase]) - 1


@dataclass(frozen=True)
class Calibration(Shown):
    """A machine's rates and ceilings, the date, and the measurements that they were computed from.

    devices  by `DeviceKey`: the host and a loopback device with their threads, others by ggml's names
    checks   models of other shapes, from which the corrections and the bands of plans follow
    timings  runs of small models; products and attentions are single operations
    disk_bytes_per_second  reading a file that is not in the page cache; None where it cannot be dropped from it
    context_bytes  by card: bytes that its driver counts beyond llama.cpp's buffers, see measurement.memory
    bands  share by which a plan of "prefill" or "decode" may be off in either direction, see `with_bands`
    """

    machine: Machine
    date: str
    devices: dict[str, DeviceRates]
    links: dict[str, LinkRates] = field(default_factory=dict)
    ceilings: dict[str, Ceiling] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    timings: tuple[Timing, ...] = ()
    products: tuple[Product, ...] = ()
    attentions: tuple[Attention, ...] = ()
    seconds: float | None = None
    disk_bytes_per_second: float | None = None
    context_bytes: dict[str, int] = field(default_factory=dict)
    bands: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, UNCHECKED_BAND))

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """The machine, what was calibrated, and by how much a plan may be off."""
        bands = ", ".join(f"{phase} {100 * band:.0f} %" for phase, band in self.bands.items())
        rows = [
            ("devices", ", ".join(self.devices)),
            ("links", ", ".join(self.links)),
            ("models that checked it", str(len(self.checks))),
            ("a plan may be off by", bands),
        ]
        return f"Calibration of {self.machine.cpu}, {self.date}", [(name, text) for name, text in rows if text]

    def correction(self, phase: str, device: str = HOST_DEVICE) -> float:
        """By what factor models took longer than their operations alone: the median of the checks on a device.

        `device` is a key such as "host/2", "loopback/1" or "CUDA0", with its threads, because threads that wait for
        each other after every operation take longer than one alone. "host" counts as all numbers of threads together.
        """
        place = DeviceKey(device).place
        checks = [check for check in self.checks if check.device == device] or self.checks_at(place)
        return median([check.ratio(phase) for check in checks] or [1.0])

    def checks_at(self, place: str) -> list[Check]:
        """The checks on a device with any number of threads."""
        return [check for check in self.checks if check.place == place]

    def errors(self, phase: str) -> list[float]:
        """How far each check is from its prediction, corrected by the others on its device: 0.2 is a fifth either way.

        A check without others on its device is not corrected.
        """
        return [max(ratio, 1 / ratio) - 1 for check in self.checks for ratio in [self._rest(check, phase)]]

    def round_errors(self, phase: str) -> list[float]:
        """`errors` of every single round of each check, as if it were a request at another time."""
        rests = [
            self._rest(check, phase) * seconds / median(check.measured[phase])
            for check in self.checks
            for seconds in check.measured[phase]
        ]
        return [max(ratio, 1 / ratio) - 1 for ratio in rests]

    def _rest(self, check: Check, phase: str) -> float:
        """What the other checks on its device leave of a check's ratio."""
        others = [c.ratio(phase) for c in self.checks if c.device == check.device and c is not check]
        return check.ratio(phase) / median(others or [1.0])

    def with_bands(self) -> Calibration:
        """The calibration with a band for each phase, from the single rounds of its checks:

            band = the k-th smallest of their n errors, k = 9/10 (n + 1) rounded up, at most n

        If the next request is like one of these rounds, its error exceeds the band with at most one in ten. A round
        counts by itself because a request too runs once, at a time of its own.
        """
        return replace(self, bands={phase: self._band(phase) for phase in PHASES})

    def _band(self, phase: str) -> float:
        errors = sorted(self.round_errors(phase)) or [UNCHECKED_BAND]
        return errors[min(len(errors), ceil(INSIDE * (len(errors) + 1))) - 1]

    def repeatability(self, phase: str) -> float:
        """How far the slowest round of a check lay from its fastest, typically; 0 without checks."""
        return median([check.spread(phase) for check in self.checks] or [0.0])

    def host(self, n_threads: int | None) -> DeviceRates:
        """Rates of the host with n_threads, or with the nearest number that was measured (None: the most)."""
        return host_rates(self.devices, n_threads)

    def rates(self, name: str) -> DeviceRates:
        """A device's rates. Raises InvalidSettings for one that was not calibrated."""
        if name not in self.devices:
            raise InvalidSettings(f"{name} was not calibrated; {', '.join(self.devices)} were. Run lab.calibrate().")
        return self.devices[name]

    def calibrated_name(self, device: Device) -> str:
        """The name under which a device was calibrated; an RPC device uses the loopback device's."""
        loopbacks = [key for key in map(DeviceKey, self.devices) if key.place == LOOPBACK]
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
        """The machine with its GPUs, the date and the engine of the measurements, in one line."""
        gpus = ", ".join(gpu.title for gpu in self.machine.gpus if gpu.backend != "RPC")
        return self.machine.badge(self.date, synthetic=True, devices=gpus or None)

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
