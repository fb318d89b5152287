"""Conditions of data/facts/log_findings.toml that need more than one line, or arithmetic.

Each takes the observed facts and returns the lines on which it rests, with the values for its sentence, or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from inferlab.log_reader.observed import RUNNER_STARTS, UNKNOWN_PROGRAM, Observed
from inferlab.log_reader.report import on_host
from inferlab.log_reader.text import Line
from inferlab.units import MIB, bytes_text

FAST_PAIRS = {("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")}
"""Cache types with flash-attention kernels in a default CUDA build, ggml-cuda/fattn.cu."""
LONG_PROMPT = 512
FEWEST_REQUESTS = 3
MUCH_CACHE = 1024 * MIB
FEW_ACCEPTED = 0.5
FEWEST_DRAFTED = 100
MOST_LINES = 4


@dataclass(frozen=True)
class Found:
    """Lines that show a condition, and values for its sentence."""

    lines: tuple[Line, ...]
    values: dict[str, Any] = field(default_factory=dict)


def weights_do_not_fit(seen: Observed) -> Found | None:
    line = seen.first("unable to allocate ")
    if not line or not (match := re.search(r"unable to allocate (\S{1,60}) buffer", line.text)):
        return None
    return Found(_with_allocation(seen, line), {"device": match[1], "size": _size(seen)})


def cache_does_not_fit(seen: Observed) -> Found | None:
    line = seen.first("failed to allocate buffer for kv cache") or seen.first("failed to allocate buffer for rs cache")
    return Found(_with_allocation(seen, line), {"size": _size(seen)}) if line else None


def compute_does_not_fit(seen: Observed) -> Found | None:
    line = seen.first("failed to allocate compute pp buffers") or seen.first("failed to allocate compute tg buffers")
    line = line or seen.first("graph_reserve: failed to allocate compute buffers")
    return Found(_with_allocation(seen, line), {"size": _size(seen)}) if line else None


ALLOCATIONS = {
    "cudaMalloc failed": re.compile(r"allocating (\d{1,9}(?:\.\d{1,4})?) MiB on device \d{1,3}: cudaMalloc failed"),
    " buffer of size ": re.compile(r"failed to allocate \S{1,80} buffer of size (\d{1,15})"),  # ggml-alloc.c:941, 1134
}


def _allocation(seen: Observed) -> tuple[Line, int] | None:
    """The last allocation that failed: CUDA's own line, in MiB, or that of every backend, in bytes."""
    for needle, pattern in ALLOCATIONS.items():
        line = seen.log.last(needle, seen.load.start)
        if line and (match := pattern.search(line.text)):
            return line, round(float(match[1]) * (MIB if "MiB" in pattern.pattern else 1))
    return None


def _with_allocation(seen: Observed, line: Line) -> tuple[Line, ...]:
    allocation = _allocation(seen)
    return (allocation[0], line) if allocation else (line,)


def _size(seen: Observed) -> str:
    allocation = _allocation(seen)
    return f"; {bytes_text(allocation[1])} were asked for" if allocation else ""


KILLED = re.compile(
    r"^(?:.{0,80}\| )?(?:\[\d{1,4}\]\+? +)?(?:\S{1,80}: line \d{1,6}: +)?(?:\d{1,8} +)?Killed(?: {2,}.{0,200})?$"
    r"|Killed process \d|oom-kill"
)


def killed(seen: Observed) -> Found | None:
    """A line of the shell, or the kernel's own."""
    for needle in ("Killed", "Out of memory: Killed process", "oom-kill"):
        for line in seen.lines(needle):
            if KILLED.search(line.text):
                return Found((line,))
    return None


OPENING_FAILED = (
    r"failed to open GGUF file '([^']{0,300})'(?: \((?:errno )?(.{1,100}?)\))?\s*$",  # ggml 0.25.3; llama.cpp#18884
    r"error loading model: failed to open (\S.{0,300}?): (.{1,100}?)\s*$",  # src/llama-mmap.cpp
    r"Model path does not exist: (\S.{0,300}?)()\s*$",  # llama_cpp/_internals.py:54
)
NO_SUCH_FILE = ("No such file or directory", "")


def missing_file(seen: Observed) -> Found | None:
    """A model's file that is not there, or may not be read; older versions of llama.cpp do not say which."""
    for needle, pattern in zip(
        ("failed to open GGUF file", ": failed to open ", "Model path does not exist"), OPENING_FAILED, strict=True
    ):
        line = seen.first(needle)
        if line and (match := re.search(pattern, line.text)):
            return Found((line,), {"what": _not_opened(match[1], match[2])})
    return None


