"""A dry run of llama.cpp: it logs the buffers that it would allocate, and allocates none.

With `no_alloc` llama.cpp reads the header, places every tensor and plans every buffer.
The sizes of compute buffers, output buffers and caches are read from its log, which prints them to 0.01 MiB.
A header alone is enough, so a model that exists only in memory is written as a file without data.
"""

from __future__ import annotations

import atexit
import hashlib
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_device, require_rpc
from inferlab.machine import HOST_BUFFER, HOST_DEVICE, Machine, on_host
from inferlab.model.gguf import (
    DEFAULT_ALIGNMENT,
    STRING,
    FileIdentity,
    LazyArray,
    Model,
    Tensor,
    file_identity,
    header_bytes,
)
from inferlab.settings import Settings
from inferlab.units import MIB

COMPUTE_LINE = re.compile(r"(\S+) compute buffer size =\s*([\d.]+) MiB")
OUTPUT_LINE = re.compile(r"(\S+) +output buffer size =\s*([\d.]+) MiB")
PLACED_LINE = re.compile(r"layer +(\d+) assigned to device (\S+),")
CACHE_LAYER_LINE = re.compile(r"layer +(\d+): dev = (\S+)")
CACHE_LINE = re.compile(r"(?:layers = \d+, size = +|size = +(?=[\d.]+ MiB \( *\d+ cells))([\d.]+) MiB")
STAND_IN = "RPC0"
OF_THE_FILE = ("split.", "general.alignment")
"""Keys about how a file lies on disk, which are not those of the one written here."""
MOST_ENGINES, MOST_HEADERS, MOST_SIMULATIONS = 4, 16, 512


@dataclass(frozen=True)
class SimulatedCache:
    """One cache as llama.cpp would make it: the device of each of its layers, and its bytes to 0.01 MiB."""

    devices: dict[int, str]
    n_bytes: int


@dataclass(frozen=True)
class Simulation:
    """What llama.cpp would allocate; devices are "host", "gpu0", ... in its own order.

    layers has the device of each block and, last, of the output.
    """

    compute_bytes: dict[str, int]
    output_bytes: int
    caches: tuple[SimulatedCache, ...]
    layers: tuple[str, ...]


def simulate(model: Model, settings: Settings, n_outputs_max: int = 0) -> Simulation:
    """The allocations that llama.cpp plans for `settings`, on the devices that they name.

    n_outputs_max is llama.cpp's: rows of logits to reserve for, 0 for one for each token of a batch.
    The same question is not asked twice; where several devices share the layers by their free memory it is.
    Raises EngineRefused where llama.cpp refuses, EngineCrashed where it stops, EngineUnavailable without it.
    """
    path = header_file(model)
    asked = file_identity(path), settings, n_outputs_max
    if asked not in _SIMULATIONS or settings.devices is None or len(settings.devices) > 1:
        written = None if path == model.path else model
        log = _engine_for(settings).simulate(path, settings, n_outputs_max, written)
        _SIMULATIONS[asked] = read_log(log, settings.rpc_servers)
    while len(_SIMULATIONS) > MOST_SIMULATIONS:
        _SIMULATIONS.pop(next(iter(_SIMULATIONS)))
    return _SIMULATIONS[asked]


_SIMULATIONS: dict[tuple[FileIdentity | None, Settings, int], Simulation] = {}


def simulate_stand_in(model: Model, settings: Settings, n_outputs_max: int = 0, n_devices: int = 1) -> Simulation:
    """The same on loopback devices, in place of GPUs that this machine does not have, or of devices in use.

    Raises DeviceUnavailable where this llama.cpp has no RPC backend.
    """
    servers = tuple(device.endpoint for device in _stand_ins(n_devices))
    if n_devices > 1:  # devices of several servers have the same name, so that none can be named
        return simulate(model, settings.but(rpc_servers=servers, devices=None), n_outputs_max)
    on_loopback = settings.but(
        rpc_servers=servers,
        devices=(STAND_IN,),
        tensor_split=None,
        main_gpu=0,
        override_tensor=tuple(map(_to_stand_in, settings.override_tensor)),
    )
    return simulate(model, on_loopback, n_outputs_max)


def _to_stand_in(override: str) -> str:
    """An override with the stand-in in place of its device."""
    pattern, buffer = override.split("=", 1)
    return f"{pattern}={buffer if buffer == HOST_BUFFER else STAND_IN}"


def machine() -> Machine:
    """The host, with the devices that this llama.cpp has on it."""
    return _machine(_engine(()))


def read_log(log: str, rpc_servers: tuple[str, ...] = ()) -> Simulation:
    """The simulation in llama.cpp's log, which calls a device RPC1 and its buffers RPC0[endpoint of server 1]."""
    for i, endpoint in enumerate(rpc_servers):
        log = log.replace(f"RPC0[{endpoint}]", f"RPC{i}")
    placed = dict(PLACED_LINE.findall(log))
    names = [placed[key] for key in sorted(placed, key=int)]
    known = _gpu_names(log, names)
    compute = {_device(name, known): _bytes(size) for name, size in COMPUTE_LINE.findall(log)}
    output = sum(_bytes(size) for _, size in OUTPUT_LINE.findall(log))
    return Simulation(compute, output, _caches(log, known), tuple(_device(name, known) for name in names))


