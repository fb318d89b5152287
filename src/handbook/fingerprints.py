"""What a page's results can depend on: each part as a text that changes when the part does."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import distributions
from importlib.resources import files
from pathlib import Path

from inferlab.engine import libraries
from inferlab.engine.client import LlamaEngine
from inferlab.errors import ModelNotFound
from inferlab.machine import Machine
from inferlab.model.find import find_model
from inferlab.prediction.calibration import kept_at
from inferlab.records import to_json

SETTINGS = ("INFERLAB_", "GGML_", "LLAMA_", "CUDA_", "HIP_", "ROCR_", "OMP_", "XDG_CACHE_HOME")
"""Beginnings of the environment variables that the library and llama.cpp read."""


def context() -> dict[str, str]:
    """Everything but the page itself, part by part.

    library    every file of `src`: code, records, claims and the embedded model
    llama.cpp  its shared libraries: names, sizes, dates of change
    packages   names and versions of what is installed
    machine    processor, cores, memory, devices and their backends
    settings   environment variables, see SETTINGS
    own files  the model of INFERLAB_MODEL and this machine's calibration
    """
    return {
        "library": library(),
        "llama.cpp": of_sizes(libraries.folder().iterdir()),
        "packages": of_packages((one.name, one.version) for one in distributions()),
        "Python": sys.version,
        "machine": of_machine(_this_machine()),
        "settings": of_settings(os.environ),
        "own files": of_own_files(),
    }


def library(packages: Iterable[str] = ("inferlab", "handbook")) -> str:
    """The content of every file of these packages."""
    folders = {name: Path(str(files(name))) for name in packages}
    return of_contents((f"{name}/{file.relative_to(at)}", file) for name, at in folders.items() for file in inside(at))


def inside(folder: Path) -> list[Path]:
    """All files below a folder, in order, without hidden ones and what Python compiles."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(_is_left_out(part) for part in path.relative_to(folder).parts))


def _is_left_out(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__"


def of_contents(named: Iterable[tuple[str, Path]]) -> str:
    """Names and contents of files."""
    return digest([[name, hashlib.sha256(path.read_bytes()).hexdigest()] for name, path in named])


def of_sizes(paths: Iterable[Path]) -> str:
    """Names, sizes and dates of change of files that may be too large to read at each build."""
    return digest(sorted([path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in paths))


def of_packages(named: Iterable[tuple[str, str]]) -> str:
    """Names and versions of packages."""
    return digest(sorted(map(list, named)))


def of_machine(machine: Machine) -> str:
    """A machine, without how much of its devices' memory happens to be free."""
    devices = tuple(replace(device, free_bytes=None) for device in machine.devices)
    return digest(to_json(replace(machine, devices=devices)))


def _this_machine() -> Machine:
    """This machine, from a worker that is gone before the first page is measured."""
    engine = LlamaEngine()
    try:
        return engine.machine()
    finally:
        engine.close()


def of_settings(environment: Mapping[str, str]) -> str:
    """The environment variables that the library and llama.cpp read."""
    return digest({name: value for name, value in environment.items() if name.startswith(SETTINGS)})


def of_own_files() -> str:
    """The model that INFERLAB_MODEL names, by size and date, and the content of the machine's calibration."""
    calibration = [("calibration", path) for path in [kept_at()] if path.is_file()]
    return digest([_own_model(), of_contents(calibration)])


def _own_model() -> str:
    try:
        return of_sizes([find_model()])
    except ModelNotFound as missing:
        return str(missing)


def digest(value: object) -> str:
    """A short text for any value that JSON can hold; a date in a page's metadata counts as its text."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()