def _not_opened(name: str, why: str | None) -> str:
    if why in NO_SUCH_FILE:
        return f"There is no file {name}."
    return f"The file {name} could not be opened{f': {why}' if why else ': it is missing, or may not be read'}."


LOAD_FAILED = (
    "error loading model: ",
    "failed to initialize the context: ",  # src/llama-context.cpp:3899
    'msg="error loading llama server"',  # ollama server/sched.go:734
    'msg="Load failed"',  # ollama server/sched.go:641
    'msg="model request too large for system"',  # ollama v0.12.3 llm/server.go:539
    'msg="model is too large for system memory"',  # ollama server/sched.go
    "llama runner process has terminated",  # ollama v0.12.3 llm/server.go:1261
    "llama runner process no longer running",
    "llama-server process has terminated",  # ollama llm/llama_server.go:1306
    "llama-server process no longer running",
    ": failed to load model",
    "failed to create context with model",
    "failed to create_context with model",
    "Failed to load model from file: ",  # llama_cpp/_internals.py:62
    "Failed to create llama_context",
    "[Endpoint=loadModel] Error in channel handler",  # lmstudio-bug-tracker#417, #914
    "exiting due to model loading error",
    "exiting due to HTTP server error",
)
"""What programs write when a load failed, the line that is most likely to say why first."""
LOADED = (
    "llama_server: model loaded",
    "main: model loaded",
    "all slots are idle",
    "eval time =",
    "runner started in ",
    "llama-server started in ",
)


def load_failed(seen: Observed) -> Found | None:
    """A load that ended in an error, and not only the simulation of `-fit` or a first try of Ollama."""
    text, start = seen.log.text, seen.load.start
    last = max(text.rfind(needle, start) for needle in LOAD_FAILED)
    if last < start or any(seen.log.has(word, last) for word in LOADED):
        return None
    return Found((next(line for needle in LOAD_FAILED if (line := seen.log.last(needle, start))),))


ERROR_LINES = {
    "level=ERROR": re.compile(r"level=ERROR source="),  # Ollama
    " E ": re.compile(r"\d\.\d\d\.\d{3}\.\d{3} E "),  # common/log.cpp
    "[GIN] ": re.compile(r"\| 5\d\d \|"),  # a status of Ollama's server
    "[error] [LMSInternal]": re.compile(r"\[error\]"),  # lmstudio-bug-tracker#914
}


def error_lines(seen: Observed) -> Found | None:
    """Lines that the program itself marks as errors."""
    if seen.program.name == UNKNOWN_PROGRAM:
        return None
    lines = [
        line for needle, pattern in ERROR_LINES.items() for line in seen.lines(needle) if pattern.search(line.text)
    ]
    return Found(tuple(lines[:MOST_LINES])) if lines else None


def request_too_long(seen: Observed) -> Found | None:
    """llama-server's 400, or llama-cpp-python's ValueError."""
    for needle, pattern in (
        (
            "exceeds the available context size",
            r"request \((\d{1,12}) tokens\) exceeds the available context size \((\d{1,12})",
        ),
        ("exceed context window of", r"Requested tokens \((\d{1,12})\) exceed context window of (\d{1,12})"),
        ("exceeds the available context size", r"the request exceeds the available context size()()"),
        ("the prompt is longer than the context length", r"the prompt is longer than the context length()()"),
    ):
        line = seen.first(needle)
        if line and (match := re.search(pattern, line.text)):
            return Found(*_too_long(seen, line, match[1], match[2]))
    return None


def _too_long(seen: Observed, line: Line, tokens: str, limit: str) -> tuple[tuple[Line, ...], dict[str, str]]:
    what = (
        f"A request of {int(tokens):,} tokens is longer than the context of {int(limit):,}."
        if tokens
        else "A request is longer than the context."
    )
    context = seen.context
    if context.n_slots and context.n_slots > 1 and context.kv_unified is False and context.n_ctx:
        slots = seen.first("n_slots = ")
        what = what[:-1] + f", which is {context.n_ctx:,} divided among {context.n_slots} slots."
        return ((line, slots) if slots else (line,)), {"what": what}
    if limit == "512" and seen.program.key == "python":
        what += " 512 is the default of llama-cpp-python."
    return (line,), {"what": what}


