"""Where weights, cache and attention lie, and what slows the device or the processor."""

from __future__ import annotations

import re

from inferlab.log_reader.conditions.discovery import device_line, gpu_used, gpus, on_gpu, shares_ram
from inferlab.log_reader.conditions.found import MOST_LINES, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.report import LoggedDevice
from inferlab.log_reader.text import Line
from inferlab.machine import on_host
from inferlab.units import GIB, bytes_text


def no_usable_gpu(seen: Observed) -> Found | None:
    """The warning, or llama-cpp-python's layers, which go nowhere by default; no false alarm of a router's parent."""
    if seen.devices or on_gpu(seen):
        return None
    for warning in ("no usable GPU found", "ot compiled with GPU offload support"):
        if line := seen.first(warning):
            return Found((line,))
    return _asked_for_no_device(seen) if seen.program.key == "python" else None


def ollama_found_no_gpu(seen: Observed) -> Found | None:
    """Ollama searches when its server starts; what a later load put on a device says more."""
    if seen.found_a_gpu is not False or gpu_used(seen):
        return None
    return Found(seen.searched[:MOST_LINES])


def no_gpu_seen(seen: Observed) -> Found | None:
    """Layers for a GPU, perhaps only because that is the default, and no GPU."""
    return None if gpu_used(seen) or seen.program.key == "python" else _asked_for_no_device(seen)


LOADER = ("load_tensors: loading model tensors", "llm_load_tensors: ggml ctx size")
"""The first line of the weights' load; llm_load_tensors is its name before 2025."""


def no_gpu_offered(seen: Observed) -> Found | None:
    """A whole load without the lines about offloaded layers, which every build writes that has a GPU to offer."""
    head = next((line for needle in LOADER if (line := seen.log.first(needle, seen.load.loader, seen.load.ends))), None)
    cached = any(buffer.kind == "kv_cache" for buffer in seen.buffers)
    if head is None or not cached or gpu_used(seen) or on_gpu(seen) or _host_memory_of(seen):
        return None
    if seen.log.first("_tensors: offload", seen.load.loader, seen.load.ends) or not seen.bytes_on("weights", host=True):
        return None
    return Found((head, *seen.buffer_lines[: MOST_LINES - 1]))


def _host_memory_of(seen: Observed) -> str:
    """The backend whose pinned memory holds a buffer, which only a GPU's driver gives; "" without one."""
    names = (buffer.device.removesuffix("_Host") for buffer in seen.buffers if buffer.device.endswith("_Host"))
    return next((name for name in names if name != "CPU"), "")


def _asked_for_no_device(seen: Observed) -> Found | None:
    in_ram_only = seen.bytes_on("weights", host=True) and not on_gpu(seen)
    if not (in_ram_only and seen.offloaded and seen.offloaded[1]):
        return None
    return Found((seen.offloaded[0], *seen.buffer_lines[:MOST_LINES]))


def no_layer_asked(seen: Observed) -> Found | None:
    """No layer was asked for on the GPU that the log names, or Ollama's plan has none."""
    on_device, total, line = _layers_on_gpu(seen)
    named, backend = gpus(seen), _host_memory_of(seen)
    if not (named or backend) or line is None or on_device or not total or on_gpu(seen):
        return None
    shown = device_line(seen, named[0]) if named else seen.first(f"{backend}_Host ")
    lines = dict.fromkeys((line, *([shown] if shown else [])))
    return Found(tuple(lines), {"device": named[0].description if named else f"of the backend {backend}"})


def no_layer_offloaded(seen: Observed) -> Found | None:
    """No layer was asked for, by a build that could have put it on a GPU or on another machine: it names neither."""
    line, asked, total = seen.offloaded or (None, 0, 0)
    if line is None or asked or gpu_used(seen) or _host_memory_of(seen) or _lists_only_the_cpu(seen):
        return None
    return Found((line,), {"total": total})


def _lists_only_the_cpu(seen: Observed) -> bool:
    """Whether the log lists devices or backends, or where it computes: it then has lines for a GPU if there is one."""
    computes = any(buffer.kind == "compute" for buffer in seen.buffers)
    return computes or any(seen.log.has(said) for said in ("device_info:", "Available devices:", "loaded CPU backend"))


