"""What a log does not say, in sentences: named in place of a guess."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from inferlab.log_reader.conditions.afterwards import has_benchmark
from inferlab.log_reader.conditions.found import MOST_READ
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.programs import EMBEDDING
from inferlab.machine import on_host

VERBOSE = {
    "llama-server": "Start llama-server with `-lv 4`.",
    "llama.cpp": "Start the program with `-lv 4`.",
    "llama-cpp-python": "Make the model with `verbose=True`.",
    "Ollama": "Take the server's log from its start, with `OLLAMA_DEBUG=1`.",
    "LM Studio": "Turn on verbose logging in its developer settings.",
}

OFFLOADED = "; `offloaded` repeats what was asked for."
LAYERS = {
    "offloaded": (
        "The log counts the layers on devices, and does not name them or single tensors that lie elsewhere.",
    ),
    "cache": ("The log does not name the output layer's device; those of the others follow from the cache.",),
    "cached layers": ("The log names no layer's device; only those of the layers with a KV cache follow from it.",),
}
"""What stays open, by what the layers' devices were read from."""
NO_LOAD = "The log has no line of a load: it begins after the model was loaded, or ends before."
LOAD_CUT = "The beginning of the load is missing."
LOAD_PARTS = (
    "print_info: ",
    "load_tensors: ",
    "llm_load_",
    "llama_context: ",
    "llama_new_context_with_model: ",
    "llama_init_from_model: ",
    "llama_kv_cache",
    "llama_model_load",
    "using device ",
    "buffer size",
    "gguf_init_from_",
    "exiting due to model loading error",
)
"""Strings of a load after its first line."""
OF_A_GPU = (
    "cudaMalloc failed",
    "unable to allocate CUDA",
    "CUDA error: ",
    "ROCm error: ",
    "ErrorOutOfDeviceMemory",
    "kIOGPUCommandBuffer",
    "failed to allocate Metal buffer",
    "ggml_metal_init: ",
    "ggml_metal_device_init: GPU name",
    "level_zero backend failed",
    "Native API failed",
    "SYCL error",
    "ggml_vulkan: 0 = ",
    "ggml-vulkan.cpp:",
    "ggml-cuda.cu:",
    "ggml-sycl.cpp:",
    'msg="available gpu" id=',
    'msg="gpu memory" id=',
)
"""Errors or other words of a GPU, so that there is one."""
NAMES_A_GPU = re.compile(
    r"NVIDIA|GeForce|\bRTX\b|Radeon|\bgfx\d{3}|Apple M\d|Intel\(R\) (?:Arc|UHD|Iris|HD)"
    r"|\b(?:CUDA|ROCm|Vulkan|SYCL|MTL)\d|\bMetal\b|library=\\?\"?(?:cuda|rocm|metal|vulkan)",
    re.IGNORECASE,
)
"""Words of a GPU's name: where any stands, nobody is told that the log names none."""


def unknown_in(seen: Observed) -> Iterator[str]:
    """The sentences, what is missing from this log first, then what no log shows."""
    how = VERBOSE.get(seen.program.name, "")
    if not seen.buffers:
        yield f"The log does not say where weights and cache lie. {how}".strip()
    elif seen.layers is None:
        repeats = seen.offloaded and seen.program.key != "ollama"
        yield f"The log does not name each layer's device{OFFLOADED if repeats else '.'}"
    else:
        yield from LAYERS.get(seen.layers.basis, ())
    if seen.load.n_loads == 0 and not _ollamas_load(seen):
        yield LOAD_CUT if seen.buffers or any(seen.log.has(word) for word in LOAD_PARTS) else NO_LOAD
    if seen.load.next_begun:
        yield "The log ends in the first lines of another load, and does not say how that went."
    if seen.rates[1] is None and not has_benchmark(seen.log):
        yield f"The log has no timings of a finished request, so it has no rates.{_longest_wait(seen)}"
    on_gpu = seen.bytes_on("weights", host=False)
    if on_gpu:
        yield "The log does not say which processor computes attention."
        if seen.found_a_gpu:
            yield "The log does not say whether the driver moved memory of the GPU to RAM."
        elif not any(device.free_bytes for device in seen.devices if device.used):
            yield "The log does not say how much memory of the GPU was free, nor whether the driver moved some to RAM."
    if seen.buffers and seen.found_a_gpu is None and not (seen.devices or _has_a_gpu(seen)):
        yield "The log names no GPU; it does not say whether the machine has one."
    if seen.program.name in EMBEDDING:
        own = EMBEDDING[seen.program.name]
        yield f"Fixes name llama.cpp's options; {seen.program.name} has names of its own for them{own}."
    yield "No log shows clocks, temperatures, and what other programs do on the machine."


WAITED = re.compile(r'\| {1,20}((?:\d{1,3}h)?(\d{1,3})m(\d{1,2})s) \|.{1,80}POST {1,8}"/(?:api/(?:chat|gen)|v1/)')


def _longest_wait(seen: Observed) -> str:
    """The longest request of Ollama that took minutes; its server times each one whole."""
    lines = islice(seen.log.lines_with("[GIN] ", seen.load.loader), MOST_READ)
    waits = [(int(m[2]) * 60 + int(m[3]), m[1]) for line in lines if (m := WAITED.search(line.text))]
    return f" Its longest request took {max(waits)[1]}." if waits else ""


def _has_a_gpu(seen: Observed) -> bool:
    """Whether a buffer lies on a device, or in memory that its driver gave, or a line has an error of one."""
    names = {buffer.device for buffer in seen.buffers}
    held = any(not on_host(name) or (name.endswith("_Host") and name != "CPU_Host") for name in names)
    return (
        held or any(seen.first(word) for word in OF_A_GPU) or bool(NAMES_A_GPU.search(seen.log.text, seen.load.start))
    )


def _ollamas_load(seen: Observed) -> bool:
    """Whether Ollama says how a load began, or that it refused it; its own engine has no other first line."""
    return seen.runner_started or any(seen.log.has(f'msg="{said}') for said in ("Load failed", "error loading"))