def prompt_truncated(seen: Observed) -> Found | None:
    """Ollama's warning; what it kept is the limit where the line does not say it."""
    line = seen.log.last("truncating input prompt")
    pattern = r"limit=(\d{1,12}) prompt=(\d{1,12})(?: .{0,40}?new=(\d{1,12}))?"
    if not line or not (match := re.search(pattern, line.text)):
        return None
    return Found((line,), {"prompt": int(match[2]), "kept": int(match[3] or match[1])})


def no_usable_gpu(seen: Observed) -> Found | None:
    """The warning, or llama-cpp-python's layers, which go nowhere by default; no false alarm of a router's parent."""
    if seen.devices or seen.bytes_on("weights", host=False):
        return None
    for warning in ("no usable GPU found", "ot compiled with GPU offload support"):
        if line := seen.first(warning):
            return Found((line,))
    return _asked_for_no_device(seen) if seen.program.key == "python" else None


def ollama_found_no_gpu(seen: Observed) -> Found | None:
    """Ollama searches when its server starts; what a later load put on a device says more."""
    if seen.found_a_gpu is not False or seen.devices or seen.bytes_on("weights", host=False):
        return None
    return Found(seen.searched[:MOST_LINES])


def no_gpu_seen(seen: Observed) -> Found | None:
    """Layers for a GPU, perhaps only because that is the default, and no GPU."""
    return None if seen.devices or seen.program.key == "python" else _asked_for_no_device(seen)


def _asked_for_no_device(seen: Observed) -> Found | None:
    in_ram_only = seen.bytes_on("weights", host=True) and not seen.bytes_on("weights", host=False)
    if not (in_ram_only and seen.offloaded and seen.offloaded[1]):
        return None
    return Found((seen.offloaded[0], *seen.buffer_lines[:MOST_LINES]))


def no_layer_asked(seen: Observed) -> Found | None:
    if not seen.devices or not seen.offloaded or seen.offloaded[1] or seen.bytes_on("weights", host=False):
        return None
    device = seen.devices[0]
    line = seen.first(f"using device {device.name}")
    return Found((seen.offloaded[0], line) if line else (seen.offloaded[0],), {"device": device.description})


def layers_on_cpu(seen: Observed) -> Found | None:
    """Fewer layers on the GPU than the model has: from each layer's line, what was asked for, or Ollama's plan."""
    on_gpu, total, line = _layers_on_gpu(seen)
    if line is None or not 0 < on_gpu < total:
        return None
    what = f"{on_gpu} of {total} layers are on {_devices(seen)}; for the others, each token waits for the CPU."
    return Found((line, *_ram_lines(seen)), {"what": what})


def _devices(seen: Observed) -> str:
    return " and ".join(device.name for device in seen.devices) or "the GPU"


def _layers_on_gpu(seen: Observed) -> tuple[int, int, Line | None]:
    if seen.layers and seen.layers.basis == "lines":
        places = seen.layers.by_device
        line = seen.log.first("assigned to device CPU", seen.load.loader)
        return sum(n for name, n in places.items() if not on_host(name)), sum(places.values()), line
    if seen.offloaded and seen.bytes_on("weights", host=False):
        return seen.offloaded[1], seen.offloaded[2], seen.offloaded[0]
    line = seen.log.last("layers.offload=")  # ollama#10417, before Ollama 0.30
    match = line and re.search(r"layers\.model=(\d{1,6}) layers\.offload=(\d{1,6})", line.text)
    return (int(match[2]), int(match[1]), line) if match else (0, 0, None)


def _ram_lines(seen: Observed) -> list[Line]:
    return [line for line in seen.buffer_lines if re.search(r": +CPU\S* model buffer", line.text)][:1]


def experts_on_cpu(seen: Observed) -> Found | None:
    """A model with experts whose layers were all asked for, but whose weights lie in RAM for a fifth or more."""
    weights, on_gpu = seen.model.weights_bytes, seen.bytes_on("weights", host=False)
    if not (seen.model.n_expert and weights and on_gpu and seen.offloaded) or seen.offloaded[1] < seen.offloaded[2]:
        return None
    share = on_gpu / weights
    return Found(seen.buffer_lines[:MOST_LINES], {"share": 100 * share}) if share < 0.8 else None


