"""What a log shows as done already, so that no fix advises it again.

A sentence of data/log_findings/*.toml that begins with `[unless one slot, headroom]` is left out where either is
so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from inferlab.log_reader.conditions.discovery import shares_ram
from inferlab.log_reader.conditions.memory import elsewhere, of_several, refused, uneven
from inferlab.log_reader.observed import Observed
from inferlab.log_reader.text import Line

UNLESS = re.compile(r"\[unless ([a-z0-9, ]+)\] ")
LARGE_TYPES = ("f16", "bf16", "f32")
SPARE = 1.1
"""Free memory over what is needed, from which on all layers surely fit."""


def _one_slot(seen: Observed) -> bool:
    return seen.context.n_slots == 1


def _no_shares(seen: Observed) -> bool:
    """Whether nothing shows that a slot has only a share of the context; one pool is what current versions take."""
    context = seen.context
    share = (context.n_ctx_slot or 0) * (context.n_slots or 1)
    divided = context.kv_unified is False or bool(context.n_ctx and 0 < share <= context.n_ctx)
    return context.kv_unified is True or (context.n_slots or 1) < 2 or not divided


def _trained_length(seen: Observed) -> bool:
    """Whether a request has as much context as the model was trained for, or Ollama cut it to that."""
    length, trained = seen.context.n_ctx_slot or seen.context.n_ctx, seen.model.n_ctx_train
    return bool(length and trained and length >= trained) or bool(
        seen.first("requested context size too large for model")
    )


def _headroom(seen: Observed) -> bool:
    """Whether all weights, the cache and the compute buffers are less than the devices had free."""
    free = sum(device.free_bytes or 0 for device in seen.devices if device.used)
    others = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind != "weights")
    weights = seen.model.weights_bytes
    return bool(weights and seen.buffers) and free > SPARE * ((weights or 0) + others)


def _little_cache(seen: Observed) -> bool:
    """Whether the whole cache is small beside the weights in RAM, so that a shorter context makes no room for them."""
    cache = sum(buffer.n_bytes for buffer in seen.buffers if buffer.kind == "kv_cache")
    weights, on_device = seen.model.weights_bytes, seen.bytes_on("weights", host=False)
    return bool(cache and weights and on_device) and cache < LITTLE * ((weights or 0) - on_device)


LITTLE = 0.2


def _weights_fit(seen: Observed) -> bool:
    """Whether a shorter context can do, since the weights alone are less than was free, as far as the log says it."""
    free = sum(device.free_bytes or 0 for device in seen.devices if device.used)
    return not (_little_cache(seen) or 0 < free < (seen.model.weights_bytes or 0))


def _gpu_taken(seen: Observed) -> bool:
    """Whether much of a card's memory was in use before the load."""
    used = [device for device in seen.devices if device.used and not shares_ram(seen, device)]
    return any(
        device.free_bytes and device.total_bytes and device.free_bytes < TAKEN * device.total_bytes for device in used
    )


TAKEN = 0.7


def _small_cache(seen: Observed) -> bool:
    types = (seen.context.type_k, seen.context.type_v)
    return all(types) and not set(types) & set(LARGE_TYPES)


def _f16_cache(seen: Observed) -> bool:
    return (seen.context.type_k, seen.context.type_v) == ("f16", "f16")


def _short_prompts(seen: Observed) -> bool:
    """Whether no prompt takes more than a quarter of a request's context, as far as the log tells their tokens."""
    prompts = (re.search(r"(?:task\.n_tokens|n_prompt_tokens) = (\d{1,12})", line.text) for line in _prompts(seen))
    most = max((int(match[1]) for match in prompts if match), default=0)
    length = seen.context.n_ctx_slot or seen.context.n_ctx
    return bool(length) and 0 < 4 * most <= (length or 0)


def _prompts(seen: Observed) -> Iterator[Line]:
    return seen.lines("new prompt, ")


NEAR_RELATIVE = re.compile(r"gfx(?:103[1-6]|110[1-3])\b")
ONE_TYPE = re.compile(r"supported types:\[gfx\w{3,6}\]")


def _no_near_relative(seen: Observed) -> bool:
    """Whether the GPU that Ollama left out is none for which `HSA_OVERRIDE_GFX_VERSION` is known to help."""
    lines = (line for word in ("gpu_type=", "gfx_target=") for line in seen.log.lines_with(word))
    found = [match[1] for line in lines if (match := re.search(r"(?:gpu_type|gfx_target)=\"?(gfx\w{3,6})", line.text))]
    return bool(found) and not any(NEAR_RELATIVE.match(name) for name in found)


def _own_rocblas(seen: Observed) -> bool:
    """Whether ROCm's library has the many types that Ollama delivers, and not only one."""
    line = seen.log.last("supported types:[")
    return line is None or not ONE_TYPE.search(line.text)


NO_FLASH_ATTENTION = (
    "flash_attn is not compatible with",
    "flash_attn requires n_embd_head",
    "Flash Attention not supported, set to disabled",
    "flash attention enabled but not supported by",
)
"""The program turned it off although it was asked for."""


