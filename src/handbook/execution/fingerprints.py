"""Digests of everything that a page's results can depend on, part by part."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib.metadata import distributions
from importlib.resources import files
from pathlib import Path

from inferlab.engine import libraries
from inferlab.engine.client import LlamaEngine
from inferlab.errors import ModelNotFound
from inferlab.machine import Machine
from inferlab.model.find import find_model
from inferlab.prediction.calibration import calibration_file
from inferlab.records import STUDIES, to_json

ENVIRONMENT_PREFIXES = (
    "INFERLAB_",
    "GGML_",
    "LLAMA_",
    "CUDA_",
    "HIP_",
    "ROCR_",
    "OMP_",
    "GOMP_",
    "KMP_",
    "XDG_CACHE_HOME",
)
"""Prefixes of the environment variables that the library and llama.cpp read."""
SET_BY_LLAMA_CPP = ("KMP_BLOCKTIME", "200")
"""What llama.cpp sets where it is loaded, unless it is set (ggml-cpu.c:3907): it reaches what that process starts."""

RECORDED = "recorded"
"""The folder of recorded runs, on which no result depends."""


def context() -> dict[str, str]:
    """Digests of everything except the page itself, by part.

    library    every file of `src` but the recorded runs and the studies: code, records, claims, the embedded model
    llama.cpp  its shared libraries: names, sizes, dates of change
    packages   names and versions of what is installed
    machine    processor, cores, memory, devices and their backends
    settings   environment variables, see ENVIRONMENT_PREFIXES
    own files  the model of INFERLAB_MODEL and this machine's calibration
    """
    return {
        "library": library_digest(),
        "llama.cpp": sizes_digest(llama_cpp_files(os.environ)),
        "packages": packages_digest((package.name, package.version) for package in distributions()),
        "Python": sys.version,
        "machine": machine_digest(this_machine()),
        "settings": environment_digest(os.environ),
        "own files": own_files_digest(),
    }


def llama_cpp_files(environment: Mapping[str, str]) -> list[Path]:
    """The shared libraries of llama-cpp-python, and those of LLAMA_CPP_LIB_PATH, which it prefers."""
    preferred = Path(environment.get("LLAMA_CPP_LIB_PATH") or libraries.folder())
    return [path for folder in {libraries.folder(), preferred} if folder.is_dir() for path in folder.iterdir()]


def library_digest(packages: Iterable[str] = ("inferlab", "handbook")) -> str:
    """Digest of every file of these packages, and of what all studies share; a study counts for its own pages."""
    folders = {name: Path(str(files(name))) for name in packages}
    found = [(f"{name}/{file.relative_to(at)}", file) for name, at in folders.items() for file in files_below(at)]
    shared = sorted(Path(str(files(STUDIES))).glob("*.py"))
    return contents_digest([*found, *((f"{STUDIES}/{file.name}", file) for file in shared)])


def files_below(folder: Path) -> list[Path]:
    """All files below a folder, in order, without hidden ones, what Python compiles, and recorded runs."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(_is_left_out(part) for part in path.relative_to(folder).parts))


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name in ("__pycache__", RECORDED)


def contents_digest(named: Iterable[tuple[str, Path]]) -> str:
    """Digest of names and contents of files."""
    return digest([[name, hashlib.sha256(path.read_bytes()).hexdigest()] for name, path in named])


def sizes_digest(paths: Iterable[Path]) -> str:
    """Digest of names, sizes and dates of change, for files that may be too large to read at each build."""
    return digest(sorted([path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths))


def packages_digest(named: Iterable[tuple[str, str]]) -> str:
    """Digest of names and versions of packages."""
    return digest(sorted(map(list, named)))


def machine_digest(machine: Machine) -> str:
    """Digest of a machine, without the free memory of its devices."""
    devices = tuple(replace(device, free_bytes=None) for device in machine.devices)
    return digest(to_json(replace(machine, devices=devices)))


@cache
def this_machine() -> Machine:
    """This machine, from a worker that ends before the first page is executed."""
    engine = LlamaEngine()
    try:
        return engine.machine()
    finally:
        engine.close()


def machine_text(machine: Machine) -> str:
    """`Example CPU, 4 cores, llama.cpp b1234`, with the GPUs that it has."""
    gpus = (gpu.description for gpu in machine.gpus)
    return ", ".join((machine.cpu, f"{machine.n_cores} cores", *gpus, machine.llama_cpp_text))


def environment_digest(environment: Mapping[str, str]) -> str:
    """Digest of the environment variables that the library and llama.cpp read."""
    own = (item for item in environment.items() if item != SET_BY_LLAMA_CPP)
    return digest({name: value for name, value in own if name.startswith(ENVIRONMENT_PREFIXES)})


def own_files_digest() -> str:
    """Digest of the model of INFERLAB_MODEL, by size and date, and of the content of the machine's calibration."""
    calibration = [("calibration", path) for path in [calibration_file()] if path.is_file()]
    return digest([_own_model_digest(), contents_digest(calibration)])


def _own_model_digest() -> str:
    try:
        return sizes_digest([find_model()])
    except ModelNotFound as missing:
        return str(missing)


def digest(value: object) -> str:
    """A short text for any value that JSON can hold; a date in a page's metadata counts as its text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
