"""Settings as the lines that one pastes into a program: llama-server, llama-cpp-python, Ollama or LM Studio.

A module writes for each. Names come from data/facts/options.toml. A value that equals the program's own default is left
out, except the context and the layers. What a program has no setting for becomes a comment.
"""

from __future__ import annotations

from typing import Any

from inferlab.engine.option_lines import llama_cpp_python, llama_server, lm_studio, ollama
from inferlab.engine.option_lines.base import Part
from inferlab.engine.option_names import programs
from inferlab.errors import InvalidSettings

PARTS = {
    "cli": llama_server.parts,
    "python": llama_cpp_python.parts,
    "ollama": ollama.parts,
    "lmstudio": lm_studio.parts,
}


def option_lines(values: dict[str, Any], program: str, path: str, n_layers: int) -> tuple[Part, ...]:
    """The lines for a program, by the places where they are pasted.

    values    settings by the names of `Settings`; what is not among them is left to the program
    program   llama-server, llama-cpp-python, ollama or lmstudio; InvalidSettings for any other
    path      the model's file
    n_layers  blocks of the model and its output layer; LM Studio takes layers as a share of them
    """
    return tuple(PARTS[check_program(program)](values, path, n_layers))


def programs_for() -> tuple[str, ...]:
    """The names of the programs that `option_lines` writes for."""
    return tuple(_keys())


def check_program(program: str) -> str:
    """The key of a program in the table of options; InvalidSettings for a name that no lines can be written for."""
    if program not in _keys():
        raise InvalidSettings(f"No lines can be written for {program!r}. There are: {', '.join(_keys())}.")
    return _keys()[program]


def _keys() -> dict[str, str]:
    return {one.pastes: key for key, one in programs().items() if one.pastes}
