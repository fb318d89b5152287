"""The options of five programs for each setting: name and default in each.

The names and defaults lie in data/facts/options.toml, with the version and the source of each program; a test compares
those of llama.cpp and llama-cpp-python with the pinned library.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.facts import read_table


@dataclass(frozen=True)
class Program:
    """A program whose options are in the table.

    key      the table's prefix: cli, python, ollama, lmstudio, vllm
    title    its name for readers
    pastes   its names for `inferlab plan --for`, none where no plan is written for it
    version  the version that was read, of the source `source` (a key of the bibliography), in its state of `date`
    note     a sentence that a reader of its defaults should know, or ""
    """

    key: str
    title: str
    pastes: tuple[str, ...]
    version: str
    source: str
    date: str
    note: str = ""


@cache
def programs() -> dict[str, Program]:
    """The programs by their keys, in the order of the table."""
    engines = read_table("options")["engines"]
    return {key: Program(key, **{**entry, "pastes": tuple(entry["pastes"])}) for key, entry in engines.items()}


def program_named(name: str) -> Program:
    """A program by its key, its title (`LM Studio` or `LM-Studio`) or a name for `--for`, in any case.

    Raises InvalidSettings for any other name.
    """
    wanted = name.lower().replace("-", " ")
    for program in programs().values():
        if wanted in {known_as.lower().replace("-", " ") for known_as in (program.key, program.title, *program.pastes)}:
            return program
    known = ", ".join(program.title for program in programs().values())
    raise InvalidSettings(f"There is no program {name!r} in the table of settings. There are: {known}.")


@dataclass(frozen=True)
class Option:
    """One setting: its name and default in llama.cpp's server, llama-cpp-python, Ollama, LM Studio and vLLM.

    "" means that the program has no such option.
    `c_default` is the default in llama.cpp's C structures; `python_means` and `c_means` explain a default that is a
    code. `env` is llama-server's environment variable, `lms` the flag of `lms load`, `cli_off` the flag of llama.cpp
    that turns a switch off. `inferlab` is the switch of this library's command line, where it has one.
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
    cli_off: str = ""
    inferlab: str = ""
    inferlab_help: str = ""
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
