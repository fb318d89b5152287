"""Trials in pairs of what the operating system and the build do to one model, and of how long waiting threads spin.

All have the threads of the recorded machine, two: where there are more cores, start them by `taskset -c 0,1`.

GOMP_SPINCOUNT is the number of turns of libgomp's waiting loop (libgomp, "Environment Variables"). Each value has a
worker of its own that stays open; the values take turns, so that a slow minute of the machine meets all of them.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from inferlab.engine import libraries, openmp
from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import Engine
from inferlab.errors import EngineRefused, EngineUnavailable
from inferlab.machine import read_cpu_state
from inferlab.measurement.base import common_fields
from inferlab.measurement.paired import Paired, measure_surroundings
from inferlab.measurement.surroundings import Surrounding
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.operating_system.study import Case, Waiting
from studies.recipes import Recipe

HOST_SETTINGS = Settings(devices=(), flash_attn="on")
N_PROMPT = 128
QUIET, BUSY = Surrounding(), Surrounding(neighbor_nice=0)
BACKEND = "CPU_BACKEND"
PORTABLE = "-DGGML_NATIVE=off -DGGML_SSE42=on"
SPINS = (0, 100, 1_000, 2_000, 10_000, None)
"""The values compared; None is libgomp's own."""
LIMIT_SECONDS, N_ROUNDS = 6.0, 15
SITUATIONS = {
    "nothing beside it": (0, 1),
    "one busy program": (1, 1),
    "two busy programs": (2, 1),
    "a second worker": (0, 2),
}
"""Situation -> programs of one thread that only compute, and workers, with the one that is timed."""
Rates = Callable[[Engine], tuple[float | None, float | None]]


def shape() -> Path:
    """A model of about 160 MB: several times the last-level cache of most processors, and loaded in a second."""
    return make_shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=8192)


def idle(name: str, n_threads: int = 2, **after: Any) -> Paired:
    """A trial without a neighbor: the threads and the surrounding of its second side."""
    return trial(name, (QUIET, replace(QUIET, **after)), n_threads, n_pairs=20, n_gen=32)


def busy(name: str, n_threads: int = 2, **after: Any) -> Paired:
    """A trial beside a program that keeps a core busy."""
    return trial(name, (BUSY, replace(BUSY, **after)), n_threads, n_pairs=15, n_gen=8)


def build(name: str, options: str) -> Paired:
    """The CPU backend of another build against the installed one; the environment's CPU_BACKEND has its path."""
    backend = os.environ.get(BACKEND)
    if not backend:
        raise EngineUnavailable(
            f"There is no build to compare. Build llama.cpp's target ggml-cpu with {options} -DBUILD_SHARED_LIBS=on, "
            f"and set {BACKEND} to the path of its libggml-cpu.so."
        )
    with TemporaryDirectory() as folder:
        other = with_cpu_backend(Path(backend), Path(folder))
        return trial(name, (Surrounding(build=options), QUIET), 2, n_pairs=20, n_gen=32, other=other)


def trial(
    name: str,
    sides: tuple[Surrounding, Surrounding],
    n_threads: int,
    n_pairs: int,
    n_gen: int,
    other: Path | None = None,
) -> Paired:
    """One trial on the host; `other` is the folder of libraries of the first side."""
    settings = (
        HOST_SETTINGS.but(n_threads=2, n_threads_batch=2),
        HOST_SETTINGS.but(n_threads=n_threads, n_threads_batch=n_threads),
    )
    with closing(sides[0].engine(other)) as before, closing(sides[1].engine()) as after:
        pairs = measure_surroundings(shape(), settings, sides, (before, after), n_pairs, N_PROMPT, n_gen)
    return replace(pairs.compact(), name=name, cpu=read_cpu_state())


def with_cpu_backend(backend: Path, folder: Path) -> Path:
    """Copy the installed libraries to `folder`, with `backend` in place of ggml's CPU backend under all its names."""
    shutil.copytree(libraries.folder(), folder, dirs_exist_ok=True)
    for path in folder.glob("libggml-cpu.*"):
        shutil.copyfile(backend, path)
    return folder


def tiny_waiting(n_prompt: int, n_gen: int) -> Waiting:
    """The embedded model in every situation, with every value of GOMP_SPINCOUNT; Linux with libgomp."""
    return waiting(tiny_model(), n_prompt, n_gen)


def shape_waiting(n_prompt: int, n_gen: int) -> Waiting:
    """The shape in every situation."""
    return waiting(shape(), n_prompt, n_gen)