def more_than_free(seen: Observed) -> Found | None:
    for device in seen.devices:
        allocated = sum(buffer.n_bytes for buffer in seen.buffers if buffer.device == device.name)
        if device.free_bytes and allocated > device.free_bytes and not device.name.startswith(("Metal", "MTL")):
            line = seen.first(f"using device {device.name}")
            buffers = seen.log.lines_with("buffer size = ", seen.load.loader, seen.load.ends)
            lines = [buffer for buffer in buffers if f" {device.name} " in buffer.text]
            sizes = {"allocated": bytes_text(allocated), "free": bytes_text(device.free_bytes), "device": device.name}
            return Found((*([line] if line else []), *lines[:MOST_LINES]), sizes)
    return None


def cache_types_on_cuda(seen: Observed) -> Found | None:
    k, v = seen.context.type_k, seen.context.type_v
    on_cuda = any(buffer.kind == "kv_cache" and buffer.device.startswith("CUDA") for buffer in seen.buffers)
    if not (k and v and on_cuda) or (k, v) in FAST_PAIRS or seen.context.flash_attn == "off":
        return None
    return Found(tuple(seen.log.lines_with("MiB, V (", seen.load.loader, seen.load.ends))[:1], {"k": k, "v": v})


def prompt_read_again(seen: Observed) -> Found | None:
    """Three or more long prompts of which next to nothing was reused; the first one never counts."""
    long = [reuse for reuse in _reuses(seen) if reuse[1] >= LONG_PROMPT]
    again = [line for line, n_tokens, n_reused in long[1:] if n_reused < 0.1 * n_tokens]
    if len(again) < FEWEST_REQUESTS or len(again) < (len(long) - 1) / 2:
        return None
    return Found(tuple(again[:MOST_LINES]), {"n": len(again), "least": LONG_PROMPT})


def _reuses(seen: Observed) -> list[tuple[Line, int, int]]:
    """The line about reuse, the tokens and the reused ones of each prompt; its later such lines do not count."""
    lines = sorted(
        [*seen.lines("new prompt, "), *seen.lines(" rm ["), *seen.lines("_rm [")], key=lambda line: line.number
    )
    reuses, n_tokens = [], 0
    for line in lines:
        if match := re.search(r"new prompt, .{0,80}(?:task\.n_tokens|n_prompt_tokens) = (\d{1,12})", line.text):
            n_tokens = int(match[1])
        elif n_tokens and (match := re.search(r"(?:cache rm|seq_rm) \[(\d{1,12}), end\)", line.text)):
            reuses.append((line, n_tokens, int(match[1])))
            n_tokens = 0
    return reuses


def loaded_again(seen: Observed) -> Found | None:
    """Ollama started a runner for one model three times or more."""
    starts: dict[str, list[tuple[Line, str]]] = {}
    for needle in RUNNER_STARTS:
        for line in seen.log.lines_with(needle):
            model = re.search(r"--model (\S{1,300})", line.text)
            context = re.search(r"(?:--ctx-size|-c) (\d{1,12})\b", line.text)
            if model:
                starts.setdefault(model[1], []).append((line, context[1] if context else ""))
    most = max(starts.values(), key=len, default=[])
    contexts = {context for _, context in most if context}
    if len(most) < FEWEST_REQUESTS and len(contexts) < 2:
        return None
    sizes = ", ".join(f"{int(size):,}" for size in sorted(contexts, key=int)[:MOST_LINES])
    why = f", with contexts of {sizes} tokens: clients ask for different ones" if len(contexts) > 1 else ""
    return Found(
        tuple(line for line, _ in most[:MOST_LINES]), {"what": f"The same model was loaded {len(most)} times{why}."}
    )


def draft_rejected(seen: Observed) -> Found | None:
    accepted = generated = 0
    last = None
    for line in seen.lines("draft acceptance"):
        if match := re.search(r"\( {0,12}(\d{1,12}) accepted / {0,12}(\d{1,12}) generated\)", line.text):
            accepted, generated, last = accepted + int(match[1]), generated + int(match[2]), line
    if last is None or generated < FEWEST_DRAFTED or accepted >= FEW_ACCEPTED * generated:
        return None
    return Found((last,), {"share": 100 * accepted / generated, "generated": generated})


def draft_unused(seen: Observed) -> Found | None:
    """A draft model was loaded, and the line of level 4 says that no type of speculation was given."""
    loaded = list(seen.lines("loading draft model"))
    unused = list(seen.lines("no implementations specified for speculative decoding"))
    return Found((loaded[-1], unused[-1]), {}) if loaded and unused else None


