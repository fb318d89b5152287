"""The devices that a log names: those that a program only lists, and those that a model uses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from inferlab.log_reader.report import Breakdown, LoggedDevice
from inferlab.log_reader.runs import DRAFT
from inferlab.log_reader.text import Line, LogText
from inferlab.machine import SOFTWARE
from inferlab.units import GIB, KIB, MIB

NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)"
UNITS = {"B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB}
NO_GPU = re.compile(r"CPU|AMX|BLAS|Accelerate|cpu")
USING = re.compile(
    rf"using device (\S{{1,120}}) \((.{{1,300}}?)\)(?: \([^)]{{0,40}}\))? - {NUMBER} MiB free"
)  # src/llama.cpp:306
IN_A_LIST = re.compile(
    r"(?:^|- )(\S{1,80}) {0,8}: (.{1,120}) \((\d{1,9}) MiB, (\d{1,9}) MiB free\)"
)  # common/common.cpp:414, common/arg.cpp:1163
OF_CUDA = re.compile(
    r"(?:^|\s)Device (\d{1,3}): ([^,]{1,120}),\s{1,8}(?:compute capability|gfx)[^,]{0,40}"
    r"(?:.{0,80}, VRAM: (\d{1,9}) MiB)?"
)  # ggml/src/ggml-cuda/ggml-cuda.cu:331, 345
FOUND_CUDA = re.compile(r"found \d{1,3} (CUDA|ROCm|MUSA|SYCL) devices")  # SYCL in early 2024, llama.cpp#5513
A_PROCESSOR = re.compile(r"Processor|CPU|Xeon|FPGA")
OF_VULKAN = re.compile(
    r"(?:ggml_vulkan: (\d{1,3}) = |(?:^|\s)Vulkan(\d{1,3}): )(.{1,160}?) \| (uma: 1)?"
)  # ggml/src/ggml-vulkan/ggml-vulkan.cpp:5157; the second is of 2024
DRIVER = re.compile(r" \([^()]{1,100}\)$")
OF_SYCL = re.compile(
    r"\| {0,2}(\d{1,3})\| {0,20}\[?\w{1,20}:gpu[:\d]{0,8}\]?\| {0,40}([^|]{1,80})\|[^|]{1,20}\|.{1,60}?\| {0,8}"
    r"(\d{1,9})M\|"
)  # ggml/src/ggml-sycl/ggml-sycl.cpp:242
OF_OPENCL = re.compile(
    r"ggml_opencl: (?:OpenCL |default |selecting )?device: '?([^'\n(]{1,80}(?:\([^)\n]{1,20}\)[^'\n(]{0,60})?)"
)
"""ggml/src/ggml-opencl/ggml-opencl.cpp:6459, 6490, 6508"""
OF_METAL = re.compile(r"ggml_metal\w{0,20}: (?:GPU name: {1,8}|found device: |picking default device: )(\S.{0,80})")
METAL_NAME = re.compile(r"(MTL\d{1,3}) \((.{1,80})\)$")  # ggml/src/ggml-metal/ggml-metal-device.m:1323
METAL_SIZE = re.compile(rf"recommendedMaxWorkingSetSize {{1,4}}= {{0,8}}{NUMBER} MB")
OF_OLLAMA = re.compile(r'msg="inference compute" id=(\S{1,80}) ')  # ollama discover/types.go
OLLAMAS_LIBRARIES = {"cuda": "CUDA", "rocm": "ROCm", "vulkan": "Vulkan", "oneapi": "SYCL"}
OF_A_FIT = re.compile(
    r"  - (\S{1,80}) \((.{1,100})\): {0,12}(\d{1,9}) total, {0,12}\d{1,9} used, {0,12}-?\d{1,9} free"
)  # common/fit.cpp:345
ROW = r"(\d{1,9}) = {1,12}(\d{1,9}) \+ {1,12}(\d{1,9}) \+ {1,12}(\d{1,9})"
BREAKDOWN = re.compile(
    rf"\|   - (\S{{1,80}})(?: \((.{{1,100}}?)\))? {{1,60}}\|(?: {{0,12}}(\d{{1,9}}) = {{1,12}}(\d{{1,9}}) \+ \()?"
    rf" {{0,60}}{ROW}"
)  # common/fit.cpp:920


def listed_in(log: LogText, start: int) -> dict[str, LoggedDevice]:
    """GPUs and other accelerators that lines from one place on list, by their names; no processors."""
    found: dict[str, LoggedDevice] = {}
    for read in READERS:
        for device in read(log, start):
            known = found.get(device.name)
            found[device.name] = _joined(known, device) if known else device
    if any(name.startswith("MTL") for name in found):
        found.pop("Metal", None)
    return {name: device for name, device in found.items() if not NO_GPU.match(name)}


def used_in(log: LogText, start: int) -> dict[str, LoggedDevice]:
    """The devices of `using device`, for which llama.cpp loads a model, as the first lines of a load have them.

    What is free later is what the model left: to a draft model, or where the vocabulary is read again.
    """
    found: dict[str, LoggedDevice] = {}
    first = log.text.find("using device ", start)
    draft = log.text.find(DRAFT, first) if first >= 0 else -1
    for line in log.lines_with("using device ", start, draft if draft >= 0 else None):
        if (parts := USING.search(line.text)) and parts[1] not in found:
            found[parts[1]] = _device(parts[1], parts[2], free=float(parts[3]) * MIB, used=True)
    return found


def _joined(known: LoggedDevice, more: LoggedDevice) -> LoggedDevice:
    """What two lines say of one device, the later one where both say it."""
    return replace(
        more,
        free_bytes=known.free_bytes if more.free_bytes is None else more.free_bytes,
        total_bytes=known.total_bytes if more.total_bytes is None else more.total_bytes,
        shares_ram=known.shares_ram or more.shares_ram,
        is_software=known.is_software or more.is_software,
        used=known.used or more.used,
    )


def parts_of(name: str) -> list[str]:
    """The devices of `Meta(CUDA0,CUDA1)`, to which split mode tensor gives a part of each tensor; else the name."""
    return name.removeprefix("Meta(").removesuffix(")").split(",") if name.startswith("Meta(") else [name]


def joined(listed: dict[str, LoggedDevice], used: dict[str, LoggedDevice]) -> dict[str, LoggedDevice]:
    """Used devices first, with what the lists say of them; Metal's own lines call its first one by no name."""
    metal = next((name for name in used if name.startswith("MTL")), "Metal")
    listed = {metal if name == "Metal" else name: device for name, device in listed.items()}
    both = {name: _joined(listed[name], device) if name in listed else device for name, device in used.items()}
    return both | {name: device for name, device in listed.items() if name not in both}


