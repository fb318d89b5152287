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


def unknown_in(seen: Observed) -> Iterator[str]:
    """The sentences, what is missing from this log first, then what no log shows."""
    how = VERBOSE.get(seen.program.name, "")
    if not seen.buffers:
        yield f"The log does not say where weights and cache lie. {how}".strip()
    elif seen.layers is None:
        yield "The log does not name each layer's device; `offloaded` repeats what was asked for."
    elif seen.layers.basis == "cache":
        yield "The log does not name the output layer's device; those of the others follow from the cache."
    if seen.load.n_loads == 0:
        yield "The log has no line of a load: it begins after the model was loaded, or ends before."
    if seen.rates[1] is None:
        yield "The log has no finished request, so it has no rates."
    on_gpu = seen.bytes_on("weights", host=False)
    if on_gpu:
        yield "The log does not say which processor computes attention."
        if not any(device.free_bytes for device in seen.devices):
            yield "The log does not say how much memory of the GPU was free, nor whether the driver moved some to RAM."
    if not on_gpu and not seen.devices and seen.found_a_gpu is None:
        yield "The log names no GPU; it does not say whether the machine has one."
    yield "No log shows clocks, temperatures, and what other programs do on the machine."