def layers_on_cpu(seen: Observed) -> Found | None:
    """Fewer layers on the GPU than the model has: from each layer's line, what was asked for, or Ollama's plan."""
    on_gpu, total, line = _layers_on_gpu(seen)
    if line is None or not 0 < on_gpu < total:
        return None
    others = "the others, the output layer among them" if _output_in_ram(seen, on_gpu) else "the others"
    what = f"{on_gpu} of {total} layers are on {_devices(seen)}; for {others}, each token waits for the CPU."
    return Found((line, *_ram_lines(seen)), {"what": what})


REQUESTED = re.compile(
    r'(?:layers\.requested|"model layers"=\d{1,6} requested)=(\d{1,6})\b'
    r"|starting llama-server.{1,600}? -ngl (\d{1,6})\b"
)
"""ollama llm/memory.go of v0.3, llm/server.go:498 of v0.15, llm/llama_server.go:404; -1 or nothing if nobody asked"""


def few_layers_asked(seen: Observed) -> Found | None:
    """A request or a Modelfile told Ollama how many layers to put on the GPU, and the model has more."""
    on_gpu, total, line = _layers_on_gpu(seen)
    said = seen.log.last("requested=", seen.load.start) or seen.log.last("starting llama-server", seen.load.start)
    match = said and REQUESTED.search(said.text)
    if not (line and said and match and gpus(seen)):
        return None
    asked = int(match[1] or match[2])
    few = asked <= on_gpu < total
    return Found(tuple(dict.fromkeys((said, line))), {"asked": asked, "total": total}) if few else None


def _output_in_ram(seen: Observed, on_gpu: int) -> bool:
    """Whether as many blocks were offloaded as layers: builds before 2026 put the output layer on a device last."""
    line = seen.log.first(" repeating layers to GPU", seen.load.loader, seen.load.ends)
    return bool(line and re.search(rf"offloading {on_gpu} repeating layers to GPU", line.text))


def no_layer_fits(seen: Observed) -> Found | None:
    """Ollama's plan of the last load; a plan may fail before another model is unloaded, and fit after it."""
    line = seen.log.last("insufficient VRAM to load any model layers", seen.load.start)
    if not line or seen.bytes_on("weights", host=False) or _layers_on_gpu(seen)[0]:
        return None
    return Found((line,))


def _devices(seen: Observed) -> str:
    return " and ".join(device.name for device in seen.devices if device.used) or "the GPU"


def _layers_on_gpu(seen: Observed) -> tuple[int, int, Line | None]:
    if seen.layers and seen.layers.basis == "lines":
        places = seen.layers.by_device
        line = seen.log.first("assigned to device CPU", seen.load.loader)
        return sum(n for name, n in places.items() if not on_host(name)), sum(places.values()), line
    if seen.offloaded and (on_gpu(seen) or not seen.offloaded[1] or _only_devices(seen)):
        return seen.offloaded[1], seen.offloaded[2], seen.offloaded[0]
    line = seen.log.last("layers.offload=")  # ollama#10417, before Ollama 0.30
    match = line and re.search(r"layers\.model=(\d{1,6}) layers\.offload=(\d{1,6})", line.text)
    return (int(match[2]), int(match[1]), line) if match else (0, 0, None)


def _only_devices(seen: Observed) -> bool:
    """Whether a load names the devices that it uses, and no buffer."""
    return not seen.buffers and any(device.used for device in gpus(seen))


def _ram_lines(seen: Observed) -> list[Line]:
    return [line for line in seen.buffer_lines if re.search(r": +CPU\S* model buffer", line.text)][:1]


def part_of_shared_memory(seen: Observed) -> Found | None:
    """ROCm gives a GPU that is part of the processor only the memory set aside for it, and layers stay in RAM."""
    device = next((one for one in gpus(seen) if one.used and one.name.startswith("ROCm")), None)
    found = layers_on_cpu(seen) or experts_on_cpu(seen) if device and shares_ram(seen, device) else None
    if device is None or found is None or not device.free_bytes:
        return None
    lines = dict.fromkeys(line for line in (device_line(seen, device), found.lines[0]) if line)
    return Found(tuple(lines), {"device": device.description, "free": bytes_text(device.free_bytes)})


def weights_in_ram(seen: Observed) -> Found | None:
    """Layers were asked for on a GPU that the log names, and all weights of a finished load lie in RAM."""
    asked = _asked_for_no_device(seen)
    finished = any(buffer.kind == "kv_cache" for buffer in seen.buffers)
    if not (asked and finished and gpus(seen)):
        return None
    return Found(asked.lines, {"device": gpus(seen)[0].description})