def waiting(path: Path, n_prompt: int, n_gen: int) -> Waiting:
    """A prompt of random tokens and an answer, in every situation."""
    settings = HOST_SETTINGS.but(n_ctx=256)

    def rates(engine: Engine) -> tuple[float | None, float | None]:
        """Tokens per second of prefill and decode, after a short pass; (None, None) without a result in time."""
        try:
            engine.open(path, settings)
            prompt = engine.random_prompt(n_prompt)
            engine.generate(prompt[:8], 2)
            called = engine.generate(prompt, n_gen)
        except EngineRefused:
            return None, None
        return n_prompt / called.prefill_seconds, len(called.decode_seconds) / sum(called.decode_seconds)

    with ExitStack() as stack:
        timed, beside = ({spin: stack.enter_context(closing(_engine(spin))) for spin in SPINS} for _ in range(2))
        common = common_fields(timed[None], timed[None].open(path, settings), read_gguf(path))
        cases = [case for situation in SITUATIONS for case in _in(situation, rates, timed, beside)]
    common["waiting"] = {}  # the cases say it, each its own
    return Waiting(**common, n_prompt=n_prompt, n_gen=n_gen, limit_seconds=LIMIT_SECONDS, cases=tuple(cases))


def _engine(spin: int | None) -> LlamaEngine:
    """A worker with one value; for libgomp's own it is named, so that our workers' bound does not stand in for it."""
    return LlamaEngine(LIMIT_SECONDS, {openmp.SPIN_COUNT: openmp.DEFAULT if spin is None else str(spin)})


def _in(
    situation: str, rates: Rates, timed: Mapping[int | None, Engine], beside: Mapping[int | None, Engine]
) -> list[Case]:
    """All rounds of one situation, in a new order each."""
    rounds: dict[int | None, list[tuple[float | None, float | None]]] = {spin: [] for spin in SPINS}
    n_neighbors, n_workers = SITUATIONS[situation]
    with ExitStack() as stack:
        for _ in range(n_neighbors):
            stack.enter_context(BUSY.neighbor())
        for number in range(N_ROUNDS):
            order = list(SPINS)
            random.Random(number).shuffle(order)
            for spin in order:
                with _computing(rates, beside[spin]) if n_workers > 1 else nullcontext():
                    rounds[spin].append(rates(timed[spin]))
    return [Case(situation, spin, *zip(*each, strict=True)) for spin, each in rounds.items()]


@contextmanager
def _computing(rates: Rates, engine: Engine) -> Iterator[None]:
    """Another worker that does the same work over and over while the block runs."""
    ended, began = threading.Event(), threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            rates(engine)
            began.set()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        began.wait()
        yield
    finally:
        ended.set()
        thread.join()


RECIPES: Mapping[str, Recipe] = {
    "os-control-idle": partial(idle, "control-idle"),
    "os-control-idle-again": partial(idle, "control-idle"),
    "os-pin-idle": partial(idle, "pin-idle", bound=True),
    "os-passive-idle": partial(idle, "passive-idle", passive=True),
    "os-fewer-idle": partial(idle, "fewer-idle", n_threads=1),
    "os-control-busy": partial(busy, "control-busy"),
    "os-pin-busy": partial(busy, "pin-busy", bound=True),
    "os-passive-busy": partial(busy, "passive-busy", passive=True),
    "os-nice-neighbor": partial(busy, "nice-neighbor", neighbor_nice=10),
    "os-group-nice-neighbor": partial(busy, "group-nice-neighbor", group_nice=10),
    "os-fewer-busy": partial(busy, "fewer-busy", n_threads=1),
    "os-isolated-busy": partial(busy, "isolated-busy", cores=(0,), neighbor_cores=(1,), n_threads=1),
    "os-build-baseline": partial(
        build,
        "build-baseline",
        f"{PORTABLE} -DGGML_AVX=off -DGGML_AVX2=off -DGGML_BMI2=off -DGGML_FMA=off -DGGML_F16C=off",
    ),
    "os-build-avx2": partial(
        build, "build-avx2", f"{PORTABLE} -DGGML_AVX=on -DGGML_AVX2=on -DGGML_BMI2=on -DGGML_FMA=on -DGGML_F16C=on"
    ),
    "os-build-native": partial(build, "build-native", "-DGGML_NATIVE=on"),
    "waiting-tiny": partial(tiny_waiting, n_prompt=128, n_gen=32),
    "waiting-tiny-again": partial(tiny_waiting, n_prompt=128, n_gen=32),
    "waiting-shape": partial(shape_waiting, n_prompt=64, n_gen=16),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
