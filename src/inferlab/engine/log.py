"""Parses llama.cpp's log: the buffers it allocated, and the duration of each phase of a cold start."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inferlab.units import MIB

LAYER_LINE = re.compile(
    r"load_tensors: layer {1,6}(\d{1,6}) assigned to device (Meta\([^)\n]{0,200}\)|[^\s,]{1,80})"
)  # llama-model.cpp:1594, before May 2025 without what follows
REARRANGED_LINE = re.compile(r"(amx )?repack tensor (\S+) (?:with|of type) ")  # amx.cpp:70, repack.cpp:4917
LOG_INFO = 2  # enum ggml_log_level
WORD = r"[^\s]{0,80}[^\s:]"
BUFFER_NAME = rf"(?:(?<!\w)(\w{{1,60}}): |^) {{0,20}}({WORD}(?: {WORD}){{0,8}}?) {{1,20}}"
"""The function that writes a line about a buffer, and the buffer's name, which may have blanks."""
BUFFER_LINE = re.compile(
    rf"{BUFFER_NAME}(?:DSV4 \w{{1,9}} )?(?:(model|KV|compute|output|RS|state|LoRA) )?"
    r"buffer size {0,4}= {0,12}(\d{1,12}(?:\.\d{1,6})?) MiB",
    re.MULTILINE,
)
"""llama-model.cpp:1930, llama-kv-cache.cpp:291, llama-kv-cache-dsv4.cpp:992, llama-context.cpp:381, 740.

Before 2025 the line of the weights was `llm_load_tensors: CUDA0 buffer size =`, without a word for what it holds.
"""
OLD_WEIGHTS, PROJECTOR = "llm_load_tensors", ("reserve_compute_meta", "alloc_compute_meta")  # tools/mtmd/clip.cpp:3815
BUFFER_KINDS = {
    "model": "weights",
    "KV": "kv_cache",
    "RS": "kv_cache",
    "state": "kv_cache",
    "compute": "compute",
    "output": "output",
}


@dataclass(frozen=True)
class Buffer:
    """One allocation as llama.cpp logged it; exact to 0.01 MiB, which is the precision of the log."""

    device: str
    kind: str
    n_bytes: int


@dataclass(frozen=True)
class TensorPlaces:
    """Places of tensors, from debug lines of llama.cpp's log; empty where it did not load the model again.

    rearranged  tensor -> "CPU_REPACK" or "AMX", for each that was rearranged for the processor's kernels
    layers      layer -> device; the output layer has the last number
    """

    rearranged: dict[str, str] = field(default_factory=dict)
    layers: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LogLine:
    """One line of llama.cpp's log; seconds since llama_model_load_from_file was called."""

    seconds: float
    level: int
    text: str


# A phase ends at the first (or last) log line with this text; llama-model.cpp, llama-context.cpp.
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
    map_and_buffers  map the file (llama.cpp requests all of it at once) and allocate the weight buffers
    weights          read, repack or upload the weights into their buffers
    kv_cache         construct the context and allocate the KV cache
    graph_reserve    build the worst-case graphs and allocate the compute buffers

    If the line of a boundary is missing, its phase's time counts for the next phase.
    """
    ends = [*_phase_ends(lines, LOAD_BOUNDARIES), ("weights", loaded)]
    ends += [end for end in _phase_ends(lines, CONTEXT_BOUNDARIES) if end[1] > loaded]
    ends.append(("graph_reserve", ready))
    phases: dict[str, float] = {}
    previous = 0.0
    for name, seconds in ends:
        phases[f"{name}_seconds"] = phases.get(f"{name}_seconds", 0.0) + seconds - previous
        previous = seconds
    return phases


def _phase_ends(lines: Sequence[LogLine], boundaries) -> list[tuple[str, float]]:
    ends = []
    for name, text, which in boundaries:
        times = [line.seconds for line in lines if text in line.text]
        if times:
            ends.append((name, times[0] if which == "first" else times[-1]))
    return ends


def buffers_in(log: str, kinds: Mapping[str, str] = BUFFER_KINDS) -> tuple[Buffer, ...]:
    """The allocations that llama.cpp's log reports; several of one kind on one device are summed.

    kinds  llama.cpp's word -> kind; buffers of other words are left out
    """
    totals: dict[tuple[str, str], int] = {}
    for function, device, word, mebibytes in BUFFER_LINE.findall(log):
        kind = kinds.get(_word_of(function, word))
        if kind:
            key = (device, kind)
            totals[key] = totals.get(key, 0) + round(float(mebibytes) * MIB)
    return tuple(Buffer(device, kind, n_bytes) for (device, kind), n_bytes in totals.items())


def _word_of(function: str, word: str) -> str:
    if function in PROJECTOR:
        return "projector"
    return "model" if function == OLD_WEIGHTS and not word else word


def tensor_places_in(log: str) -> TensorPlaces:
    """The rearranged tensors and the devices of the layers that llama.cpp's log reports in debug lines."""
    rearranged = {name: "AMX" if amx else "CPU_REPACK" for amx, name in REARRANGED_LINE.findall(log)}
    return TensorPlaces(rearranged, {int(layer): device for layer, device in LAYER_LINE.findall(log)})
