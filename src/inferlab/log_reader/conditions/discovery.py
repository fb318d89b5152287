"""Which GPUs a log names, and why a GPU of the machine is not used, or only one that shares its memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice

from inferlab.log_reader.conditions.found import MOST_LINES, Found
from inferlab.log_reader.observed import Observed, server_start
from inferlab.log_reader.report import LoggedDevice
from inferlab.log_reader.text import Line
from inferlab.machine import on_host

SHARED_MEMORY = re.compile(
    r"Apple|\bGB10\b|\bOrin\b|Xavier|Tegra|\bThor\b|Adreno|Mali-|HD Graphics|\bIris"
    r"|Arc\(TM\) (?:Graphics|1[34]0[VT])|Radeon(?:\(TM\)|™)? (?:\d{3}M\b|80[456]0S|Vega \d{1,2} Graphics|Graphics)"
    r"|gfx(?:90c|103[356]|1103|115[0-3])\b|RADV (?:RAVEN|RENOIR|VANGOGH|REMBRANDT|RAPHAEL|PHOENIX)"
)
"""GPUs without memory of their own, by their names and AMD's numbers of architectures."""
GFX = re.compile(r"(?:, |RADV )(gfx\w{3,6})\b", re.IGNORECASE)
MOST_DEVICES, MOST_NAMED = 64, 8


def gpus(seen: Observed) -> list[LoggedDevice]:
    """The devices that the log names, without drivers that compute on the processor."""
    return [device for device in seen.devices[:MOST_DEVICES] if not device.is_software]


def shares_ram(seen: Observed, device: LoggedDevice) -> bool:
    """Whether a device uses the machine's own memory: by Vulkan's property, AMD's architecture, or else its name."""
    text = "\n".join(line.text for line in islice(seen.lines(device.description), MOST_NAMED))
    if device.shares_ram or " | uma: " in text:
        return device.shares_ram or " | uma: 1" in text
    match = GFX.search(text) or GFX.search(device.description)
    return bool(SHARED_MEMORY.search(match[1].lower() if match else device.description))


def device_line(seen: Observed, device: LoggedDevice) -> Line | None:
    """The line that names a device, of all those the one of the load."""
    lines = (seen.first(words) for words in (f"using device {device.name} ", device.description))
    return next((line for line in lines if line), None) or seen.log.last(device.description)


def on_gpu(seen: Observed) -> bool:
    """Whether weights lie on a device."""
    return bool(seen.bytes_on("weights", host=False))


def gpu_used(seen: Observed) -> bool:
    """Whether a GPU is used, as far as the log says, or could be."""
    return on_gpu(seen) or seen.found_a_gpu is True or bool(gpus(seen))


def software_gpu(seen: Observed) -> Found | None:
    """A driver that computes on the processor is the only device, or holds the weights."""
    named = [device for device in seen.devices if device.is_software]
    holders = {buffer.device for buffer in seen.buffers if buffer.kind == "weights"}
    used = [device for device in named if device.name in holders] or ([] if gpus(seen) else named)
    line = device_line(seen, used[0]) if used else None
    return Found((line,), {"device": used[0].description}) if line else None


def integrated_gpu_chosen(seen: Observed) -> Found | None:
    """Weights lie on a GPU that shares the machine's memory, and the log names a card with its own."""
    holders = {buffer.device for buffer in seen.buffers if buffer.kind == "weights" and not on_host(buffer.device)}
    shared = [device for device in gpus(seen) if shares_ram(seen, device)]
    cards = [device for device in gpus(seen) if device not in shared and not device.name.startswith("RPC")]
    chosen = [device for device in shared if device.name in holders]
    if not (chosen and cards):
        return None
    what = "The model lies on" if holders == {device.name for device in chosen} else "A part of the model lies on"
    lines = dict.fromkeys(line for device in (chosen[0], cards[0]) if (line := device_line(seen, device)))
    values = {"what": what, "device": chosen[0].description, "card": cards[0].description}
    return Found(tuple(lines), values)


FAILED_BACKENDS = {
    "failed to initialize CUDA: ": "CUDA",
    "failed to initialize ROCm: ": "ROCm",
    "ggml_vulkan: No devices found": "Vulkan",
}


def backend_without_device(seen: Observed) -> Found | None:
    """A backend found nothing, and another one has a GPU."""
    line, backend = next(
        ((line, name) for said, name in FAILED_BACKENDS.items() if (line := seen.first(said))), (None, "")
    )
    others = [device for device in gpus(seen) if not device.name.startswith(backend)]
    if line is None or not others or len(others) < len(gpus(seen)):
        return None
    return Found((line,), {"backend": backend, "device": others[0].name, "description": others[0].description})


CUDA_CODES = {
    "3": "not initialized",
    "46": "the device is unavailable",
    "100": "no device",
    "101": "invalid device",
    "802": "the system is not ready",
    "803": "the driver does not fit its library",
    "999": "unknown, often after the machine slept",
}
"""CUresult, as Ollama's docs/troubleshooting.mdx explains the codes."""
CUDA_INIT = (
    "cuda driver library init failure: ",
    "cudart init failure: ",
    "unknown error initializing cuda driver library",
    "no nvidia devices detected by library",
)


