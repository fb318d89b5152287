"""What a log does not say, in sentences: named in place of a guess."""

from __future__ import annotations

from collections.abc import Iterator

from inferlab.log_reader.observed import Observed

VERBOSE = {
    "llama-server": "Start llama-server with `-lv 4`.",
    "llama.cpp": "Start the program with `-lv 4`.",
    "llama-cpp-python": "Make the model with `verbose=True`.",
    "Ollama": "Take the server's log from its start, with `OLLAMA_DEBUG=1`.",
    "LM Studio": "Turn on verbose logging in its developer settings.",
}

OFFLOADED = "; `offloaded` repeats what was asked for."
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
)
"""Errors of a GPU, so that there is one."""


def unknown_in(seen: Observed) -> Iterator[str]:
    """The sentences, what is missing from this log first, then what no log shows."""
    how = VERBOSE.get(seen.program.name, "")
    if not seen.buffers:
        yield f"The log does not say where weights and cache lie. {how}".strip()
    elif seen.layers is None:
        repeats = seen.offloaded and seen.program.key != "ollama"
        yield f"The log does not name each layer's device{OFFLOADED if repeats else '.'}"
    elif seen.layers.basis == "cache":
        yield "The log does not name the output layer's device; those of the others follow from the cache."
    if seen.load.n_loads == 0 and not _ollamas_load(seen):
        yield LOAD_CUT if seen.buffers or any(seen.log.has(word) for word in LOAD_PARTS) else NO_LOAD
    if seen.rates[1] is None:
        yield "The log has no timings of a finished request, so it has no rates."
    on_gpu = seen.bytes_on("weights", host=False)
    if on_gpu:
        yield "The log does not say which processor computes attention."
        if seen.found_a_gpu:
            yield "The log does not say whether the driver moved memory of the GPU to RAM."
        elif not any(device.free_bytes for device in seen.devices):
            yield "The log does not say how much memory of the GPU was free, nor whether the driver moved some to RAM."
    if not (on_gpu or seen.devices or any(seen.first(word) for word in OF_A_GPU)) and seen.found_a_gpu is None:
        yield "The log names no GPU; it does not say whether the machine has one."
    yield "No log shows clocks, temperatures, and what other programs do on the machine."


def _ollamas_load(seen: Observed) -> bool:
    """Whether Ollama says how a load began, or that it refused it; its own engine has no other first line."""
    return seen.runner_started or any(seen.log.has(f'msg="{said}') for said in ("Load failed", "error loading"))
