"""Where weights, cache and attention lie, and what slows the device or the processor."""

from __future__ import annotations

import re

from inferlab.log_reader.conditions.found import MOST_LINES, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.report import on_host
from inferlab.log_reader.text import Line
from inferlab.units import bytes_text


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


FAST_PAIRS = {("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")}
"""Cache types with flash-attention kernels in a default CUDA build, ggml-cuda/fattn.cu."""


def cache_types_on_cuda(seen: Observed) -> Found | None:
    k, v = seen.context.type_k, seen.context.type_v
    on_cuda = any(buffer.kind == "kv_cache" and buffer.device.startswith("CUDA") for buffer in seen.buffers)
    if not (k and v and on_cuda) or (k, v) in FAST_PAIRS or seen.context.flash_attn == "off":
        return None
    return Found(tuple(seen.log.lines_with("MiB, V (", seen.load.loader, seen.load.ends))[:1], {"k": k, "v": v})


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


CONDITIONS = (
    no_usable_gpu,
    ollama_found_no_gpu,
    no_gpu_seen,
    no_layer_asked,
    layers_on_cpu,
    experts_on_cpu,
    cache_types_on_cuda,
    cache_in_ram,
    more_threads_than_processors,
    two_devices_for_one,
    windows_folder,
    throttled,
)