def _device(
    name: str,
    description: str,
    free: float | None = None,
    total: float | None = None,
    shares_ram: bool = False,
    used: bool = False,
) -> LoggedDevice:
    is_software = bool(SOFTWARE.search(description))
    return LoggedDevice(name, description.strip(), _whole(free), _whole(total), used, shares_ram, is_software)


def _whole(n_bytes: float | None) -> int | None:
    return None if n_bytes is None else round(n_bytes)


def _in_a_list(log: LogText, start: int) -> Iterator[LoggedDevice]:
    for line in log.lines_with(" MiB free)", start):
        if (parts := IN_A_LIST.search(line.text)) and "using device" not in line.text:
            yield _device(parts[1], parts[2], int(parts[4]) * MIB, int(parts[3]) * MIB)


def _of_cuda(log: LogText, start: int) -> Iterator[LoggedDevice]:
    names = (FOUND_CUDA.search(line.text) for line in log.lines_with(" devices", start))
    name = next((match[1] for match in names if match), None)
    for line in log.lines_with("Device ", start):
        parts = OF_CUDA.search(line.text)
        kind = name or ("ROCm" if " gfx" in line.text else "CUDA")
        if parts and not (kind == "SYCL" and A_PROCESSOR.search(parts[2])):
            yield _device(f"{kind}{parts[1]}", parts[2], total=int(parts[3]) * MIB if parts[3] else None)


def _of_vulkan(log: LogText, start: int) -> Iterator[LoggedDevice]:
    for line in log.lines_with(" | uma: ", start):
        if parts := OF_VULKAN.search(line.text):
            yield _device(f"Vulkan{parts[1] or parts[2]}", DRIVER.sub("", parts[3]), shares_ram=bool(parts[4]))


def _of_sycl(log: LogText, start: int) -> Iterator[LoggedDevice]:
    for line in log.lines_with(":gpu", start):
        if parts := OF_SYCL.search(line.text):
            yield _device(f"SYCL{parts[1]}", parts[2], total=int(parts[3]) * 1_000_000)


def _of_opencl(log: LogText, start: int) -> Iterator[LoggedDevice]:
    for line in log.lines_with("ggml_opencl: ", start):
        if parts := OF_OPENCL.search(line.text):
            yield _device("GPUOpenCL", parts[1])


