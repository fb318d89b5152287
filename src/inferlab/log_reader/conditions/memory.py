"""What did not fit, what is larger than it should be, and what grows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from inferlab.log_reader.conditions.afterwards import place_of
from inferlab.log_reader.conditions.found import MOST_LINES, Found
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.report import Breakdown
from inferlab.log_reader.text import Line
from inferlab.machine import on_host
from inferlab.units import MIB, bytes_text


@dataclass(frozen=True)
class Refused:
    """An allocation that failed: its line, its bytes, and the buffer's name, "" where no line has it."""

    line: Line
    n_bytes: int
    buffer: str

    @property
    def in_ram(self) -> bool:
        return bool(self.buffer) and on_host(self.buffer)


REFUSALS = (
    (
        "cudaMalloc failed",
        re.compile(r"allocating (?P<mib>\d{1,9}(?:\.\d{1,4})?) MiB on device (?P<index>\d{1,3}): cudaMalloc failed"),
    ),
    (
        "aclrtMalloc failed",
        re.compile(r"allocating (?P<mib>\d{1,9}(?:\.\d{1,4})?) MiB on device (?P<index>\d{1,3}): aclrtMalloc failed"),
    ),
    (" buffer of size ", re.compile(r"failed to allocate (?P<name>\S{1,80}) buffer of size (?P<bytes>\d{1,15})")),
    (
        "failed to allocate buffer of size ",
        re.compile(r"(?P<name>cpu)_buffer_type_alloc_buffer: .{1,40} (?P<bytes>\d{1,15})"),
    ),
    (
        " Bytes of memory on ",
        re.compile(r"can't allocate (?P<bytes>\d{1,15}) Bytes of memory on (?P<name>device|host)"),
    ),
    (
        "Device memory allocation of size ",
        re.compile(r"ggml_vulkan: Device memory allocation of size (?P<bytes>\d{1,15})"),
    ),
    (
        "failed to allocate Metal buffer of ",
        re.compile(r"failed to allocate Metal buffer of (?P<bytes>\d{1,15}) bytes"),
    ),
)
"""ggml-cuda.cu:888, ggml-cann.cpp:1506, ggml-alloc.c:941 and 1134, ggml-backend.cpp:2467, ggml-sycl.cpp:1002,
ggml-vulkan-buffers.cpp:224, ggml-metal.cpp:209"""
PARTS = {"cpu": "CPU", "host": "CPU", "device": ""}
"""Names in lines about an allocation that are no buffer's."""


def refused(seen: Observed) -> Refused | None:
    """The last allocation of the run that failed, with the name that the line about its buffer has."""
    last: Refused | None = None
    for needle, pattern in REFUSALS:
        line = seen.log.last(needle, seen.load.start)
        if not line or not (match := pattern.search(line.text)):
            continue
        said = match.groupdict()
        n_bytes = round(float(said["mib"]) * MIB) if said.get("mib") else int(said["bytes"])
        name = PARTS.get(said.get("name") or "", said.get("name") or _numbered(seen, said.get("index")))
        last = _later(last, Refused(line, n_bytes, name))
    return last


def _numbered(seen: Observed, index: str | None) -> str:
    """The device of CUDA, ROCm, MUSA or CANN with a number, where the log names one."""
    names = (f"{backend}{index}" for backend in ("CUDA", "ROCm", "MUSA", "CANN"))
    return next((name for name in names if index and name in {device.name for device in seen.devices}), "")


def _later(one: Refused | None, other: Refused) -> Refused:
    """The later of two, with the first line and the name of both where they are about one buffer."""
    if one is None or abs(one.line.number - other.line.number) > LINES_OF_A_REFUSAL:
        return other if one is None or other.line.number > one.line.number else one
    return Refused(min(one.line, other.line, key=lambda line: line.number), one.n_bytes, other.buffer or one.buffer)


LINES_OF_A_REFUSAL = 3