def tensors_in_ram(seen: Observed) -> Found | None:
    """Tensors of a model without experts that an override put into RAM, though every layer was asked for on a GPU."""
    lines = list(seen.log.lines_with("buffer type overridden to CPU", seen.load.loader, seen.load.ends))
    all_layers = seen.offloaded and seen.offloaded[1] >= seen.offloaded[2] and on_gpu(seen)
    if not (lines and all_layers) or seen.model.n_expert != 0:
        return None
    return Found(tuple(lines[:MOST_LINES]), {"n": len(lines)})


REFUSED = re.compile(
    r"tensor '(?P<name>[^']{1,120})' \(\w{1,20}\) \(and (?P<others>\d{1,6}) others\) cannot be used with "
    r"preferred buffer type (?P<buffer>\S{1,60}), using \S{1,60} instead"
)
"""src/llama-model-loader.cpp:1404, at -lv 5; the first is most often the embedding, from a card's pinned memory."""


def matrix_in_ram(seen: Observed) -> Found | None:
    """A device refused a weight, and llama.cpp left it in RAM, though every layer is on the device."""
    line = seen.log.last("cannot be used with preferred buffer type ", seen.load.loader)
    match = line and REFUSED.search(line.text)
    all_layers = seen.offloaded and seen.offloaded[1] >= seen.offloaded[2] and on_gpu(seen)
    if not (line and match and all_layers):
        return None
    from_device, n = not on_host(match["buffer"]), int(match["others"])
    if not (from_device or n):
        return None
    what = match["name"] if from_device and not n else f"{n + from_device} weights of the layers"
    return Found((line,), {"what": what})


def parallel_cache(seen: Observed) -> Found | None:
    """Ollama keeps a context for each request at once, in memory that a layer or more in RAM would need."""
    slots, context = seen.context.n_slots or 1, seen.context.n_ctx
    found = layers_on_cpu(seen) if seen.program.key == "ollama" and slots > 1 else None
    spare = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind == "kv_cache") * (slots - 1) // slots
    weights, n_layer = seen.model.weights_bytes, seen.model.n_layer
    if not (found and context and weights and n_layer) or spare < weights / n_layer:
        return None
    values = {"slots": slots, "context": context, "each": context // slots, "spare": bytes_text(spare)}
    return Found(found.lines, values)


def experts_on_cpu(seen: Observed) -> Found | None:
    """A model with experts whose layers were all asked for, but whose weights lie in RAM for a fifth or more."""
    weights, on_gpu = _weights(seen), seen.bytes_on("weights", host=False)
    if not (_has_experts(seen) and weights and on_gpu and seen.offloaded) or seen.offloaded[1] < seen.offloaded[2]:
        return None
    share = on_gpu / weights
    return Found(seen.buffer_lines[:MOST_LINES], {"share": 100 * share}) if share < 0.8 else None


LARGEST_EMBEDDINGS = 8 * GIB
"""Larger than any model's tensors for its tokens, which lie in RAM where every layer is on a GPU."""


def _has_experts(seen: Observed) -> bool:
    """Whether the model has experts; where its header is missing, so many weights in RAM can be nothing else.

    Only those in pinned memory count then: a mapped file is told from its first to its last tensor in RAM.
    """
    if seen.model.n_expert is not None:
        return seen.model.n_expert > 0
    pinned = (part.n_bytes for part in seen.buffers if part.kind == "weights" and part.device.endswith("_Host"))
    return sum(pinned) > LARGEST_EMBEDDINGS


def _weights(seen: Observed) -> int:
    """The size of the model, else of the buffers with its weights."""
    buffers = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind == "weights")
    return seen.model.weights_bytes or buffers


MORE = 1.02
"""Free memory is told in whole MiB, and moves while a model is loaded."""


def more_than_free(seen: Observed) -> Found | None:
    """More was allocated on a card than it had free, or has; a GPU that shares the machine's memory moves nothing."""
    for device in seen.devices:
        parts = [buffer.n_bytes for buffer in seen.buffers if buffer.device == device.name]
        if device.free_bytes and sum(parts) > MORE * device.free_bytes and not _elastic(seen, device):
            return Found(_lines_of(seen, device), {"what": _beyond(device, sum(parts))})
    return None


def _elastic(seen: Observed, device: LoggedDevice) -> bool:
    """Whether what a device may use is no memory of a card: shared, of a software driver, or elsewhere."""
    return device.name.startswith(("Metal", "MTL", "RPC")) or device.is_software or shares_ram(seen, device)


