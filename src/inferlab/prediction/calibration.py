"""What this machine needs for the parts of a step: rates, links and ceilings, as measured, kept with the date."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from statistics import median

from inferlab.errors import InvalidSettings, RecordError
from inferlab.machine import Ceiling, Device, Link, Machine
from inferlab.model.find import cache_folder
from inferlab.prediction.speed import AttentionRates, DeviceRates, LinkRates, TypeRates

FORMAT = 2
LEAST_BAND = 0.15


@dataclass(frozen=True)
class Timing:
    """One run of a small shape, with every sample: seconds of the prompt, and of each token after it."""

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
        """Median of each pass's second half: a processor takes some tokens to settle after a prompt."""
        n = self.n_gen - 1
        passes = [self.decode_seconds[i : i + n] for i in range(0, len(self.decode_seconds), n)]
        return median(s for one in passes for s in one[n // 2 :])

    @property
    def depth(self) -> int:
        """Cells in use at the token in the middle of those that count."""
        return self.n_prompt + self.n_gen * 3 // 4


@dataclass(frozen=True)
class Calibration:
    """A machine's rates, its ceilings, when they were measured, and the runs they were taken from.

    devices  "host/2" is the host with two threads, "loopback/1" a loopback device with one, others ggml's names
    bands    share by which predictions of prefill and decode may be off: wider than any miss of the check
    disk_bytes_per_second  reading a file that the system has forgotten; None where it does not forget
    context_bytes  what a card's driver counts beyond llama.cpp's buffers, see measurement.memory; no card: nothing
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
        """The host with so many threads, or with the nearest number that was measured (None: the most)."""
        known = {int(name.split("/")[1]): name for name in self.devices if name.startswith("host/")}
        wanted = max(known) if n_threads is None else min(known, key=lambda n: abs(n - n_threads))
        return self.devices[known[wanted]]

    def rates(self, name: str) -> DeviceRates:
        """A device's rates. Raises InvalidSettings for one that was not calibrated."""
        if name not in self.devices:
            raise InvalidSettings(f"{name} was not calibrated; {', '.join(self.devices)} were. Run lab.calibrate().")
        return self.devices[name]

    def name_of(self, device: Device) -> str:
        """A device's name here: an RPC device is the loopback device that was calibrated."""
        far = [name for name in self.devices if name.startswith("loopback/")]
        return far[0] if device.backend == "RPC" and far else device.name

    def link(self, name: str, link: Link | None = None) -> LinkRates:
        """The way to a device: as calibrated, or through a link that was measured when it started."""
        direct = self.links[name]
        if link is None:
            return replace(direct, relay_step_seconds=0.0, relay_split_seconds=0.0)
        extra = max(0.0, link.round_trip_seconds - direct.relay_round_trip_seconds)
        rate = min(direct.bytes_per_second, 1e9 * link.achieved_gigabytes_per_second)
        return replace(direct, bytes_per_second=rate, extra_seconds=extra)

    @property
    def badge(self) -> str:
        """Who measured this, when, with what."""
        return self.machine.badge(self.date, synthetic=True)

    def save(self, path: str | Path | None = None) -> Path:
        """Write it as JSON, into the cache folder if no path is given. Raises RecordError."""
        from inferlab.records import write_whole

        return write_whole(path or kept_at(), json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n")

    @classmethod
    def load(cls, name: str | Path | None = None) -> Calibration:
        """The machine's own, or one from a file, or a recorded one by its name. Raises RecordError."""
        path = Path(name) if name else kept_at()
        if not path.exists() and name:
            path = Path(str(files("inferlab") / "data" / "records" / str(name) / "calibration.json"))
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            raise RecordError(
                f"There is no calibration at {path}. lab.calibrate() measures this machine in about a minute."
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(
                f"{path} is not a calibration of this version: {type(error).__name__}: {error}. "
                "lab.calibrate() writes this machine's own anew."
            ) from error

    @classmethod
    def from_dict(cls, data: dict) -> Calibration:
        """From JSON; raises KeyError or TypeError on anything else."""
        data = dict(data)
        if data.pop("format") != FORMAT:
            raise KeyError("format")
        timings = tuple(
            Timing(**{k: tuple(v) if isinstance(v, list) else v for k, v in one.items()}) for one in data["timings"]
        )
        return cls(**{
            **data,
            "machine": Machine.from_dict(data["machine"]),
            "devices": {name: _device(one) for name, one in data["devices"].items()},
            "links": {name: LinkRates(**one) for name, one in data["links"].items()},
            "ceilings": {name: Ceiling(**one) for name, one in data["ceilings"].items()},
            "timings": timings,
        })  # fmt: skip


def _device(data: dict) -> DeviceRates:
    types = {name: TypeRates(**rates) for name, rates in data["types"].items()}
    attention = {name: AttentionRates(**rates) for name, rates in data["attention"].items()}
    return DeviceRates(**{**data, "types": types, "attention": attention})


def kept_at() -> Path:
    """Where this machine's calibration is kept."""
    return cache_folder() / "calibration.json"