def weights_do_not_fit(seen: Observed) -> Found | None:
    line = seen.log.last("unable to allocate ", seen.load.start)
    match = line and re.search(r"unable to allocate (\S{1,60}) buffer", line.text)
    if not line or not match or on_host(match[1]):
        return None
    piece = refused(seen)
    name = match[1] if match[1] != "backend" else piece.buffer if piece else ""
    free = _free(seen).get(name)
    whole = f" {name} had {bytes_text(free)} free." if free else f" {said}." if (said := projected(seen)) else ""
    values = {
        "device": name or "the device",
        "piece": _piece(piece, bool(name)),
        "size": _piece(piece, bool(name)) + whole + _share(seen, name),
    }
    return Found(_with_piece(piece, line), values)


CACHE_REFUSED = ("failed to allocate buffer for kv cache", "failed to allocate buffer for rs cache")
COMPUTE_REFUSED = (
    "failed to allocate compute pp buffers",
    "failed to allocate compute tg buffers",
    "graph_reserve: failed to allocate compute buffers",
    "llama_new_context_with_model: failed to allocate compute buffers",
)


def cache_does_not_fit(seen: Observed) -> Found | None:
    return _does_not_fit(seen, CACHE_REFUSED)


def compute_does_not_fit(seen: Observed) -> Found | None:
    """The last failure to get compute buffers, unless less parallel work got them, src/llama-context.cpp:678."""
    found = _does_not_fit(seen, COMPUTE_REFUSED)
    retry = seen.log.last("retrying without pipeline parallelism", seen.load.start)
    if not found:
        return None
    values = found.values | {"how": "A later attempt loaded the model"}
    if not retry or retry.number < found.lines[-1].number:
        return Found(found.lines, values)
    values["how"] = "llama.cpp went on without pipeline parallelism, so that the GPUs work one after the other"
    at = place_of(seen.log, retry.number)
    return Found((*found.lines, retry), values, overcome=seen.log.text.find("compute buffer size", at) >= 0)


def _does_not_fit(seen: Observed, needles: tuple[str, ...]) -> Found | None:
    lines = [line for needle in needles if (line := seen.log.last(needle, seen.load.start))]
    piece = refused(seen)
    if not lines:
        return None
    last = max(lines, key=lambda line: line.number)
    in_ram = piece is not None and piece.in_ram
    whole = (_planned(seen, piece.buffer) or _held(seen, piece.buffer)) if piece and not in_ram else ""
    whole = whole if whole or in_ram else projected(seen)
    values = {"piece": _piece(piece), "size": _piece(piece) + (f" {whole}." if whole else "")}
    return Found(_with_piece(piece, last), values)


def _with_piece(piece: Refused | None, line: Line) -> tuple[Line, ...]:
    return (piece.line, line) if piece and piece.line != line else (line,)


def _piece(piece: Refused | None, named: bool = False) -> str:
    """The piece that was refused, and where, unless its device is named before."""
    if piece is None:
        return "."
    where = " in RAM" if piece.in_ram else f" on {piece.buffer}" if piece.buffer and not named else ""
    return f"; a piece of {bytes_text(piece.n_bytes)} was refused{where}."


def of_several(seen: Observed) -> bool:
    """Whether the device that refused a piece is not the first of its backend, so that there are several."""
    piece = refused(seen)
    return bool(piece and re.search(r"[A-Za-z][1-9]\d{0,2}$", piece.buffer))


def _planned(seen: Observed, device: str) -> str:
    """llama.cpp's own table of memory, where it says that the whole is more than was free."""
    rows = [row for row in seen.breakdown if row.free_bytes and row.device == device]
    rows = rows or [row for row in seen.breakdown if row.free_bytes]
    if len(rows) != 1 or (needed := sum(_parts(rows[0]))) <= (rows[0].free_bytes or 0):
        return ""
    weights, context, compute = (bytes_text(part) for part in _parts(rows[0]))
    return (
        f"By the program's own table, {rows[0].device} needs {bytes_text(needed)} ({weights} of weights, {context} of "
        f"cache, {compute} to compute), and had {bytes_text(rows[0].free_bytes)} free"
    )


PROJECTED = re.compile(
    r"projected to use (\d{1,9}) MiB of (device|host) memory vs\. (\d{1,9}) MiB of (?:free device|total host) memory"
)
"""common/fit.cpp:321, 350"""