def _beyond(device: LoggedDevice, allocated: int) -> str:
    n = bytes_text(allocated)
    if device.total_bytes and allocated > device.total_bytes:
        has = f"{n} were allocated on {device.name}, which has {bytes_text(device.total_bytes)}."
        return f"{has} The rest lies in RAM, and each token crosses the bus for it."
    free = f"{n} were allocated on {device.name}, of which {bytes_text(device.free_bytes or 0)} were free at the load."
    where = "On Windows, with unified memory, and with AMD's driver on Linux"
    return f"{free} {where}, the rest lies in RAM, and each token crosses the bus for it."


def _lines_of(seen: Observed, device: LoggedDevice) -> tuple[Line, ...]:
    line = device_line(seen, device)
    buffers = seen.log.lines_with("buffer size = ", seen.load.loader, seen.load.ends)
    lines = [buffer for buffer in buffers if f" {device.name} " in buffer.text]
    return (*([line] if line else []), *lines[:MOST_LINES])


ONE_THREAD = ("n_threads = 1 ", "NumThreads:1 ", "n_threads=1 ", "--threads 1 ")


def one_thread(seen: Observed) -> Found | None:
    """The processor computes with a single thread, and weights lie in RAM."""
    line = next((line for words in ONE_THREAD if (line := seen.first(words))), None)
    in_ram = seen.bytes_on("weights", host=True) > seen.bytes_on("weights", host=False)
    one_core = 0 < (seen.context.n_processors or 0) <= 2
    return Found((line,)) if line and in_ram and seen.context.n_threads == 1 and not one_core else None


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
    own = [device for device in gpus(seen) if device.name in names and not shares_ram(seen, device)]
    roomy = [device for device in own if device.free_bytes and device.free_bytes > 1.1 * needed]
    if len(names) < 2 or not roomy or any(name.startswith("RPC") for name in names):
        return None
    lines = [line for line in seen.buffer_lines if any(f" {name} " in line.text for name in names)]
    free = bytes_text(roomy[0].free_bytes)
    values = {"n": len(names), "needed": bytes_text(needed), "device": roomy[0].name, "free": free}
    return Found(tuple(lines[:MOST_LINES]), values)


LONG_PROMPT, LONG_WAIT = 200, 30
SLOW_PROMPT, SLOW_ANSWER, FEW_TOKENS = 30, 3, 16
"""Tokens, seconds, tokens per second"""


def slow_requests(seen: Observed) -> Found | None:
    """Finished requests at rates that most people call slow, in a log that does not say where the model lies."""
    prompt, answer = seen.rates
    line = seen.first("eval time") or seen.first("CtxLimit:") or seen.first("ContextLimit: ")
    if line is None or seen.buffers or seen.offloaded:
        return None
    said = []
    if prompt and prompt.n_tokens >= LONG_PROMPT and prompt.seconds >= max(LONG_WAIT, prompt.n_tokens / SLOW_PROMPT):
        said.append(f"reading {prompt.n_tokens:,} tokens of the prompt took {prompt.seconds:.0f} s ({prompt.text})")
    if answer and answer.n_tokens >= FEW_TOKENS and answer.seconds >= answer.n_tokens / SLOW_ANSWER:
        said.append(f"writing {answer.n_tokens:,} tokens took {answer.seconds:.0f} s ({answer.text})")
    return Found((line,), {"what": ", and ".join(said)}) if said else None


PROCESSOR = re.compile(r" (\d{1,3})%(?:/\d{1,3}% CPU/GPU| CPU)\b")
"""The column of `ollama ps`: ollama v0.12.3 cmd/cmd.go:680"""


def ollama_ps_in_ram(seen: Observed) -> Found | None:
    """The last row of `ollama ps` that says how much of a model lies in RAM."""
    for needle in ("% CPU/GPU", " 100% CPU "):
        line = seen.log.last(needle)
        match = line and PROCESSOR.search(line.text)
        if line and match:
            return Found((line,), {"share": int(match[1])})
    return None


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


CONDITIONS = (
    no_usable_gpu,
    ollama_found_no_gpu,
    no_gpu_seen,
    no_gpu_offered,
    no_layer_asked,
    no_layer_offloaded,
    layers_on_cpu,
    no_layer_fits,
    few_layers_asked,
    part_of_shared_memory,
    weights_in_ram,
    tensors_in_ram,
    matrix_in_ram,
    parallel_cache,
    experts_on_cpu,
    more_than_free,
    one_thread,
    more_threads_than_processors,
    two_devices_for_one,
    slow_requests,
    ollama_ps_in_ram,
    windows_folder,
    throttled,
)
