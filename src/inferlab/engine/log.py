"""What llama.cpp's log says about loading: which buffers were allocated, and how long each phase took."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from inferlab.units import MIB

LOG_INFO = 2  # enum ggml_log_level
BUFFER_LINE = re.compile(r"(\S+)\s+(model|KV|compute|output|RS) buffer size\s*=\s*([\d.]+) MiB")
BUFFER_KINDS = {"model": "weights", "KV": "kv_cache", "RS": "kv_cache", "compute": "compute", "output": "output"}


@dataclass(frozen=True)
class Buffer:
    """One allocation as llama.cpp logged it; exact to 0.01 MiB, because that is how it is printed."""

    device: str
    kind: str
    n_bytes: int


@dataclass(frozen=True)
class LogLine:
    """One line of llama.cpp's log; seconds since llama_model_load_from_file was called."""

    seconds: float
    level: int
    text: str


# A phase ends where the first (or last) log line with this text stands; llama-model.cpp, llama-context.cpp.
LOAD_BOUNDARIES = (
    ("header", "init_tokenizer:", "first"),
    ("vocabulary", "load_tensors: loading model tensors", "first"),
    ("tensor_list", "create_tensor: loading tensor", "last"),
    ("map_and_buffers", "model buffer size", "last"),
)
CONTEXT_BOUNDARIES = (("kv_cache", " KV buffer size", "last"), ("kv_cache", " RS buffer size", "last"))


def phases_in(lines: Sequence[LogLine], loaded: float, ready: float) -> dict[str, float]:
    """Seconds of each phase of a cold start inside llama.cpp, in order; they add up to `ready`.

    header           open the file, read metadata and tensor infos
    vocabulary       build the tokenizer
    tensor_list      decide which buffer type each tensor goes to
    map_and_buffers  map the file (llama.cpp asks for all of it at once) and allocate the weight buffers
    weights          read, repack or upload the weights into their buffers
    kv_cache         construct the context and allocate the KV cache
    graph_reserve    build the worst-case graphs and allocate the compute buffers

    A boundary whose line is missing leaves its time to the phase after it.
    """
    marks = [*_marks(lines, LOAD_BOUNDARIES), ("weights", loaded)]
    marks += [mark for mark in _marks(lines, CONTEXT_BOUNDARIES) if mark[1] > loaded]
    marks.append(("graph_reserve", ready))
    phases: dict[str, float] = {}
    before = 0.0
    for name, at in marks:
        phases[f"{name}_seconds"] = phases.get(f"{name}_seconds", 0.0) + at - before
        before = at
    return phases


def _marks(lines: Sequence[LogLine], boundaries) -> list[tuple[str, float]]:
    marks = []
    for name, text, which in boundaries:
        times = [line.seconds for line in lines if text in line.text]
        if times:
            marks.append((name, times[0] if which == "first" else times[-1]))
    return marks


def buffers_in(log: str) -> tuple[Buffer, ...]:
    """The allocations that llama.cpp's log reports; several of one kind on one device are added up."""
    totals: dict[tuple[str, str], int] = {}
    for device, kind, mebibytes in BUFFER_LINE.findall(log):
        key = (device, BUFFER_KINDS[kind])
        totals[key] = totals.get(key, 0) + round(float(mebibytes) * MIB)
    return tuple(Buffer(device, kind, n_bytes) for (device, kind), n_bytes in totals.items())
