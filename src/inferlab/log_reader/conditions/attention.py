"""Where attention is computed, and by which kernels: cache types, flash attention, cache in RAM, graph splits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from inferlab.log_reader.conditions.discovery import on_gpu
from inferlab.log_reader.conditions.found import MOST_LINES, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import Line
from inferlab.machine import on_host
from inferlab.units import bytes_text

FAST_PAIRS = {("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("q4_0", "q4_0")}
"""Cache types with flash-attention kernels in a default CUDA build, ggml-cuda/fattn.cu."""


def cache_types_on_cuda(seen: Observed) -> Found | None:
    """Not where the splits show that attention stays on the GPU: newer builds then warn if they convert."""
    k, v = seen.context.type_k, seen.context.type_v
    on_cuda = any(buffer.kind == "kv_cache" and buffer.device.startswith("CUDA") for buffer in seen.buffers)
    if not (k and v and on_cuda) or (k, v) in FAST_PAIRS or seen.context.flash_attn == "off":
        return None
    if (shown := _times_away(seen)) and not shown.many:
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


FLASH_OFF = (
    "Flash Attention not supported, set to disabled",
    "Flash Attention was auto, set to disabled",
    "flash_attn is not compatible with",
    "flash_attn requires n_embd_head",
    "flash attention enabled but not supported by",
)
"""src/llama-context.cpp:550 and 3817, their forms since 2024, and Ollama before 0.30, llm/server.go."""
OTHER_DEVICE = re.compile(
    r"layer \d{1,5} is assigned to device (\S{1,64}) but (?:the )?Flash Attention (?:tensor )?is assigned to device"
)
FORCED = re.compile(r"flash_attn (is not compatible with .{1,40}?|requires .{1,60}?) - forcing off")
OLLAMAS = re.compile(r"flash attention enabled but not supported by (gpu|model)")


def flash_attention_off(seen: Observed) -> Found | None:
    """Flash attention was asked for, or left to the program, and became off; the reason as far as a line gives it."""
    model = seen.load.start, seen.load.ends
    line = next((line for said in FLASH_OFF if (line := seen.log.first(said, *model))), None)
    if line is None:
        return None
    others = seen.log.lines_with("Flash Attention", *model)
    moved = next((other for other in others if OTHER_DEVICE.search(other.text)), None)
    return Found((moved, line) if moved else (line,), {"reason": _reason(seen, line, moved)})


def _reason(seen: Observed, line: Line, moved: Line | None) -> str:
    if forced := FORCED.search(line.text):
        return f"it {forced[1]}"
    if ollamas := OLLAMAS.search(line.text):
        return "a GPU lacks it" if ollamas[1] == "gpu" else "the model cannot use it"
    if seen.bytes_on("kv_cache", host=True) and not seen.bytes_on("kv_cache", host=False) and on_gpu(seen):
        return "the cache is in RAM, where attention would run on the processor, and the check takes that for a lack"
    match = OTHER_DEVICE.search(moved.text) if moved else None
    where = f"{match[1]} has no kernel" if match and not on_host(match[1]) else "a device has no kernel"
    k, v = seen.context.type_k, seen.context.type_v
    if k and v and (k, v) != ("f16", "f16"):
        return f"{where} for this model with keys in {k} and values in {v}"
    return f"{where} for this model{', whose cache is f16' if k else ' and these cache types'}"


SPLITS = re.compile(
    r"(?:llama_context|llama_new_context_with_model|sched_reserve|graph_reserve): graph"
    r"(?: splits = (\d{1,6})(?: \(with bs=\d{1,6}\), (\d{1,6}) \(with bs=\d{1,6}\))?"
    r"|(?: \(pp bs=\d{1,6}, tg bs=\d{1,6}\))?: nodes = .{1,24}?, splits = (\d{1,6})(?: / (\d{1,6}))?)"
)
"""src/llama-context.cpp:755 and its forms before 2026; the last number is of one token for each sequence."""
EVERY = 8
"""An operation that a device lacks stands in every layer, or in one of at most eight layers of a hybrid (Jamba)."""


@dataclass(frozen=True)
class Splits:
    """The graph of one token, where all weights and the cache lie on devices.

    n         its splits; `needed` of them for the embeddings in RAM and each device
    times     how often a token leaves the devices beyond that
    many      whether that is more than a few operations of the model as a whole
    """

    line: Line
    n: int
    needed: int
    times: int
    many: bool


def _times_away(seen: Observed) -> Splits | None:
    """The scheduler starts a split where the backend changes, and two for an operation that only the processor has.

    None where weights or a cache in RAM, or another machine, explain splits: ggml_backend_sched_split_graph.
    """
    n, line = min(_splits(seen), key=lambda pair: pair[0], default=(0, None))
    layers = seen.model.n_layer
    if line is None or not layers or not _all_on_devices(seen):
        return None
    needed = 1 + len({part.device for part in seen.buffers if part.kind == "weights" and not on_host(part.device)})
    times = (n - needed) // 2
    return Splits(line, n, needed, times, times >= max(2, layers / EVERY))


def attention_on_cpu(seen: Observed) -> Found | None:
    """All weights and the cache lie on devices, and yet each token leaves them again and again."""
    shown = _times_away(seen)
    if shown is None or not shown.many:
        return None
    values = {"splits": shown.n, "times": shown.times, "expected": shown.needed, "likely": _likely(seen)}
    return Found((shown.line,), values)


def _splits(seen: Observed) -> Iterator[tuple[int, Line]]:
    for line in seen.log.lines_with("splits = ", seen.load.loader, seen.load.ends):
        if match := SPLITS.search(line.text):
            yield int(next(part for part in (match[2], match[1], match[4], match[3]) if part)), line


def _all_on_devices(seen: Observed) -> bool:
    """Every layer was asked for, no cache is in RAM, and there are no more weights than the token embeddings."""
    embeddings = 2 * (_number(seen, "n_vocab") or 0) * (_number(seen, "n_embd") or 0)
    in_ram = seen.bytes_on("weights", host=True)
    all_asked = seen.offloaded and seen.offloaded[1] >= seen.offloaded[2] and on_gpu(seen)
    remote = any(buffer.device.startswith("RPC") for buffer in seen.buffers)
    cache = seen.bytes_on("kv_cache", host=False) and not seen.bytes_on("kv_cache", host=True)
    return bool(all_asked and cache and not remote and in_ram <= embeddings)


def _number(seen: Observed, name: str) -> int | None:
    """A number of the model's own lines, such as n_embd."""
    line = seen.log.first(f" {name} ", seen.load.loader, seen.load.ends)
    match = line and re.search(rf"{name} {{1,30}}= {{0,8}}(\d{{1,12}})", line.text)
    return int(match[1]) if match else None


def _likely(seen: Observed) -> str:
    """What is most likely computed by the processor."""
    k, v = seen.context.type_k, seen.context.type_v
    if k and v and (k, v) != ("f16", "f16") and seen.context.flash_attn != "off":
        return f"most likely attention, for which this build has no kernel with keys in {k} and values in {v}"
    return "an operation of this model that the device's backend lacks"


CONDITIONS = (cache_types_on_cuda, cache_in_ram, flash_attention_off, attention_on_cpu)