def _refused_flash_attention(seen: Observed) -> bool:
    return any(seen.first(said) for said in NO_FLASH_ATTENTION)


OF_32_BITS = (" for i686-", " for i386-", " for i586-", " for armv7l", " for arm-linux")
"""Compilers' targets, in the first lines of a run."""
OF_GO = ("{{ .", "{{.", "{{- .", "{{- if .", "{{ if .", "{{if .", "{{- range $", "{{ range .", "{{- range .")
"""The language of templates in Ollama's Modelfiles, which Jinja does not read."""
GPU_SOURCES = ("ggml-cuda", "ggml-vulkan", "ggml-metal", "ggml-sycl", "ggml-opencl", "ggml-cann")
OF_AMD = ("ROCm", "rocBLAS", "Radeon", "RADV", "radv", "amdgpu", "gfx", "AMD proprietary driver")
"""Strings of AMD's GPUs and drivers; processors of AMD have none of them."""
DONE: dict[str, Callable[[Observed], bool]] = {
    "one slot": _one_slot,
    "no shares": _no_shares,
    "trained length": _trained_length,
    "headroom": _headroom,
    "no headroom": lambda seen: not _headroom(seen),
    "little cache": _little_cache,
    "weights fit": _weights_fit,
    "gpu free": lambda seen: not _gpu_taken(seen),
    "own runner": lambda seen: not seen.log.has("llama-server"),
    "recurrent": lambda seen: any(buffer.kind == "recurrent" for buffer in seen.buffers),
    "no experts": lambda seen: seen.model.n_expert == 0,
    "flash attention": lambda seen: seen.context.flash_attn == "on",
    "flash attention refused": _refused_flash_attention,
    "flash attention possible": lambda seen: not _refused_flash_attention(seen),
    "small cache": _small_cache,
    "64 bit": lambda seen: not any(seen.log.has(word) for word in OF_32_BITS),
    "jinja": lambda seen: not any(seen.log.has(word) for word in OF_GO),
    "one device": lambda seen: len(seen.devices) < 2 and not of_several(seen),
    "even": lambda seen: not uneven(seen),
    "full elsewhere": lambda seen: not elsewhere(seen),
    "on a device": lambda seen: not ((piece := refused(seen)) and piece.in_ram),
    "no amd": lambda seen: not any(seen.log.has(word) for word in OF_AMD),
    "no vulkan": lambda seen: not (seen.log.has("Vulkan") or seen.log.has("vk::")),
    "short prompts": _short_prompts,
    "longer possible": lambda seen: not _trained_length(seen),
    "windows": lambda seen: seen.log.has("_windows.go"),
    "no near relative": _no_near_relative,
    "own rocblas": _own_rocblas,
    "several models": lambda seen: not seen.log.has('msg="changing loaded model"'),
    "shared memory": lambda seen: any(shares_ram(seen, device) for device in seen.devices if device.used),
    "own memory": lambda seen: not any(shares_ram(seen, device) for device in seen.devices),
    "no gpu source": lambda seen: not any(seen.log.has(word) for word in GPU_SOURCES),
    "one model": lambda seen: seen.log.has('msg="changing loaded model"'),
    "no sycl": lambda seen: "SYCL" not in seen.backends and seen.first("SYCL0") is None,
    "not mapped": lambda seen: seen.first("(mmap = false)") is not None,
    "in ram": lambda seen: bool((piece := refused(seen)) and piece.in_ram),
    "room elsewhere": lambda seen: bool(elsewhere(seen)),
    "no repack": lambda seen: seen.first("allocate CPU_REPACK buffer") is None,
    "f16 cache": _f16_cache,
    "other cache": lambda seen: bool(seen.context.type_k) and not _f16_cache(seen),
    "host cache": lambda seen: bool(seen.bytes_on("kv_cache", host=True)),
    "no host cache": lambda seen: not seen.bytes_on("kv_cache", host=True),
}


def still_to_do(sentences: Iterable[str], seen: Observed | None) -> list[str]:
    """The sentences without their conditions, and without what the log shows as done; all of them without a log."""
    kept = (text for text in sentences if seen is None or not any(DONE[name](seen) for name in named(text)))
    return [UNLESS.sub("", text) for text in kept]


OWN_RUNNERS = ("ollama runner ", "ollama.exe runner ", "ollama_llama_server")
"""In the commands of Ollama's own runners, of 2023 and after: they read no variable of llama-server's."""


def read_by_runner(sentences: Iterable[str], seen: Observed) -> tuple[str, ...]:
    """The sentences without variables of llama-server's, where the log has only runners of Ollama's own."""
    own = any(seen.log.has(word) for word in OWN_RUNNERS) and not seen.log.has("llama-server")
    return tuple(text for text in sentences if not (own and "LLAMA_ARG_" in text))


def named(sentence: str) -> list[str]:
    """The conditions of a sentence."""
    match = UNLESS.match(sentence)
    return match[1].split(", ") if match else []