def _of_metal(log: LogText, start: int) -> Iterator[LoggedDevice]:
    """The GPU of a Mac, whose memory is the machine's; the limit that the system advises is its size."""
    size = next(
        (match for line in log.lines_with("WorkingSetSize", start) if (match := METAL_SIZE.search(line.text))), None
    )
    total = float(size[1]) * 1e6 if size else None
    for line in log.lines_with("ggml_metal_", start):
        if parts := OF_METAL.search(line.text):
            named = METAL_NAME.match(parts[1].strip())
            name, description = (named[1], named[2]) if named else ("Metal", parts[1])
            yield _device(name, description, total=total, shares_ram=True)


def _of_ollama(log: LogText, start: int) -> Iterator[LoggedDevice]:
    """Ollama's search when its server starts; before 0.12 it numbers no devices, and lists them in their order."""
    counts: dict[str, int] = {}
    for line in log.lines_with('msg="inference compute"', max(0, log.text.rfind('msg="Listening on '))):
        fields = fields_of(line)
        library = fields.get("library", "")
        if library in ("", "cpu") or not OF_OLLAMA.search(line.text):
            continue
        number = counts[library] = counts.get(library, -1) + 1
        kind = OLLAMAS_LIBRARIES.get(library)
        name = "Metal" if library == "metal" else f"{kind}{number}" if kind else fields.get("name") or library
        described = fields.get("description") or fields.get("name") or library
        total = bytes_in(fields.get("total", ""))
        shares = "metal" in library.lower() or fields.get("type") == "iGPU"
        yield _device(name, described, _free_at_load(log, fields.get("id", "")), total, shares)


def ollamas_gpus(log: LogText) -> dict[str, int]:
    """How many GPUs of each description the last start of Ollama's server found."""
    counts: dict[str, int] = {}
    for line in log.lines_with('msg="inference compute"', max(0, log.text.rfind('msg="Listening on '))):
        fields = fields_of(line)
        described = fields.get("description") or fields.get("name") or ""
        counts[described] = counts.get(described, 0) + (OF_OLLAMA.search(line.text) is not None)
    return counts


def _free_at_load(log: LogText, identity: str) -> int | None:
    """ollama server/sched.go:450 of v0.13, llm/server.go:685 of v0.11."""
    line = log.last(f'msg="gpu memory" id={identity} ')
    return bytes_in(fields_of(line).get("free", "")) if line else None


def _of_the_simulation(log: LogText, start: int) -> Iterator[LoggedDevice]:
    """The devices for which `-fit` computed what a model needs."""
    for line in log.lines_with(" total, ", start):
        if parts := OF_A_FIT.search(line.text):
            yield _device(parts[1], parts[2], total=int(parts[3]) * MIB, used=True)


def _of_the_table(log: LogText, start: int) -> Iterator[LoggedDevice]:
    """The devices of the table of memory; what was free may be meant for before the load or after it."""
    for line in log.lines_with("memory_breakdown_print: |   - ", start):
        if (parts := BREAKDOWN.search(line.text)) and parts[3]:
            yield _device(parts[1], parts[2] or parts[1], total=int(parts[3]) * MIB, used=True)


READERS: tuple[Callable[[LogText, int], Iterable[LoggedDevice]], ...] = (
    _of_the_table,
    _of_the_simulation,
    _of_ollama,
    _of_cuda,
    _of_vulkan,
    _of_sycl,
    _of_opencl,
    _of_metal,
    _in_a_list,
)


def fields_of(line: Line) -> dict[str, str]:
    """The fields `name=value` or `name="value"` of a line of Ollama's."""
    found = re.finditer(r'(?:^|\s)([\w.]{1,40})=(?:\\?"([^"\\]{0,300})\\?"|(\S{0,300}))', line.text)
    return {match[1]: match[3] if match[2] is None else match[2] for match in found}


def bytes_in(size: str) -> int | None:
    """`7.5 GiB` in bytes."""
    match = re.match(rf"{NUMBER} ([KMG]?i?B)", size)
    return round(float(match[1]) * UNITS[match[2]]) if match and match[2] in UNITS else None


def breakdown_in(log: LogText, start: int) -> tuple[Breakdown, ...]:
    """The last table of memory from one place on, of common_memory_breakdown_print or llama_memory_breakdown_print.

    Before the load it is what `-fit` computed, at the end of a run what was allocated.
    """
    head = log.text.rfind("| memory breakdown [MiB]", start)
    found: dict[str, Breakdown] = {}
    for line in log.lines_with("memory_breakdown_print: |   - ", max(start, head)) if head >= 0 else ():
        if parts := BREAKDOWN.search(line.text):
            total, free, _, *kinds = (None if part is None else int(part) * MIB for part in parts.groups()[2:])
            found[parts[1]] = Breakdown(parts[1], total, free, *(size or 0 for size in kinds))
    return tuple(found.values())
