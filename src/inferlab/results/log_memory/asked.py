"""The settings and devices of a load, from the lines that name them; never from the bytes of a buffer."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property

from inferlab.errors import InferlabError
from inferlab.log_reader.observed import KV_SIZE
from inferlab.log_reader.report import LoggedDevice
from inferlab.machine import HOST_BUFFER, Device
from inferlab.model.ggml_types import CELL_STEP
from inferlab.model.gguf import Model
from inferlab.model.repacking import AMX, ARM, AVX2, AVX512, NOT_REPACKED
from inferlab.prediction.memory.cache import may_have_windows
from inferlab.results.log_memory.logged import (
    HOST,
    KV_CACHE,
    REPACKED,
    STATES,
    WEIGHTS,
    Logged,
    number,
    without_endpoint,
)
from inferlab.settings import FLASH_ATTN, KV_TYPES, Settings

LOAD_MODE = re.compile(r"\((?:load_mode = (\w{1,20})|mmap = (true|false))\)")  # llama-model.cpp:1539
OVERRIDDEN = re.compile(
    r"tensor (\S{1,120}) \(.{1,40}\) buffer type overridden to (\S{1,60})"
)  # llama-model-loader:1253
REPEATING = re.compile(r"offloading (\d{1,5}) repeating layers to GPU")
"""llama-model.cpp:1919; an older build counts no output layer there, and leaves it in RAM until all blocks are on a
device (llama.cpp 74d73dc, src/llama-model.cpp)"""
OUTPUT_IN_RAM = (r"^output(_norm)?\.=CPU",)
LAYER_PLACE = re.compile(r"load_tensors: layer {1,4}(\d{1,5}) assigned to device (\S{1,60}),")  # llama-model.cpp:1599
NEEDED = ("n_ctx", "n_batch", "n_ubatch", "n_seq_max")
BACKENDS = ("CUDA", "ROCm", "RPC", "Vulkan", "Metal", "MTL", "SYCL", "OpenCL", "CANN", "MUSA")
SHARE_RAM = ("Metal", "MTL")
SWA_FULL, SWA_CACHE = "using full-size SWA cache", "creating     SWA KV cache"
"""src/llama-kv-cache-iswa.cpp:77, 100"""
BEFORE_WINDOWS = ("llama_kv_cache_init: ", " init: kv_size = ")
"""Lines of builds before 2025-05, in which every layer keeps the whole context (Ollama v0.5.4, v0.6.8)."""
PROCESSORS = {"AVX512": AVX512, "AVX2": AVX2, "DOTPROD": ARM}
DEFAULT_TYPE = "f16"


@dataclass(frozen=True)
class Asked:
    """What a load asked for.

    n_outputs     rows of logits that are reserved, where they are neither one for each sequence nor for each token
    per_sequence  whether they are one for each sequence
    cells_of      what the cells of a cache are rounded up to: 256; 32 without flash attention before 2025-11
    processor     the kind of processor by `model.repacking`; None where the log does not tell
    layers        the device of each block and of the output by its name in the log; None where it follows from settings
    assumed       what the log does not say, in sentences
    moves         whether single tensors were moved
    sets_slot     whether the context that one sets is that of one slot, and not of all, as in Ollama
    """

    settings: Settings
    devices: tuple[Device, ...]
    n_outputs: int | None
    per_sequence: bool
    cells_of: int
    processor: str | None
    layers: tuple[str, ...] | None
    assumed: tuple[str, ...] = ()
    moves: bool = False
    sets_slot: bool = False

    @property
    def without_overrides(self) -> Asked:
        """The same where the names of the model's tensors are not known, which no cache depends on."""
        return replace(self, settings=self.settings.but(override_tensor=()))

    @cached_property
    def places(self) -> dict[str, str]:
        """The name of each device in a plan by its name in the log."""
        return {HOST: "host"} | {device.name: f"gpu{i}" for i, device in enumerate(self.devices)}