def projected(seen: Observed) -> str:
    """What the program's own simulation said before it fitted anything; "" without that line."""
    line = seen.first("projected to use ")
    match = line and PROJECTED.search(line.text)
    if not match:
        return ""
    used, there = (bytes_text(int(match[group]) * MIB) for group in (1, 3))
    of = f"the GPU, of which {there} were free" if match[2] == "device" else f"RAM, of which the machine has {there}"
    return f"With what was asked for, the program projected {used} for {of}"


GAVE_UP = re.compile(r"failed to fit params to free device memory: (.{1,160}?)(?:, abort|$)")


def fit_failed(seen: Observed) -> Found | None:
    """Automatic fitting gave up, and why."""
    line = seen.first("failed to fit params to free device memory: ")
    match = line and GAVE_UP.search(line.text)
    if not (line and match):
        return None
    said = projected(seen)
    return Found((line,), {"why": match[1], "projected": f" {said}." if said else ""})


def _parts(row: Breakdown) -> tuple[int, int, int]:
    return row.weights_bytes, row.context_bytes, row.compute_bytes


def _held(seen: Observed, device: str) -> str:
    """What was free on the device, and what weights and cache had taken of it; who else had room."""
    free, held = _free(seen).get(device), _taken(seen, device)
    if not free:
        return ""
    taken = f", and weights and cache had taken {bytes_text(held)} of it" if held else ""
    room = "".join(f"; {name} had {bytes_text(n_bytes)} left" for name, n_bytes in elsewhere(seen))
    return f"{device} had {bytes_text(free)} free{taken}{room}"


def said_of_all(seen: Observed) -> str:
    """What the load had put on the only device where that is more than was free; else that the line does not say it."""
    used = [device for device in seen.devices if device.used and device.free_bytes]
    kinds = {
        kind: sum(part.n_bytes for part in seen.buffers if part.device == used[0].name and part.kind == kind)
        for kind in ("weights", "kv_cache", "compute")
        if len(used) == 1
    }
    if not kinds or sum(kinds.values()) <= (used[0].free_bytes or 0):
        return "This line does not say whether by weights, cache or computation."
    weights, cache, compute = (bytes_text(n_bytes) for n_bytes in kinds.values())
    return (
        f"The load had put {weights} of weights, {cache} of cache and {compute} to compute on {used[0].name}, of which "
        f"{bytes_text(used[0].free_bytes or 0)} were free."
    )


def _free(seen: Observed) -> dict[str, int]:
    return {device.name: device.free_bytes for device in seen.devices if device.free_bytes}


def _taken(seen: Observed, device: str) -> int:
    """Weights and cache on a device: the buffers for computing are the last to be allocated."""
    return sum(part.n_bytes for part in seen.buffers if part.device == device and part.kind != "compute")


def elsewhere(seen: Observed) -> list[tuple[str, int]]:
    """Other devices with room for the piece that was refused, once the load has put its weights on the devices."""
    piece = refused(seen)
    if not piece or piece.in_ram or not any(buffer.kind == "weights" for buffer in seen.buffers):
        return []
    left = {name: free - _taken(seen, name) for name, free in _free(seen).items() if name != piece.buffer}
    return [(name, n_bytes) for name, n_bytes in left.items() if n_bytes > piece.n_bytes]


def uneven(seen: Observed) -> bool:
    """Whether a device was asked for more weights than its part of the free memory."""
    piece, free, weights = refused(seen), _free(seen), seen.model.weights_bytes
    if not piece or piece.buffer not in free or len(free) < 2 or not weights:
        return False
    return piece.n_bytes > UNEVEN * weights * free[piece.buffer] / sum(free.values())


UNEVEN = 1.05


def _share(seen: Observed, device: str) -> str:
    return f" The piece is more than {device}'s share of the weights." if device and uneven(seen) else ""


