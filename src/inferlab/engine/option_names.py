"""The options of five programs for each setting: name and default in each, and how a request is written for them.

The names and defaults lie in data/facts/options.toml, with the version and the source of each program; a test compares
those of llama.cpp and llama-cpp-python with the pinned library.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
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
class Program:
    """A program whose options are in the table.

    key      the table's prefix: cli, python, ollama, lmstudio, vllm
    title    its name for readers
    pastes   its name for `inferlab plan --for`, "" where no plan is written for it
    version  the version that was read, of the source `source` (a key of the bibliography), in its state of `date`
    note     a sentence that a reader of its defaults should know, or ""
    """

    key: str
    title: str
    pastes: str
    version: str
    source: str
    date: str
    note: str = ""


@cache
def programs() -> dict[str, Program]:
    """The programs by their keys, in the order of the table."""
    return {key: Program(key, **entry) for key, entry in read_table("options")["engines"].items()}


def program_named(name: str) -> Program:
    """A program by its key, its title (`LM Studio` or `LM-Studio`) or its name for `--for`, in any case.

    Raises InvalidSettings for any other name.
    """
    wanted = name.lower().replace("-", " ")
    for program in programs().values():
        if wanted in {one.lower().replace("-", " ") for one in (program.key, program.title, program.pastes) if one}:
            return program
    known = ", ".join(program.title for program in programs().values())
    raise InvalidSettings(f"There is no program {name!r} in the table of settings. There are: {known}.")


@dataclass(frozen=True)
class Option:
    """One setting: its name and default in llama.cpp's server, llama-cpp-python, Ollama, LM Studio and vLLM.

    "" means that the program has no such option.
    `c_default` is the default in llama.cpp's C structures; `python_means` and `c_means` explain a default that is a
    code. `env` is llama-server's environment variable, `lms` the flag of `lms load`.
    """

    name: str
    what: str
    cli: str
    cli_default: str
    python: str
    python_default: str
    ollama: str
    ollama_default: str
    lmstudio: str
    lmstudio_default: str
    vllm: str
    vllm_default: str
    lms: str = ""
    env: str = ""
    python_means: str = ""
    struct: str = ""
    c_name: str = ""
    c_default: Any = None
    c_means: str = ""

    def names_in(self, program: str) -> tuple[str, ...]:
        """Its names in one program, as one types them; a title of LM Studio's interface is not among them."""
        if program == "lmstudio":
            return (self.lms,) if self.lms else ()
        return tuple(filter(None, getattr(self, program).split(", ")))

    def default_in(self, program: str) -> str:
        """Its default in one program, "" where the program has no such option."""
        default = getattr(self, f"{program}_default")
        return f"{default}, {self.python_means}" if program == "python" and self.python_means else default


@cache
def options() -> dict[str, Option]:
    """Every option of data/facts/options.toml by the name that `Settings` has for it."""
    table = {name: entry for name, entry in read_table("options").items() if name != "engines"}
    return {name: Option(name, **{"c_name": name, **entry}) for name, entry in table.items()}


def option_named(name: str) -> Option:
    """One option by its name; raises InvalidSettings with the nearest known name."""
    if name in options():
        return options()[name]
    near = get_close_matches(name, options(), n=1)
    hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(options())}."
    raise InvalidSettings(f"There is no setting {name!r} in the table of settings.{hint}")


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
        "llama.cpp": " ".join([f"llama-server -m {model}", *filter(None, (flag(*item) for item in values.items()))]),
        "llama-cpp-python": f"Llama({', '.join([repr(model), *arguments(values)])})",
        "Ollama": _modelfile(values),
    }


def flag(name: str, value: Any) -> str:
    if name in NO_OFF_SWITCH and not value:
        return ""
    if name in OFF_SWITCHES:
        return options()[name].cli.split(", ")[0] if value else OFF_SWITCHES[name]
    if isinstance(value, bool):
        return options()[name].cli if value else f"--no-{name.replace('_', '-')}"
    if name == "n_gpu_layers" and value < 0:
        return "-ngl all"
    return f"{options()[name].cli} {LOAD_MODES.get(value, value)}"


def arguments(values: dict[str, Any]) -> list[str]:
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