def asked(logged: Logged, model: Model) -> Asked | str:
    """What a load asked for, or which setting is missing, as a sentence."""
    values = {name: number(logged.context.get(name)) for name in NEEDED}
    missing = [name for name, value in values.items() if not value] or _cut_out(logged)
    if missing:
        return f"The log does not say {', '.join(f'`{name}`' for name in missing)}, without which no plan can be made."
    devices = _devices(logged)
    if logged.is_split_by_rows:
        return "In split mode `row` each tensor is divided among the devices, and no plan was ever compared with that."
    if devices and not logged.seen.offloaded:
        return "The log does not say how many layers were offloaded, so what lies on which device cannot be planned."
    windows = _swa_full(logged) if may_have_windows(model) else True
    if windows is None:
        return "The log does not say whether layers with a window keep the whole context, so no plan can be made."
    types, assumed = _types(logged)
    processor = _processor(logged)
    if processor is None:
        assumed = (*assumed, "The log does not name the processor, so the weights in RAM were not compared.")
    in_ram = int(bool(devices) and _output_in_ram(logged))
    try:
        settings = Settings(
            **values,  # type: ignore[arg-type]
            n_gpu_layers=logged.seen.offloaded[1] + in_ram if devices and logged.seen.offloaded else 0,
            override_tensor=_overrides(logged) + OUTPUT_IN_RAM[:in_ram],
            type_k=types[0],
            type_v=types[1],
            flash_attn=_flash(logged),
            offload_kqv=not devices or _offload_kqv(logged),
            swa_full=windows,
            kv_unified=_unified(logged),
            load_mode="mmap" if _mapped(logged) else "none",
            no_host=bool(devices) and _has_repacked(logged),
        )
    except InferlabError as error:
        return f"These settings cannot be planned: {error}"
    outputs = number(logged.context.get("n_outputs_max"))
    own = outputs if outputs not in (None, settings.n_seq_max, settings.n_batch) else None
    return Asked(
        settings,
        devices,
        own,
        outputs == settings.n_seq_max,
        _cells_of(logged),
        processor,
        _layers(logged, model),
        assumed,
        bool(settings.override_tensor[in_ram:]),
        logged.seen.program.key == "ollama",
    )


def _cut_out(logged: Logged) -> list[str]:
    """Values that the log's build prints and the log does not have, of those that older builds do not print."""
    has, several = logged.context, number(logged.context["n_seq_max"]) != 1
    later = {"kv_unified": several and "n_ctx_seq" in has, "n_outputs_max": logged.is_of_the_pinned_build}
    return [name for name, is_printed in later.items() if is_printed and name not in has]


def _cells_of(logged: Logged) -> int:
    """Ollama v0.13 has llama.cpp's get_padding, v0.14 no more; the lines of the context changed with it."""
    old = "n_ctx_per_seq" in logged.context and "n_ctx_seq" not in logged.context
    return 32 if old and logged.context.get("flash_attn") in ("0", "disabled") else CELL_STEP


def _devices(logged: Logged) -> tuple[Device, ...]:
    """The devices that the log names, in llama.cpp's order; without those lines those that have buffers.

    What is free is left out of a GPU that shares RAM, which may hold more than it calls free.
    """
    named = {without_endpoint(device.name): device for device in logged.seen.devices if device.used}
    names = list(named) or [name for name in logged.buffers if name != HOST and WEIGHTS in logged.buffers[name]]
    return tuple(Device(name, name, "gpu", None, _free_bytes(named.get(name)), _backend(name)) for name in names)


def _free_bytes(device: LoggedDevice | None) -> int | None:
    if device is None or device.shares_ram or device.name.startswith(SHARE_RAM):
        return None
    return device.free_bytes


def _backend(name: str) -> str | None:
    return next((backend for backend in BACKENDS if name.startswith(backend)), None)


def _flash(logged: Logged) -> str:
    said = logged.seen.context.flash_attn
    return said if said in FLASH_ATTN else "auto"


