"""Memory of the engine's process while it loads a model: what is resident, and what is locked, in each phase.

The sizes are the kernel's, from /proc/PID/status (proc(5)), so they exist on Linux only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.registry import close_engines_with_model
from inferlab.measurement.base import Measurement, common_fields
from inferlab.measurement.page_cache import fill_cache
from inferlab.measurement.queued import queued
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from inferlab.units import KIB

SAMPLE_SECONDS = 0.004
NOISE_BYTES = 2**20  # a growth below this is no beginning
FIELDS = {"RssFile": "file_bytes", "RssAnon": "own_bytes", "VmLck": "locked_bytes"}


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
    samples     memory meanwhile, each where it differs from the one before; () where the system does not report it
    peak_bytes  most resident memory of the process up to the end, by the kernel's own count (VmHWM); None if unknown
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
    def grown_bytes(self) -> int | None:
        """The peak of resident memory over the memory before, None if unknown."""
        return None if self.peak_bytes is None or self.before is None else self.peak_bytes - self.before.resident_bytes

    def peak(self, field: str) -> int:
        """The most of `file_bytes`, `own_bytes` or `locked_bytes` in the samples, over the value before."""
        most = max((getattr(one, field) for one in self.samples), default=0)
        return most - (getattr(self.before, field) if self.before else 0)

    def kept(self, field: str) -> int:
        """What of it was left when the context was ready."""
        return getattr(self.samples[-1], field) - getattr(self.before, field) if self.samples and self.before else 0

    @property
    def ends(self) -> dict[str, float]:
        """When each phase ended, in seconds since loading began."""
        return dict(zip(self.phases, accumulate(self.phases.values()), strict=True))

    def phases_with_growth(self, field: str) -> tuple[str, ...]:
        """The phases in which a kind of memory grew by more than 1 MiB, in their order."""
        grown: dict[str, int] = {}
        for one, following in zip(self.samples, self.samples[1:], strict=False):
            phase = self.phase_at(following.seconds)
            grown[phase] = grown.get(phase, 0) + getattr(following, field) - getattr(one, field)
        return tuple(phase for phase in self.phases if grown.get(phase, 0) > NOISE_BYTES)

    def phase_at(self, seconds: float) -> str:
        """The phase at a moment; the last one after its end."""
        return next((phase for phase, end in self.ends.items() if seconds <= end), list(self.phases)[-1])


@queued
def load_memory(model: str | Path | None = None, settings: Settings | None = None) -> LoadMemory:
    """Load a model in a new process and watch its memory. The file is read once before, so that no disk takes part.

    The samples are placed in the phases by the end of loading, exact to the few milliseconds of the engine's reply.
    Raises InvalidSettings, ModelError, EngineRefused or EngineCrashed.
    """
    path = find_model(model)
    header, settings = read_gguf(path), settings or Settings()
    close_engines_with_model(path)
    fill_cache(path)
    engine = LlamaEngine()
    try:
        engine.ready()
        before = read_held(engine.pid, 0.0)
        with _watched(engine.pid) as samples:
            opening = engine.open(path, settings.but(n_ctx=settings.n_ctx or 512))
            ended = time.perf_counter()
        last, peak = read_held(engine.pid, ended), _field(engine.pid, "VmHWM")
        common = common_fields(engine, opening, header)
    finally:
        engine.close()
    phases = {name.removesuffix("_seconds"): seconds for name, seconds in opening.phases.items()}
    began = ended - sum(phases.values())
    found = tuple(_distinct([*samples, last], began)) if last else ()
    return LoadMemory(**common, phases=phases, before=before, samples=found, peak_bytes=peak)


def read_held(pid: int, seconds: float, root: Path = Path("/proc")) -> Held | None:
    """Memory of a process now, named by the moment `seconds`; None where the system does not report it."""
    sizes = _status(pid, root)
    if not set(FIELDS) <= set(sizes):
        return None
    return Held(seconds, **{field: sizes[name] for name, field in FIELDS.items()})


def _field(pid: int, name: str, root: Path = Path("/proc")) -> int | None:
    return _status(pid, root).get(name)


def _status(pid: int, root: Path) -> dict[str, int]:
    """The sizes in /proc/PID/status by name, in bytes; {} where there is no such file."""
    try:
        lines = (root / str(pid) / "status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return {}
    words = (line.split() for line in lines)
    return {one[0].rstrip(":"): int(one[1]) * KIB for one in words if len(one) == 3 and one[2] == "kB"}


@contextmanager
def _watched(pid: int) -> Iterator[list[Held]]:
    """The memory of a process while the block runs, read every SAMPLE_SECONDS by another thread."""
    samples: list[Held] = []
    done = threading.Event()

    def read() -> None:
        while not done.wait(SAMPLE_SECONDS):
            if held := read_held(pid, time.perf_counter()):
                samples.append(held)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def _distinct(samples: list[Held], began: float) -> Iterator[Held]:
    """The samples since `began`, without those that equal both neighbours; the last one is kept."""
    sizes = [(one.file_bytes, one.own_bytes, one.locked_bytes) for one in samples]
    for place, one in enumerate(samples):
        inside = 0 < place < len(samples) - 1
        if one.seconds >= began and not (inside and sizes[place - 1] == sizes[place] == sizes[place + 1]):
            yield Held(one.seconds - began, *sizes[place])