def cache_in_ram(seen: Observed) -> Found | None:
    """No part of the cache on a device although every layer was asked for there, and its weights are there."""
    cache = seen.bytes_on("kv_cache", host=True)
    all_layers = seen.offloaded and seen.offloaded[1] == seen.offloaded[2] and seen.bytes_on("weights", host=False)
    if not (cache and all_layers) or seen.bytes_on("kv_cache", host=False):
        return None
    lines = tuple(seen.log.lines_with("KV buffer size", seen.load.loader, seen.load.ends))
    return Found(lines[:MOST_LINES], {"cache": bytes_text(cache)})


def more_threads_than_processors(seen: Observed) -> Found | None:
    threads, processors = seen.context.n_threads, seen.context.n_processors
    line = seen.first("n_threads = ")
    if not (line and threads and processors) or threads <= processors:
        return None
    return Found((line,), {"threads": threads, "processors": processors})


def two_devices_for_one(seen: Observed) -> Found | None:
    """Everything on the devices together is less than was free on one of them."""
    on_device = [buffer for buffer in seen.buffers if not on_host(buffer.device)]
    names = {buffer.device for buffer in on_device if buffer.kind == "weights"}
    needed = sum(buffer.n_bytes for buffer in on_device)
    roomy = [device for device in seen.devices if device.free_bytes and device.free_bytes > 1.1 * needed]
    if len(names) < 2 or not roomy or any(name.startswith("RPC") for name in names):
        return None
    lines = [line for line in seen.buffer_lines if any(f" {name} " in line.text for name in names)]
    free = bytes_text(roomy[0].free_bytes)
    values = {"n": len(names), "needed": bytes_text(needed), "device": roomy[0].name, "free": free}
    return Found(tuple(lines[:MOST_LINES]), values)


def windows_folder(seen: Observed) -> Found | None:
    for needle in ("tensors from /mnt/", "loading model '/mnt/"):
        line = seen.first(needle)
        if line and re.search(r"/mnt/[a-z]/", line.text):
            return Found((line,))
    return None


def throttled(seen: Observed) -> Found | None:
    """Lines of `nvidia-smi -q -d PERFORMANCE`, where somebody pasted them with the log."""
    for line in seen.log.lines_with(": Active"):
        match = re.search(
            r"(SW Power Cap|HW Power Brake Slowdown|[HS]W Thermal Slowdown|HW Slowdown) {0,40}: Active", line.text
        )
        if match:
            return Found((line,), {"reason": match[1]})
    return None


def cache_larger_than_weights(seen: Observed) -> Found | None:
    cache = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind == "kv_cache")
    weights = seen.model.weights_bytes
    if not weights or cache <= weights:
        return None
    lines = [*seen.log.lines_with("KV buffer size", seen.load.loader, seen.load.ends)]
    return Found(tuple(lines[:MOST_LINES]), {"cache": bytes_text(cache), "weights": bytes_text(weights)})


def prompt_cache_in_ram(seen: Observed) -> Found | None:
    line = seen.log.last("cache state: ", seen.load.start)
    pattern = r"cache state: (\d{1,9}) prompts, (\d{1,9})(?:\.\d{1,6})? MiB \(limits: (\d{1,9})(?:\.\d{1,6})? MiB"
    if not line or not (match := re.search(pattern, line.text)) or int(match[2]) * MIB < MUCH_CACHE:
        return None
    sizes = {"size": bytes_text(int(match[2]) * MIB), "limit": bytes_text(int(match[3]) * MIB), "n": match[1]}
    return Found((line,), sizes)


CONDITIONS: dict[str, Callable[[Observed], Found | None]] = {
    condition.__name__: condition
    for condition in (
        weights_do_not_fit,
        cache_does_not_fit,
        compute_does_not_fit,
        killed,
        missing_file,
        load_failed,
        error_lines,
        request_too_long,
        prompt_truncated,
        ollama_found_no_gpu,
        no_usable_gpu,
        no_gpu_seen,
        no_layer_asked,
        layers_on_cpu,
        experts_on_cpu,
        more_than_free,
        cache_types_on_cuda,
        prompt_read_again,
        loaded_again,
        draft_rejected,
        draft_unused,
        cache_in_ram,
        more_threads_than_processors,
        two_devices_for_one,
        windows_folder,
        throttled,
        cache_larger_than_weights,
        prompt_cache_in_ram,
    )
}
