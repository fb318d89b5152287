"""Memory of the engine's process while it loads a model: what is resident, and what is locked, in each phase."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise

from inferlab.measurement.base import Measurement
from inferlab.records import load
from inferlab.units import MIB

NOISE_BYTES = 2**20  # a growth below this is no beginning


@dataclass(frozen=True)
class Held:
    """Memory of a process at one moment.

    seconds       since loading began
    file_bytes    resident pages of mapped files, libraries included (RssFile)
    own_bytes     resident anonymous memory: buffers, caches, copies (RssAnon)
    locked_bytes  memory that may not be swapped out (VmLck), resident or not
    """

    seconds: float
    file_bytes: int
    own_bytes: int
    locked_bytes: int

    @property
    def resident_bytes(self) -> int:
        return self.file_bytes + self.own_bytes


@dataclass(frozen=True, kw_only=True)
class LoadMemory(Measurement):
    """One load in a new process: the seconds of its phases in order, and its memory meanwhile.

    phases      as in `engine.log.phases_in`, after inferlab's own check of the header
    before      memory just before
    samples     memory meanwhile, each where it differs from the one before
    peak_bytes  most resident memory of the process up to the end, by the kernel's own count (VmHWM)
    """

    phases: dict[str, float]
    before: Held | None = None
    samples: tuple[Held, ...] = ()
    peak_bytes: int | None = None

    @property
    def place(self) -> str:
        """Where the weights of the layers were loaded to: "host" or "device"."""
        on_device = any(b.kind == "weights" and not b.device.startswith("CPU") for b in self.buffers)
        return "device" if on_device else "host"

    @property
    def grown_bytes(self) -> int:
        """The peak of resident memory over the memory before."""
        return self.peak_bytes - self.before.resident_bytes

    def peak(self, field: str) -> int:
        """The most of `file_bytes`, `own_bytes` or `locked_bytes` in the samples, over the value before."""
        return max(getattr(held, field) for held in self.samples) - getattr(self.before, field)

    def kept(self, field: str) -> int:
        """What of it was left when the context was ready."""
        return getattr(self.samples[-1], field) - getattr(self.before, field)

    @property
    def left_bytes(self) -> int:
        """Resident memory that was left when the context was ready, over the memory before."""
        return self.kept("file_bytes") + self.kept("own_bytes")

    @property
    def ends(self) -> dict[str, float]:
        """When each phase ended, in seconds since loading began."""
        return dict(zip(self.phases, accumulate(self.phases.values()), strict=True))

    def phases_with_growth(self, field: str) -> tuple[str, ...]:
        """The phases in which a kind of memory grew by more than 1 MiB, in their order."""
        grown = dict.fromkeys(self.phases, 0)
        for held, following in pairwise(self.samples):
            grown[self._phase_at(following.seconds)] += getattr(following, field) - getattr(held, field)
        return tuple(phase for phase, n_bytes in grown.items() if n_bytes > NOISE_BYTES)

    def _phase_at(self, seconds: float) -> str:
        """The phase at a moment; the last one after its end."""
        return next((phase for phase, end in self.ends.items() if seconds <= end), list(self.phases)[-1])


def recorded() -> dict[tuple[str, str], LoadMemory]:
    """The recorded loads, by load mode and place."""
    return {(memory.settings.load_mode, memory.place): memory for memory in load("epyc-2c/load-memory")}


def numbers() -> dict[str, float]:
    """MiB of the weights, and of the resident memory with the file mapped and read, weights on a device."""
    loads = recorded()
    mapped, read = loads["mmap", "device"], loads["none", "device"]
    return {
        "load_weights": read.model.tensor_bytes / MIB,
        "mapped_peak": mapped.grown_bytes / MIB,
        "mapped_left": mapped.left_bytes / MIB,
        "read_peak": read.grown_bytes / MIB,
        "read_left": read.left_bytes / MIB,
    }
