"""Options that several commands share, and the settings, devices and limits made from them."""

from __future__ import annotations

import argparse
import math
import re
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from typing import Any

from inferlab.engine.limit_vram import Limit, limit_vram
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.errors import InvalidSettings
from inferlab.options.names import Option, options
from inferlab.settings import FLASH_ATTN, KV_TYPES, SPLIT_MODES, Settings
from inferlab.units import bytes_from_text

LLAMA_CPP = {
    "n_ctx": ("--ctx-size",),
    "n_batch": ("--batch-size",),
    "n_ubatch": ("--ubatch-size",),
    "n_seq_max": ("--parallel",),
    "n_threads": ("--threads",),
    "n_gpu_layers": ("--gpu-layers",),
    "type_k": ("--cache-type-k",),
    "type_v": ("--cache-type-v",),
    "devices": ("-dev", "--device"),
    "offload_kqv": ("--no-kv-offload",),
    "use_extra_bufts": ("-nr",),
}
"""llama.cpp's names (common/arg.cpp) beside this library's and beside those that the table of settings has."""
WORDS = {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off", "-1": "auto"}
"""What llama.cpp takes for `-fa`, too (common/arg.cpp)."""
OUTPUT = "-o"
"""A flag of `sweep` that also begins `-ot`."""


def flags(name: str, own: str = "") -> tuple[str, ...]:
    """The flags of a setting: this library's, which is `own` or its name, and those of llama.cpp that do the same."""
    own, option = own or f"--{name.replace('_', '-')}", options().get(name)
    short = (
        (option.cli_off,) if option and option.cli_off and option.inferlab else option.names_in("cli") if option else ()
    )
    return tuple(dict.fromkeys(filter(None, (own, *short, *LLAMA_CPP.get(name, ())))))


def add_workload(command: argparse.ArgumentParser, n_prompt: int, n_gen: int, repeats: int) -> None:
    """Options that say what is measured, with these defaults, and on how many threads."""
    command.add_argument("--n-prompt", type=int, default=n_prompt, help=f"prompt tokens (default {n_prompt})")
    command.add_argument("--n-gen", type=int, default=n_gen, help=f"generated tokens (default {n_gen})")
    command.add_argument("--repeats", type=int, default=repeats, help=f"counted passes of each (default {repeats})")
    cells = "cells of the KV cache (default: as many as the measurement needs)"
    command.add_argument(*flags("n_ctx"), type=int, metavar="N", help=cells)
    command.add_argument(*flags("n_threads"), type=int, metavar="N", help="CPU threads (default: physical cores)")
    command.add_argument("--limit-vram", type=size, metavar="8GiB", help="occupy the rest of the card's memory")


def add_placement(command: argparse.ArgumentParser) -> None:
    """Options that place weights and cache on devices, under the names of `Settings`."""
    defaults = Settings()
    command.add_argument(
        *flags("n_gpu_layers"), type=layers, default=defaults.n_gpu_layers, metavar="N", help="default -1: all"
    )
    command.add_argument(
        *flags("n_cpu_moe"), type=int, default=0, metavar="N", help="keep the experts of N layers in RAM"
    )
    command.add_argument(*flags("cpu_moe"), action="store_true", help="keep the experts of all layers in RAM")
    command.add_argument(
        *flags("override_tensor"), type=names, default=(), metavar="PATTERN=CPU", help="where tensors of such names are"
    )
    for name, what in (("type_k", "keys"), ("type_v", "values")):
        told, usual = f"type of cached {what}: {', '.join(KV_TYPES)}", getattr(defaults, name)
        command.add_argument(*flags(name), choices=KV_TYPES, default=usual, metavar="TYPE", help=told)
    command.add_argument(
        *flags("flash_attn"),
        type=flash_attention,
        choices=FLASH_ATTN,
        default=defaults.flash_attn,
        metavar="MODE",
        help=", ".join(FLASH_ATTN),
    )
    for name, option in switches().items():
        usual = getattr(defaults, name)
        command.add_argument(
            *flags(name, option.inferlab),
            dest=name,
            action="store_const",
            const=not usual,
            default=usual,
            help=option.inferlab_help,
        )
    command.add_argument(*flags("devices"), type=names, metavar="CUDA0,CUDA1", help="use only these (default: all)")
    command.add_argument(
        *flags("split_mode"), choices=SPLIT_MODES, default="layer", help="how several devices share a model"
    )
    command.add_argument(*flags("main_gpu"), type=int, default=0, metavar="1", help="the device of --split-mode none")
    command.add_argument(
        *flags("tensor_split"), type=shares, metavar="3,1", help="share of each device (default: as free)"
    )
    command.add_argument(
        "--loopback",
        nargs="?",
        type=float,
        const=math.inf,
        metavar="GB/s",
        help="put the layers on a second device on this machine; with a number, over a link of that rate",
    )
    for beginning in beginnings():
        command.add_argument(beginning, action=Refused, nargs="?", help=argparse.SUPPRESS)


class Refused(argparse.Action):
    """A flag that there is not."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        parser.error(f"unrecognized arguments: {self.option_strings[0]}")


def beginnings() -> list[str]:
    """Beginnings of flags with one stroke, which argparse would take for the flag: `-m` for `-mg`."""
    whole = {flag for field in fields(Settings) for flag in flags(field.name) if not flag.startswith("--")}
    return sorted({flag[:n] for flag in whole for n in range(2, len(flag))} - whole - {OUTPUT})


def switches() -> dict[str, Option]:
    """The settings that one switch changes here, in the order of `Settings`."""
    named = {field.name: options().get(field.name) for field in fields(Settings)}
    return {name: option for name, option in named.items() if option and option.inferlab}


def settings_from(options: argparse.Namespace, **others: Any) -> Settings:
    """Settings from the options that have their names."""
    named = {field.name: getattr(options, field.name) for field in fields(Settings) if hasattr(options, field.name)}
    return Settings(**named, **others)


def loopback(options: argparse.Namespace) -> AbstractContextManager[LoopbackDevice | None]:
    """The second device that --loopback starts, or None; it computes with --n-threads, the host with one thread."""
    if options.loopback is None:
        return nullcontext()
    rate = None if math.isinf(options.loopback) else options.loopback
    return loopback_device(rate, n_threads=options.n_threads)


def limit(options: argparse.Namespace, device: LoopbackDevice | None) -> AbstractContextManager[Limit | None]:
    """The limit of --limit-vram: on the loopback device, on the device that was named, or on the machine's only GPU."""
    if options.limit_vram is None:
        return nullcontext()
    named = options.devices[0] if options.devices and len(options.devices) == 1 else None
    return limit_vram(options.limit_vram, device or named, options.engine)


def names(text: str) -> tuple[str, ...]:
    """Names of devices with commas between them; `none` for no device at all."""
    return () if text == "none" else tuple(text.split(","))


def shares(text: str) -> tuple[float, ...]:
    """Shares with commas or strokes between them, as llama.cpp takes them."""
    return tuple(map(float, re.split("[,/]", text)))


def layers(text: str) -> int:
    """A number of layers, or `all`."""
    return -1 if text == "all" else int(text)


def flash_attention(text: str) -> str:
    """A mode of flash attention, also in llama.cpp's other words for it."""
    return WORDS.get(text, text)


def size(text: str) -> int:
    """A size on the command line, in bytes."""
    try:
        return bytes_from_text(text)
    except InvalidSettings as wrong:
        raise argparse.ArgumentTypeError(str(wrong)) from None
