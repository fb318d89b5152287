"""Cold starts of models of several sizes, and memory of the engine's process while it loads one.

The memory is the kernel's count, from /proc/PID/status (proc(5)), so that is measured on Linux only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.engine.registry import close_engines_with_model
from inferlab.measurement.base import common_fields
from inferlab.measurement.cold_start import ColdStart, cold_start
from inferlab.measurement.page_cache import fill_cache
from inferlab.measurement.turns import alternating
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from inferlab.units import KIB
from studies import recipes
from studies.cold_start.load_memory import Held, LoadMemory
from studies.recipes import NotRepeatable, Recipe

SAMPLE_SECONDS = 0.004
SIZES = {"file_bytes": "RssFile", "own_bytes": "RssAnon", "locked_bytes": "VmLck"}
Shape = tuple[str, str, Mapping[str, Any]]
SEEN: Sequence[Shape] = (
    ("llama-3.2-1b", "Q4_K_M", {"n_layer": 4, "n_vocab": 4096}),
    ("llama-3.2-1b", "Q4_K_M", {"n_layer": 8, "n_vocab": 16384}),
    ("llama-3.2-1b", "Q4_K_M", {"n_layer": 3}),
    ("llama-3.2-1b", "Q8_0", {"n_layer": 8, "n_vocab": 16384}),
)
UNSEEN: Sequence[Shape] = (
    ("qwen2.5-0.5b", "Q4_K_M", {}),
    ("qwen2.5-0.5b", "F16", {}),
    ("llama-3.2-1b", "Q4_K_M", {"n_layer": 12}),
)


def starts_in_turns(shapes: Sequence[Shape], rounds: int) -> tuple[ColdStart, ...]:
    """In each round a start of each shape without and with its file in the page cache, in alternating order.

    Before each start, a plain read of the file from the same state is timed.
    """
    files = [make_shape(name, mix, **changes) for name, mix, changes in shapes]
    starts = [(file, state) for file in files for state in ("empty", "full")]
    return tuple(
        cold_start(file, page_cache=state, time_read=True) for file, state in alternating(starts, range(rounds))
    )


def tiny_starts(n_starts: int) -> tuple[ColdStart, ...]:
    """Starts of the embedded model, its file in the page cache."""
    return tuple(cold_start(page_cache="full") for _ in range(n_starts))


def loads(shape: Shape, n_ctx: int, host: Sequence[str], device: Sequence[str]) -> tuple[LoadMemory, ...]:
    """Memory over a load in each of these modes, weights on the host, then on a loopback device."""
    name, mix, changes = shape
    file, base = make_shape(name, mix, **changes), Settings(n_ctx=n_ctx)
    on_host = [load_memory(file, base.but(devices=(), load_mode=mode)) for mode in host]
    with loopback_device() as there:
        return (*on_host, *(load_memory(file, there.settings(base.but(load_mode=mode))) for mode in device))


def load_memory(path: Path, settings: Settings) -> LoadMemory:
    """Load a model in a new process and watch its memory. The file is read once before, so that no disk takes part.

    The samples are placed in the phases by the end of loading, exact to the few milliseconds of the engine's reply.
    """
    close_engines_with_model(path)
    fill_cache(path)
    engine = LlamaEngine()
    try:
        engine.ready()
        before = held(engine.pid, 0.0)
        with _watched(engine.pid) as samples:
            opening = engine.open(path, settings)
            ended = time.perf_counter()
        samples.append(held(engine.pid, ended))
        peak = _sizes(engine.pid)["VmHWM"]
        common = common_fields(engine, opening, read_gguf(path))
    finally:
        engine.close()
    phases = {name.removesuffix("_seconds"): seconds for name, seconds in opening.phases.items()}
    since = tuple(_distinct(samples, ended - sum(phases.values())))
    return LoadMemory(**common, phases=phases, before=before, samples=since, peak_bytes=peak)


def held(pid: int, seconds: float) -> Held:
    """Memory of a process now, named by the moment `seconds`."""
    sizes = _sizes(pid)
    return Held(seconds, **{field: sizes[name] for field, name in SIZES.items()})


def _sizes(pid: int) -> dict[str, int]:
    """The sizes in /proc/PID/status by name, in bytes."""
    words = map(str.split, Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines())
    return {line[0].rstrip(":"): int(line[1]) * KIB for line in words if len(line) == 3 and line[2] == "kB"}


@contextmanager
def _watched(pid: int) -> Iterator[list[Held]]:
    """The memory of a process while the block runs, read every SAMPLE_SECONDS by another thread."""
    samples: list[Held] = []
    done = threading.Event()

    def read() -> None:
        while not done.wait(SAMPLE_SECONDS):
            samples.append(held(pid, time.perf_counter()))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        done.set()
        thread.join()


def _distinct(samples: list[Held], began: float) -> Iterator[Held]:
    """The samples since `began`, without those that equal both neighbors; the last one is kept."""
    sizes = [(sample.file_bytes, sample.own_bytes, sample.locked_bytes) for sample in samples]
    for place, sample in enumerate(samples):
        same = 0 < place < len(samples) - 1 and sizes[place - 1] == sizes[place] == sizes[place + 1]
        if sample.seconds >= began and not same:
            yield replace(sample, seconds=sample.seconds - began)


RECIPES: Mapping[str, Recipe] = {
    "cold-start-seen": partial(starts_in_turns, SEEN, rounds=4),
    "cold-start-unseen-shapes": partial(starts_in_turns, UNSEEN, rounds=3),
    "cold-start-slow-disk": NotRepeatable("the rate of its disk was limited by hand"),
    "tiny-cold-start-alone": partial(tiny_starts, n_starts=10),
    "tiny-cold-start-busy-cores": NotRepeatable("the two programs that kept the cores busy were started by hand"),
    "load-memory": partial(
        loads,
        SEEN[3],
        n_ctx=4096,
        host=("none", "mmap", "mlock", "mmap_mlock", "direct_io"),
        device=("none", "mmap", "mmap_mlock", "direct_io"),
    ),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
