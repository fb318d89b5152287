"""Trials of what the operating system and the build do to one model, in pairs: cores, priority, threads, instructions.

measure_trial(trials()["pin-busy"])                 one trial on this machine
python -m studies.operating_system.operating_system pin-busy waiting-shape --out FOLDER
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab.engine import libraries
from inferlab.engine.protocol import Engine
from inferlab.machine import physical_cores, read_cpu_state, usable_cpu_numbers
from inferlab.measurement.paired import Paired, measure_surroundings
from inferlab.measurement.surroundings import Surrounding
from inferlab.model.find import tiny_model
from inferlab.model.synthetic_model import make_shape
from inferlab.records import save
from inferlab.settings import Settings
from studies.operating_system.waiting import measure_waiting

SHAPE = ("llama-3.2-1b", "Q4_K_M", {"n_layer": 4, "n_vocab": 8192})
"""A model of about 160 MB: several times the last-level cache of most processors, and loaded in a second."""
N_PAIRS = 20
NICE = 10
BUSY = Surrounding(neighbor_nice=0)
PORTABLE = "-DGGML_NATIVE=off -DGGML_SSE42=on"
BUILDS = {
    "baseline": f"{PORTABLE} -DGGML_AVX=off -DGGML_AVX2=off -DGGML_BMI2=off -DGGML_FMA=off -DGGML_F16C=off",
    "avx2": f"{PORTABLE} -DGGML_AVX=on -DGGML_AVX2=on -DGGML_BMI2=on -DGGML_FMA=on -DGGML_F16C=on",
    "native": "-DGGML_NATIVE=on",
}
"""Builds of the CPU backend that are compared with the installed one -> their options of CMake."""


WAITING = {"waiting-tiny": lambda: (tiny_model(), 128, 32), "waiting-shape": lambda: (_shape(), 64, 16)}
"""Names of the two records of how long threads spin -> model, prompt and answer of a pass."""


@dataclass(frozen=True)
class Trial:
    """One comparison: its name, and for each side the surrounding and the threads."""

    name: str
    before: Surrounding
    after: Surrounding
    threads: tuple[int, int]


def trials() -> dict[str, Trial]:
    """The trials that fit this machine, by the names of their records; those of fewer threads need two cores."""
    n, numbers = physical_cores(), usable_cpu_numbers()
    same, plain = (n, n), Surrounding()
    found = [
        Trial("control-idle", plain, plain, same),
        Trial("control-busy", BUSY, BUSY, same),
        Trial("pin-idle", plain, Surrounding(bound=True), same),
        Trial("pin-busy", BUSY, replace(BUSY, bound=True), same),
        Trial("passive-idle", plain, Surrounding(passive=True), same),
        Trial("passive-busy", BUSY, replace(BUSY, passive=True), same),
        Trial("nice-neighbor", BUSY, replace(BUSY, neighbor_nice=NICE), same),
        Trial("group-nice-neighbor", BUSY, replace(BUSY, group_nice=NICE), same),
        Trial("more-idle", plain, plain, (n, n + 1)),
        Trial("more-busy", BUSY, BUSY, (n, n + 1)),
    ]
    if n > 1:
        apart = replace(BUSY, cores=tuple(numbers[:-1]), neighbor_cores=(numbers[-1],))
        found += [
            Trial("fewer-idle", plain, plain, (n, n - 1)),
            Trial("fewer-busy", BUSY, BUSY, (n, n - 1)),
            Trial("isolated-busy", BUSY, apart, (n, len(apart.cores))),
        ]
    found += [Trial(f"build-{name}", Surrounding(build=options), plain, same) for name, options in BUILDS.items()]
    return {trial.name: trial for trial in found}


def measure_trial(
    trial: Trial,
    build: Path | None = None,
    n_pairs: int = N_PAIRS,
    n_prompt: int = 128,
    n_gen: int = 32,
    engines: tuple[Engine, Engine] | None = None,
) -> Paired:
    """Measure one trial on the host with a shape of Q4_K_M; `build` is the folder of libraries of a trial of builds.

    Raises InvalidSettings for fewer than six pairs, and what the engine raises.
    """
    sides = trial.before, trial.after
    settings = tuple(Settings(devices=(), flash_attn="on", n_threads=n, n_threads_batch=n) for n in trial.threads)
    path = _shape()
    used = engines or tuple(side.engine(build if side.build else None) for side in sides)
    try:
        found = measure_surroundings(path, settings, sides, used, n_pairs, n_prompt, n_gen)
    finally:
        for engine in used:
            engine.close()
    return replace(found.compact(), name=trial.name, cpu=read_cpu_state())


def _shape() -> Path:
    return make_shape(SHAPE[0], SHAPE[1], progress=False, **SHAPE[2])


def with_cpu_backend(backend: Path, folder: Path) -> Path:
    """Copy the installed libraries to `folder`, with `backend` in place of ggml's CPU backend under all its names."""
    shutil.copytree(libraries.folder(), folder, dirs_exist_ok=True)
    for path in folder.glob("libggml-cpu.*"):
        shutil.copyfile(backend, path)
    return folder


def main(words: list[str] | None = None) -> None:
    """Measure trials by name and write a record of each."""
    parser = argparse.ArgumentParser(prog="operating_system", description=__doc__)
    parser.add_argument("names", nargs="+", choices=[*trials(), *WAITING])
    parser.add_argument("--build", type=Path, help="the libggml-cpu.so of the build to compare")
    parser.add_argument("--out", type=Path, default=Path())
    asked = parser.parse_args(words)
    for name in (one for one in asked.names if one in WAITING):
        found = measure_waiting(*WAITING[name]())
        save(found, asked.out / f"{name}.json")
        print(found.text)
    build = asked.build and with_cpu_backend(asked.build, asked.out / "libraries")
    for name in (one for one in asked.names if one not in WAITING):
        found = measure_trial(trials()[name], build)
        save(found, asked.out / f"os-{name}.json")
        for phase in ("prefill", "decode"):
            print(f"{name}, {phase}: {found.text(phase)}")


if __name__ == "__main__":
    main()
