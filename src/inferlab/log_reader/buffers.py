"""Buffers under the names of the devices that hold them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence

from inferlab.engine.log import BUFFER_NAME, Buffer
from inferlab.log_reader.report import LoggedDevice
from inferlab.log_reader.text import Line, LogText
from inferlab.machine import on_host
from inferlab.units import MIB

KINDS = {
    "model": "weights",
    "KV": "kv_cache",
    "RS": "recurrent",
    "state": "recurrent",
    "compute": "compute",
    "output": "output",
    "LoRA": "adapter",
    "projector": "projector",
}
PART_OF_A_DEVICE = re.compile(r"(?:_Mapped|_Private|-REPACK)$")
"""Metal's mapped and private memory (ggml-metal.cpp:382, 458), Hexagon's weights in its own order."""

COMPUTE = re.compile(rf"{BUFFER_NAME}compute buffer size")


def last_reserved(lines: Iterable[Line], contexts: Sequence[int]) -> list[str]:
    """Lines of buffers without computes that a later reservation of the same context replaced.

    contexts  the lines on which a context begins, src/llama-context.cpp:93; each may be reserved again and again
    """
    kept: dict[object, str] = {}
    for line in lines:
        match = COMPUTE.search(line.text) if " compute buffer size" in line.text else None
        key = (bisect_right(contexts, line.number), match[1], match[2]) if match else line.number
        kept[key] = line.text
    return list(kept.values())


def folded(buffers: Iterable[Buffer], devices: Iterable[LoggedDevice]) -> Iterator[Buffer]:
    """Buffers of one kind on one device as one; in RAM each kind of memory keeps its name."""
    known = {device.name: device for device in devices}
    places: dict[str, str] = {}
    totals: dict[tuple[str, str], int] = {}
    for buffer in buffers:
        if buffer.device not in places:
            places[buffer.device] = buffer.device if on_host(buffer.device) else _device_of(buffer.device, known)
        key = (places[buffer.device], buffer.kind)
        totals[key] = totals.get(key, 0) + buffer.n_bytes
    return (Buffer(device, kind, n_bytes) for (device, kind), n_bytes in totals.items())


def _device_of(buffer: str, by_name: dict[str, LoggedDevice]) -> str:
    """The device of a buffer, which in 2024 could have the description of its GPU for a name."""
    name = PART_OF_A_DEVICE.sub("", buffer)
    if name in by_name or name.partition("[")[0] in by_name:
        return name
    devices = tuple(by_name.values())
    for device in devices:
        if device.description and name.startswith(device.description):
            return device.name
    if name == "OpenCL":
        return next((device.name for device in devices if "OpenCL" in device.name), name)
    return _of_a_split(name, devices)


def _of_a_split(name: str, devices: tuple[LoggedDevice, ...]) -> str:
    """Rows divided among all devices of a backend (ggml-sycl.cpp:1446) lie on the only one, if there is one."""
    backend, split, _ = name.partition("_Split")
    here = [device.name for device in devices if device.name.startswith(backend)]
    return here[0] if split and len(here) == 1 else name


ACCELERATION = re.compile(r"using (CUDA|ROCm|OpenCL) for GPU acceleration")
SUMS = (
    ("_tensors: mem required ", "weights", False, re.compile(r"mem required {1,4}= {0,8}(\d{1,8}(?:\.\d{1,3})?) Mi?B")),
    (
        "_tensors: system memory used ",
        "weights",
        False,
        re.compile(r"memory used {1,4}= {0,8}(\d{1,8}(?:\.\d{1,3})?) MiB"),
    ),
    (": VRAM used", "weights", True, re.compile(r"_tensors: VRAM used(?::| {1,20}=) {0,8}(\d{1,8}\.\d\d) Mi?B")),
    (": VRAM kv self = ", "kv_cache", True, re.compile(r"VRAM kv self = {0,8}(\d{1,8}(?:\.\d{1,3})?) Mi?B")),
    (": VRAM scratch buffer: ", "compute", True, re.compile(r"scratch buffer: {0,8}(\d{1,8}(?:\.\d{1,3})?) Mi?B")),
    (" kv self size  = ", "kv_cache", False, re.compile(r"kv self size  = {0,8}(\d{1,8}(?:\.\d{1,3})?) Mi?B")),
    (" KV self size  = ", "kv_cache", False, re.compile(r"KV self size  = {0,8}(\d{1,8}(?:\.\d{1,3})?) Mi?B")),
    ("compute buffer total size = ", "compute", False, re.compile(r"total size = {0,8}(\d{1,8}(?:\.\d{1,3})?) Mi?B")),
)
"""llama.cpp's lines until January 2024, which sum all devices up; a sum of both follows that of the devices."""


def sums_of_2023(log: LogText, start: int, ends: int, names: Iterable[str]) -> tuple[Buffer, ...]:
    """What was allocated, by llama.cpp's lines of 2023; on a device whose backend they name, or on none."""
    line = log.first(" for GPU acceleration", start, ends)
    match = line and ACCELERATION.search(line.text)
    device = _only_one(match[1], names) if match else "GPU"
    found: dict[str, Buffer] = {}
    for needle, kind, on_device, pattern in SUMS:
        line = log.first(needle, start, ends)
        if line and (size := pattern.search(line.text)):
            key = f"{kind} {on_device}" if kind == "weights" else kind
            found.setdefault(key, Buffer(device if on_device else "CPU", kind, round(float(size[1]) * MIB)))
    return tuple(found.values()) if any(part.kind == "weights" for part in found.values()) else ()


def _only_one(backend: str, names: Iterable[str]) -> str:
    """The backend's device, where it has one, else the backend."""
    here = [name for name in names if name.startswith(backend)]
    return here[0] if len(here) == 1 else backend