def cuda_search_failed(seen: Observed) -> Found | None:
    """Ollama's attempts to start NVIDIA's driver, of which only the last search counts; no fault if a GPU was found."""
    if gpu_used(seen):
        return None
    line = next((line for needle in CUDA_INIT if (line := seen.log.last(needle, server_start(seen.log)))), None)
    if line is None:
        return None
    match = re.search(r"init failure: (\d{1,4})", line.text)
    code = match[1] if match else {"unknown error": "999", "no nvidia": "100"}.get(_said(line), "")
    why = f" (error {code}: {CUDA_CODES[code]})" if code in CUDA_CODES else f" (error {code})" if code else ""
    return Found((line,), {"why": why})


def _said(line: Line) -> str:
    return next((words for words in ("unknown error", "no nvidia") if words in line.text), "")


def _unless_a_gpu(name: str, needles: tuple[str, ...], pattern: str = "") -> Callable[[Observed], Found | None]:
    """A condition: one of the messages since the server's start, and no GPU in use; {which} is the pattern's group."""

    def condition(seen: Observed) -> Found | None:
        if gpu_used(seen):
            return None
        line = next((line for needle in needles if (line := seen.log.last(needle, server_start(seen.log)))), None)
        match = line and pattern and re.search(pattern, line.text)
        return Found((line,), {"which": f" ({match[1]})" if match else ""}) if line else None

    condition.__name__ = name
    return condition


def gpu_left_out(seen: Observed) -> Found | None:
    """Ollama leaves out integrated GPUs by default, which matters where it found no other."""
    if seen.found_a_gpu is True:
        return None
    lines = list(seen.log.lines_with("dropping integrated GPU; to enable", server_start(seen.log)))
    return Found(tuple(lines[:MOST_LINES])) if lines else None


LIBRARIES_OF_OLLAMA = ("Dynamic LLM libraries", "Dynamic LLM variants")


def ollama_without_gpu_code(seen: Observed) -> Found | None:
    """Ollama before 0.5.8 lists what it can compute with: v0.1.28 llm/payload_common.go:146, v0.5.7 routes.go:1267."""
    line = next(
        (line for needle in LIBRARIES_OF_OLLAMA if (line := seen.log.last(needle, server_start(seen.log)))), None
    )
    match = line and re.search(
        r"Dynamic LLM (?:libraries|variants)\S{0,3}(?: runners=\S?)? ?\[([^\]]{1,200})\]", line.text
    )
    if not line or not match or on_gpu(seen) or not all(name.startswith("cpu") for name in match[1].split()):
        return None
    return Found((line,), {"names": match[1]})


def low_vram_mode(seen: Observed) -> Found | None:
    """Ollama's default context for gpt-oss is then 4096 in place of 8192, and nothing else changes (0.11 to 0.13)."""
    line = seen.log.last("entering low vram mode")
    return Found((line,)) if line and (seen.model.architecture or "").startswith(("gptoss", "gpt-oss")) else None


CONDITIONS = (
    low_vram_mode,
    ollama_without_gpu_code,
    software_gpu,
    integrated_gpu_chosen,
    backend_without_device,
    cuda_search_failed,
    gpu_left_out,
    _unless_a_gpu("no_vulkan_device", ("ggml_vulkan: No devices found",)),
    _unless_a_gpu(
        "amd_unsupported",
        (
            "amdgpu is not supported",
            "amdgpu too old gfx",
            "no rocblas support for gfx target",
            "unsupported Radeon iGPU",
        ),
        r"(?:gpu_type=|gfx_target=|too old )\"?(gfx\w{3,6})",
    ),
    _unless_a_gpu(
        "amd_without_access",
        (
            "permission problems block access",
            "/dev/kfd: permission denied",
            "Unable to open /dev/kfd",
            "kfd driver not loaded",
        ),
    ),
    _unless_a_gpu(
        "gpu_too_old",
        ("CUDA GPU is too old. Compute Capability detected", "compute capability not in compiled architectures"),
        r"(?:detected: |cc=\"?)(\d{1,3}(?:\.\d)?)",
    ),
    _unless_a_gpu(
        "driver_mismatch",
        ("version mismatch between driver and cuda driver library", "Driver/library version mismatch"),
    ),
    _unless_a_gpu(
        "gpu_search_failed",
        (
            "failure during GPU discovery",
            "failure during llama-server GPU discovery",
            "GPU discovery watchdog timed out",
            "discovery: timed out waiting for server startup",
        ),
        r"error=\"([^\"]{1,100})\"",
    ),
    _unless_a_gpu(
        "gpu_libraries_missing",
        (
            "unable to locate gpu dependency libraries",
            "no compatible rocm library found",
            "unable to verify rocm library",
        ),
    ),
    _unless_a_gpu("vulkan_turned_off", ("experimental Vulkan support disabled",)),
)