def header_file(model: Model) -> Path:
    """The model's file; where there is none, a temporary file with its header and no data, deleted with the session."""
    if model.path.is_file() and model.path.stat().st_size == model.file_bytes:
        return model.path
    keys = {key: value for key, value in model.metadata.items() if isinstance(value, (bool, int, float, str, tuple))}
    keys = {key: value for key, value in keys.items() if not key.startswith(OF_THE_FILE)}
    keys["tokenizer.ggml.model"] = "no_vocab"
    if model.n_vocab is not None:
        keys[f"{model.architecture}.vocab_size"] = model.n_vocab
    arrays = [key for key, value in model.metadata.items() if isinstance(value, LazyArray) and value.kind != STRING]
    numbers = {key: model.numbers(key) for key in arrays if not key.startswith("tokenizer.")}
    return _sparse_file((*keys.items(), *numbers.items()), model.tensors)


@lru_cache(maxsize=MOST_HEADERS)
def _sparse_file(keys: tuple[tuple[str, Any], ...], tensors: tuple[Tensor, ...]) -> Path:
    """A sparse file with all the bytes of a model, of one part or several, that takes only the header's on disk."""
    padded = (tensor.n_bytes + -tensor.n_bytes % DEFAULT_ALIGNMENT for tensor in tensors)
    *starts, end = accumulate(padded, initial=0)
    header = header_bytes(dict(keys), tuple(replace(t, offset=at) for t, at in zip(tensors, starts, strict=True)))
    path = _folder() / f"{hashlib.sha1(header).hexdigest()[:16]}.gguf"
    if not path.exists():
        with path.open("wb") as file:
            file.write(header)
            file.truncate(len(header) + end)
    return path


@lru_cache(maxsize=1)
def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="inferlab-headers-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


_ENGINES: dict[tuple[str, ...], LlamaEngine] = {}
"""One engine for each set of RPC servers, the last used at the end: ggml cannot remove a registered device."""


def lend(engine: LlamaEngine) -> None:
    """Simulate this machine's own devices in a worker that is already there."""
    _ENGINES[()] = engine


def _engine_for(settings: Settings) -> LlamaEngine:
    """The engine with these servers; the last used for the host alone, which is the same beside any servers."""
    if settings.devices == () and _ENGINES:
        return next(reversed(_ENGINES.values()))
    return _engine(settings.rpc_servers)


def _engine(rpc_servers: tuple[str, ...], new: LlamaEngine | None = None) -> LlamaEngine:
    engine = _ENGINES.pop(rpc_servers, None) or new or LlamaEngine()
    with_servers = [servers for servers in _ENGINES if servers]
    for servers in with_servers[: 1 - MOST_ENGINES]:
        _ENGINES.pop(servers).close()
    _ENGINES[rpc_servers] = engine
    return engine


@lru_cache(maxsize=1)
def _machine(engine: LlamaEngine) -> Machine:
    return engine.machine()


_LOOPBACK: list[LoopbackDevice] = []


def _stand_ins(n_devices: int) -> list[LoopbackDevice]:
    """Loopback devices that run, as many as asked; the worker that will use new ones starts beside them."""
    _LOOPBACK[:] = [device for device in _LOOPBACK if device.alive]
    if len(_LOOPBACK) < n_devices:
        require_rpc()
        engine = LlamaEngine()
        engine.prepare()
        while len(_LOOPBACK) < n_devices:
            _LOOPBACK.append(loopback_device(n_threads=1))
        _engine(tuple(device.endpoint for device in _LOOPBACK), engine)
    return _LOOPBACK[:n_devices]


def _gpu_names(log: str, placed: list[str]) -> list[str]:
    """Every device except the host, RPC devices first, in llama.cpp's order (llama.cpp:276)."""
    names = {*placed, *(name for name, _ in COMPUTE_LINE.findall(log))}
    return sorted((name for name in names if not on_host(name)), key=lambda name: (not name.startswith("RPC"), name))


def _device(name: str, gpus: list[str]) -> str:
    return HOST_DEVICE if on_host(name) else f"gpu{gpus.index(name)}"


def _caches(log: str, gpus: list[str]) -> tuple[SimulatedCache, ...]:
    """Read the caches; the log has the layers of each before the line with its size."""
    caches, devices = [], {}
    for line in log.splitlines():
        if layer := CACHE_LAYER_LINE.search(line):
            devices[int(layer[1])] = _device(layer[2], gpus)
        elif size := CACHE_LINE.search(line):
            caches.append(SimulatedCache(devices, _bytes(size[1])))
            devices = {}
    return tuple(cache for cache in caches if cache.devices)


def _bytes(mebibytes: str) -> int:
    return round(float(mebibytes) * MIB)
