"""What did not fit, what is larger than it should be, and what grows."""

from __future__ import annotations

import re

from inferlab.log_reader.conditions.found import MOST_LINES, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import Line
from inferlab.units import MIB, bytes_text


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


def cache_larger_than_weights(seen: Observed) -> Found | None:
    cache = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind == "kv_cache")
    weights = seen.model.weights_bytes
    if not weights or cache <= weights:
        return None
    lines = [*seen.log.lines_with("KV buffer size", seen.load.loader, seen.load.ends)]
    return Found(tuple(lines[:MOST_LINES]), {"cache": bytes_text(cache), "weights": bytes_text(weights)})


MUCH_CACHE = 1024 * MIB


def prompt_cache_in_ram(seen: Observed) -> Found | None:
    line = seen.log.last("cache state: ", seen.load.start)
    pattern = r"cache state: (\d{1,9}) prompts, (\d{1,9})(?:\.\d{1,6})? MiB \(limits: (\d{1,9})(?:\.\d{1,6})? MiB"
    if not line or not (match := re.search(pattern, line.text)) or int(match[2]) * MIB < MUCH_CACHE:
        return None
    sizes = {"size": bytes_text(int(match[2]) * MIB), "limit": bytes_text(int(match[3]) * MIB), "n": match[1]}
    return Found((line,), sizes)


CONDITIONS = (
    weights_do_not_fit,
    cache_does_not_fit,
    compute_does_not_fit,
    killed,
    more_than_free,
    cache_larger_than_weights,
    prompt_cache_in_ram,
)
