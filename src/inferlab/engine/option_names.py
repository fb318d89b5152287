"""The options of four programs for each setting: name and default in each, and how a request is written for them.

The names and defaults lie in data/facts/options.toml; a test compares them with the pinned library.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.facts import read_table
from inferlab.model.ggml_types import TYPE_IDS
from inferlab.settings import Settings

LOAD_MODES = {"mmap_mlock": "mmap+mlock", "direct_io": "dio"}
MACHINE_SPECIFIC = ("rpc_servers", "devices", "tensor_split", "main_gpu", "split_mode")
SWITCH = {"on": 1, "off": 0}
OFF_SWITCHES = {"offload_kqv": "-nkvo", "op_offload": "--no-op-offload", "use_extra_bufts": "--no-repack"}
NO_OFF_SWITCH = ("no_host",)


@dataclass(frozen=True)
class Option:
    """One setting: its name and default in llama.cpp's server, llama-cpp-python, its C structures, Ollama and vLLM.

    "" means that the program has no such option.
    `c_default` is the default in the C structures; `python_means` and `c_means` explain a default that is a code.
    """

    name: str
    what: str
    cli: str
    cli_default: str
    python: str
    python_default: str
    ollama: str
    ollama_default: str
    vllm: str
    vllm_default: str
    python_means: str = ""
    struct: str = ""
    c_name: str = ""
    c_default: Any = None
    c_means: str = ""


@cache
def options() -> dict[str, Option]:
    """Every option of data/facts/options.toml by the name that `Settings` has for it."""
    return {name: Option(name, **{"c_name": name, **entry}) for name, entry in read_table("options").items()}


def names_and_defaults(names: Iterable[str] | None = None) -> str:
    """A Markdown table, a row for each option: what it is, and its name and default in four programs."""
    chosen = [options()[name] for name in (names or options())]
    head = ["| what | llama.cpp | llama-cpp-python | Ollama | vLLM |", "|---|---|---|---|---|"]
    return "\n".join([*head, *map(_row, chosen)])


def _row(option: Option) -> str:
    python = f"{option.python_default}, {option.python_means}" if option.python_means else option.python_default
    pairs = (option.cli, option.cli_default), (option.python, python), (option.ollama, option.ollama_default)
    return f"| {' | '.join([option.what, *(_cell(*pair) for pair in (*pairs, (option.vllm, option.vllm_default)))])} |"


def _cell(name: str, default: str) -> str:
    return ": ".join(filter(None, [", ".join(f"`{part}`" for part in name.split(", ") if part), default])) or "none"


# --- one request, written for each program ----------------------------------------------------


def spellings(settings: Settings, names: Iterable[str], model: str = "model.gguf") -> dict[str, str]:
    """The named fields of `settings` as three programs take them; a field of None is left to the program.

    Every name is written out, because the programs' defaults differ.
    Keys "llama.cpp", "llama-cpp-python", "Ollama"; where a program has no such option, a comment says so.
    Raises InvalidSettings for names that belong to one machine: devices, servers, shares.
    """
    requested = {name: getattr(settings, name) for name in dict.fromkeys(names)}
    specific = sorted(set(requested) & set(MACHINE_SPECIFIC))
    if specific:
        raise InvalidSettings(f"{', '.join(specific)} belong to one machine, not to a request. Leave them out.")
    values = {name: value for name, value in requested.items() if value is not None}
    return {
        "llama.cpp": " ".join([f"llama-server -m {model}", *filter(None, (_flag(*item) for item in values.items()))]),
        "llama-cpp-python": f"Llama({', '.join([repr(model), *_arguments(values)])})",
        "Ollama": _modelfile(values),
    }


def _flag(name: str, value: Any) -> str:
    if name in NO_OFF_SWITCH and not value:
        return ""
    if name in OFF_SWITCHES:
        return options()[name].cli.split(", ")[0] if value else OFF_SWITCHES[name]
    if isinstance(value, bool):
        return options()[name].cli if value else f"--no-{name.replace('_', '-')}"
    if name == "n_gpu_layers" and value < 0:
        return "-ngl all"
    return f"{options()[name].cli} {LOAD_MODES.get(value, value)}"


def _arguments(values: dict[str, Any]) -> list[str]:
    """Keyword arguments of `llama_cpp.Llama`: types by number, flash attention as a bool, two switches for loading."""
    arguments = []
    for name, value in values.items():
        if name in ("type_k", "type_v"):
            arguments.append(f"{name}={TYPE_IDS[value.upper()]}")
        elif name == "flash_attn":
            arguments.append(f"flash_attn={value != 'off'}")
        elif name == "load_mode":
            arguments += [f"use_mmap={'mmap' in value or value == 'auto'}", f"use_mlock={'mlock' in value}"]
        elif options()[name].python:
            arguments.append(f"{name}={value!r}")
    return arguments


def _modelfile(values: dict[str, Any]) -> str:
    """PARAMETER lines of a Modelfile, variables for the server's environment, and what has no equivalent."""
    lines = [_line(name, value) for name, value in values.items() if not (name == "n_batch" and "n_ubatch" in values)]
    return "\n".join(dict.fromkeys(lines))


def _line(name: str, value: Any) -> str:
    known = options()[name].ollama
    if name == "load_mode":
        return f"PARAMETER use_mmap {str('mmap' in value or value == 'auto').lower()}"
    if not known:
        return f"# Ollama has no {name} of its own"
    if value == "auto":
        return f"# leave {known} unset"
    if known.isupper():
        return f"# in the server's environment: {known}={SWITCH.get(value, value)}"
    return f"PARAMETER {known} {value}"