IN_RAM = (
    (
        "insufficient memory (attempted",
        re.compile(r"insufficient memory \(attempted to allocate {1,20}[\d.]{1,16} MB\)"),
    ),
    ("std::bad_alloc", re.compile(r"(?:instance of '|: |^)(?:what\(\): {1,4})?std::bad_alloc'?\s*$")),
    ("mmap failed: ", re.compile(r"error loading model: mmap failed: ")),
    ("OfFile failed: ", re.compile(r"error loading model: MapViewOfFile failed: ")),
    ("MappingA failed: ", re.compile(r"error loading model: CreateFileMappingA failed: ")),
    ("MemoryError", re.compile(r"^(?:numpy\.\S{1,60})?MemoryError\b")),
    ("OfHostMemory", re.compile(r"(?:vk::\S{1,60}|what\(\)): {1,4}\S{0,80}ErrorOutOfHostMemory")),
    ("OUT_OF_HOST_MEMORY", re.compile(r"Native API returns: -?\d{1,6} \(\w{2,6}_ERROR_OUT_OF_HOST_MEMORY\)")),
    ("memory on host", re.compile(r"can't allocate \d{1,15} Bytes of memory on host")),
    (
        "runtime: out of memory",
        re.compile(r"fatal error: runtime: out of memory|runtime: out of memory: cannot allocate"),
    ),
)
"""ggml.c:378; src/llama-mmap.cpp:484, 587, 595; ggml-sycl.cpp:1002; docs/backend/SYCL.md"""


def ram_does_not_suffice(seen: Observed) -> Found | None:
    """An allocation of the machine's own memory that failed."""
    lines = sorted(_in_ram(seen), key=lambda line: line.number)
    if not lines:
        return None
    piece = refused(seen)
    size = f" A piece of {bytes_text(piece.n_bytes)} was refused." if piece and piece.in_ram else ""
    return Found(tuple(lines[-MOST_LINES:]), {"size": size})


def _in_ram(seen: Observed) -> Iterator[Line]:
    for needle, pattern in IN_RAM:
        line = seen.log.last(needle, seen.load.start)
        if line and pattern.search(line.text) and "prompt cache state" not in line.text:  # the server goes on
            yield line
    piece = refused(seen)
    if piece and piece.in_ram:
        yield piece.line


TOO_LITTLE = (
    (
        "requires more system memory (",
        re.compile(r"more system memory \((?P<needed>[^()]{1,20})\) than is available \((?P<free>[^()]{1,20})\)"),
    ),
    (
        "model request too large for system",
        re.compile(
            r"too large for system\\?\" requested=\\?\"?(?P<needed>[\d.]{1,12} [KMGT]?i?B)\b"
            r"(?:\\?\"? available=\\?\"?(?P<free>[\d.]{1,12} [KMGT]?i?B)\b)?"
        ),
    ),
)
"""ollama v0.12.3 llm/server.go:539; a pager may have cut the second line."""


def too_little_ram(seen: Observed) -> Found | None:
    """Ollama compared what a load needs in RAM with what is free there, and refused it."""
    server = max(0, seen.log.text.rfind('msg="Listening on '))
    for start in (seen.load.start, server):
        for needle, pattern in TOO_LITTLE:
            line = seen.log.last(needle, start)
            if line and (match := pattern.search(line.text)):
                free = f"{match['free']} are free" if match["free"] else "less is free"
                earlier = line.number < seen.log.line_at(seen.load.start).number
                return Found((line,), {"needed": match["needed"], "free": free}, overcome=earlier)
    return None


ESTIMATED = re.compile(r"requires approximately (\d{1,6}(?:\.\d{1,3})? [KMGT]?i?B) of memory")


def guardrail(seen: Observed) -> Found | None:
    """LM Studio's refusal to load, with its estimate where that is a number: lmstudio-bug-tracker#1038, #1202."""
    line = seen.first("Model loading was stopped due to insufficient system resources")
    match = line and ESTIMATED.search(line.text)
    return Found((line,), {"needed": f": it would need {match[1]}" if match else ""}) if line else None


def cache_larger_than_weights(seen: Observed) -> Found | None:
    cache = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind == "kv_cache")
    weights = seen.model.weights_bytes
    if not weights or cache <= weights:
        return None
    lines = [*seen.log.lines_with("KV buffer size", seen.load.loader, seen.load.ends)]
    return Found(tuple(lines[:MOST_LINES]), {"cache": bytes_text(cache), "weights": bytes_text(weights)})


CONDITIONS = (
    weights_do_not_fit,
    cache_does_not_fit,
    compute_does_not_fit,
    ram_does_not_suffice,
    too_little_ram,
    fit_failed,
    guardrail,
    cache_larger_than_weights,
)
