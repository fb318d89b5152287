"""Settings as the lines that one pastes into llama-server, llama-cli, llama-cpp-python, Ollama or LM Studio.

A module writes for each; llama.cpp's two programs share one. Names come from data/facts/options.toml. A value that
equals the program's own default is left out, except the context and the layers. What a program has no setting for
becomes a comment.
"""

from __future__ import annotations

from typing import Any

from inferlab.errors import InvalidSettings
from inferlab.options.lines import llama_cpp_python, llama_server, lm_studio, ollama
from inferlab.options.lines.base import Part

PARTS = {
    "llama-server": llama_server.parts,
    "llama-cli": llama_server.chat_parts,
    "llama-cpp-python": llama_cpp_python.parts,
    "ollama": ollama.parts,
    "lmstudio": lm_studio.parts,
}


def option_lines(values: dict[str, Any], program: str, path: str, n_layers: int) -> tuple[Part, ...]:
    """The lines for a program, by the places where they are pasted.

    values    settings by the names of `Settings`; what is not among them is left to the program
    program   one of `programs_for`; InvalidSettings for any other
    path      the model's file, its address, or its name in Ollama's words behind `ollama:`
    n_layers  blocks of the model and its output layer; LM Studio takes layers as a share of them
    """
    check_program(program)
    return tuple(PARTS[program](values, path, n_layers))


def programs_for() -> tuple[str, ...]:
    """The names of the programs that `option_lines` writes for."""
    return tuple(PARTS)


def check_program(program: str) -> None:
    """InvalidSettings for a name that no lines can be written for."""
    if program not in PARTS:
        raise InvalidSettings(f"No lines can be written for {program!r}. There are: {', '.join(PARTS)}.")