def _types(logged: Logged) -> tuple[tuple[str, str], tuple[str, ...]]:
    """Types of keys and values; f16, as by default, where a load ended before it named them."""
    for line in logged.lines("MiB, V ("):
        if (match := KV_SIZE.search(line.text)) and match[1] in KV_TYPES and match[2] in KV_TYPES:
            return (match[1], match[2]), ()
    if not _has_cells(logged):
        return (DEFAULT_TYPE, DEFAULT_TYPE), ()
    return (DEFAULT_TYPE, DEFAULT_TYPE), (
        "The log does not name the types of the cache; the plan has f16, the default.",
    )


def _has_cells(logged: Logged) -> bool:
    """Whether the load came to a cache of cells, or ended before any cache."""
    held = [kinds for kinds in logged.buffers.values() if STATES in kinds]
    return not held or any(KV_CACHE in kinds for kinds in logged.buffers.values())


def _unified(logged: Logged) -> bool:
    """Whether sequences share all cells; before the setting existed they did."""
    return logged.seen.context.kv_unified is not False and number(logged.context.get("n_seq_max")) != 1


def _swa_full(logged: Logged) -> bool | None:
    if next(logged.lines(SWA_FULL), None):
        return True
    if next(logged.lines(SWA_CACHE), None):
        return False
    return True if any(next(logged.lines(word), None) for word in BEFORE_WINDOWS) else None


def _offload_kqv(logged: Logged) -> bool:
    """Whether the cache lies with its layers: some of it does on a device that has layers."""
    held = {device for device, kinds in logged.buffers.items() if KV_CACHE in kinds or STATES in kinds}
    offloaded = logged.seen.offloaded
    return held != {HOST} or not offloaded or offloaded[1] < 2


def _mapped(logged: Logged) -> bool:
    for line in logged.lines("loading model tensors"):
        if match := LOAD_MODE.search(line.text):
            return match[2] == "true" or "mmap" in (match[1] or "") or match[1] == "auto"
    return bool(logged.mapped) or not logged.buffer_names


def _overrides(logged: Logged) -> tuple[str, ...]:
    """Tensors that debug lines name as moved to host memory."""
    found = (OVERRIDDEN.search(line.text) for line in logged.lines("buffer type overridden to "))
    moved = dict.fromkeys(match[1] for match in found if match and match[2].startswith((HOST_BUFFER, "CUDA_Host")))
    return tuple(f"^{re.escape(name)}$={HOST_BUFFER}" for name in moved)


def _has_repacked(logged: Logged) -> bool:
    return REPACKED in logged.buffers.get(HOST, {})


def _processor(logged: Logged) -> str | None:
    """The kind of processor by the names of its buffers and the instruction sets of `system_info`."""
    if "AMX" in logged.buffer_names:
        return AMX
    if not _has_repacked(logged):
        return NOT_REPACKED
    line = logged.seen.first("system_info: ")
    sets = re.findall(r"(\w{1,20}) = 1\b", line.text) if line else []
    return next((kind for name, kind in PROCESSORS.items() if name in sets), None)


def _output_in_ram(logged: Logged) -> bool:
    """Whether an older build put blocks on devices, and the output layer, which goes first now, into RAM."""
    offloaded = logged.seen.offloaded
    counts = [match[1] for line in logged.lines("repeating layers to GPU") if (match := REPEATING.search(line.text))]
    if not offloaded or not counts:
        return False
    return 0 < offloaded[1] < offloaded[2] and int(counts[-1]) == offloaded[1]


def _layers(logged: Logged, model: Model) -> tuple[str, ...] | None:
    """The device of each layer as debug lines name it."""
    places: dict[int, str] = {}
    for line in logged.lines("assigned to device"):
        if match := LAYER_PLACE.search(line.text):
            places[int(match[1])] = HOST if match[2] == HOST_BUFFER else without_endpoint(match[2])
    whole = set(places) == set(range(model.n_layer + 1))
    return tuple(places[i] for i in range(model.n_layer + 1)) if whole else None
