"""Settings under the names of four programs: what each calls a knob and takes by default, how a request is spelled.

The names and defaults lie in data/facts/knobs.toml; a test asks the pinned library for its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import TYPE_IDS
from inferlab.settings import Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LOAD_MODES = {"mmap_mlock": "mmap+mlock", "direct_io": "dio"}
PLACES = ("rpc_servers", "devices", "tensor_split", "main_gpu", "split_mode")
SWITCH = {"on": 1, "off": 0}
OFF_SWITCHES = {"offload_kqv": "-nkvo", "op_offload": "--no-op-offload"}


@dataclass(frozen=True)
class Knob:
    """One setting: its name in llama.cpp's server, llama-cpp-python, llama.cpp's C structures, Ollama and vLLM.

    With each name its default; "" is a program that has no such thing.
    `c_default` is the one in the structures; `python_means` and `c_means` explain a default that is a code.
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
def knobs() -> dict[str, Knob]:
    """Every knob of data/facts/knobs.toml by the name that `Settings` has for it."""
    text = (files("inferlab") / "data" / "facts" / "knobs.toml").read_text(encoding="utf-8")
    return {name: Knob(name, **{"c_name": name, **entry}) for name, entry in tomllib.loads(text).items()}


def names_and_defaults(names: Iterable[str] | None = None) -> str:
    """A Markdown table, a row for each knob: what it is, and its name and default in four programs."""
    chosen = [knobs()[name] for name in (names or knobs())]
    head = ["| what | llama.cpp | llama-cpp-python | Ollama | vLLM |", "|---|---|---|---|---|"]
    return "\n".join([*head, *map(_row, chosen)])


def _row(knob: Knob) -> str:
    python = f"{knob.python_default}, {knob.python_means}" if knob.python_means else knob.python_default
    pairs = (knob.cli, knob.cli_default), (knob.python, python), (knob.ollama, knob.ollama_default)
    return f"| {' | '.join([knob.what, *(_cell(*pair) for pair in (*pairs, (knob.vllm, knob.vllm_default)))])} |"


def _cell(name: str, default: str) -> str:
    return ": ".join(filter(None, [", ".join(f"`{one}`" for one in name.split(", ") if one), default])) or "none"


# --- one request, spelled ---------------------------------------------------------------------


def spellings(settings: Settings, names: Iterable[str], model: str = "model.gguf") -> dict[str, str]:
    """How to ask three programs for the named fields of a request; None leaves a field to the program.

    Every name is spelled out, since the programs' defaults differ from each other.
    Keys "llama.cpp", "llama-cpp-python", "Ollama"; what a program cannot be told is a comment.
    Raises InvalidSettings for names that are places on one machine: devices, servers, shares.
    """
    asked = {name: getattr(settings, name) for name in dict.fromkeys(names)}
    placed = sorted(set(asked) & set(PLACES))
    if placed:
        raise InvalidSettings(f"{', '.join(placed)} belong to one machine; they have no spelling that others can use.")
    told = {name: value for name, value in asked.items() if value is not None}
    return {
        "llama.cpp": " ".join([f"llama-server -m {model}", *(_flag(*one) for one in told.items())]),
        "llama-cpp-python": f"Llama({', '.join([repr(model), *_arguments(told)])})",
        "Ollama": _modelfile(told),
    }


def _flag(name: str, value: Any) -> str:
    if name in OFF_SWITCHES:
        return knobs()[name].cli.split(", ")[0] if value else OFF_SWITCHES[name]
    if isinstance(value, bool):
        return knobs()[name].cli if value else f"--no-{name.replace('_', '-')}"
    if name == "n_gpu_layers" and value < 0:
        return "-ngl all"
    return f"{knobs()[name].cli} {LOAD_MODES.get(value, value)}"


def _arguments(asked: dict[str, Any]) -> list[str]:
    """Keyword arguments of `llama_cpp.Llama`: types by number, flash attention as a bool, two switches for loading."""
    told = []
    for name, value in asked.items():
        if name in ("type_k", "type_v"):
            told.append(f"{name}={TYPE_IDS[value.upper()]}")
        elif name == "flash_attn":
            told.append(f"flash_attn={value != 'off'}")
        elif name == "load_mode":
            told += [f"use_mmap={'mmap' in value or value == 'auto'}", f"use_mlock={'mlock' in value}"]
        elif knobs()[name].python:
            told.append(f"{name}={value!r}")
    return told


def _modelfile(asked: dict[str, Any]) -> str:
    """PARAMETER lines of a Modelfile, variables for the server's environment, and what has no equivalent."""
    lines = [_line(name, value) for name, value in asked.items() if not (name == "n_batch" and "n_ubatch" in asked)]
    return "\n".join(dict.fromkeys(lines))


def _line(name: str, value: Any) -> str:
    known = knobs()[name].ollama
    if name == "load_mode":
        return f"PARAMETER use_mmap {str('mmap' in value or value == 'auto').lower()}"
    if not known:
        return f"# Ollama has no {name} of its own"
    if value == "auto":
        return f"# leave {known} unset"
    if known.isupper():
        return f"# in the server's environment: {known}={SWITCH.get(value, value)}"
    return f"PARAMETER {known} {value}"
