"""One command of llama-server, or of llama-cli, which starts the same server for one chat (tools/cli/cli-server.h)."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

from inferlab.model.find import is_address
from inferlab.options.lines.base import Part, is_default, on_hub, shares
from inferlab.options.names import options

FLAGS = {"devices": "-dev", "rpc_servers": "--rpc"}
"""Flags of settings that name the parts of one machine; the table of options has no row for them."""
LOAD_MODES = {"mmap_mlock": "mmap+mlock", "direct_io": "dio"}
OF_SLOTS = ("n_seq_max", "kv_unified")
"""Settings of several sequences: llama-cli has one by itself, and no flag for the second (common/arg.cpp)."""


def parts(values: dict[str, Any], path: str, n_layers: int) -> Iterator[Part]:
    """The command, with the port that is its default."""
    port = options()["port"]
    yield Part("In a terminal", " ".join([*_command("llama-server", values, path), port.cli, port.cli_default]))


def chat_parts(values: dict[str, Any], path: str, n_layers: int) -> Iterator[Part]:
    """The command of a chat, which is one sequence."""
    n_seq_max = values.get("n_seq_max", 1)
    comments = [f"# llama-cli chats in one sequence; the plan has {n_seq_max}"] if n_seq_max > 1 else []
    of_one_chat = {name: value for name, value in values.items() if name not in OF_SLOTS}
    yield Part("In a terminal", "\n".join([*comments, " ".join(_command("llama-cli", of_one_chat, path))]))


def _command(program: str, values: dict[str, Any], path: str) -> list[str]:
    flags = [flag(name, value) for name, value in values.items() if not is_default(name, value, "cli")]
    return [program, *_model(path), *filter(None, flags)]


def _model(path: str) -> list[str]:
    """The flags of the model: a file here, one of a repository with all its parts, or one at another address.

    common/arg.cpp:3034-3075; -hf has no revision (common/hf-cache.cpp:236).
    """
    if not (found := on_hub(path)):
        return ["-mu" if is_address(path) else "-m", shlex.quote(path)]
    file = ["-hff", shlex.quote(found.file)] if found.file else []
    return ["-hf", shlex.quote(f"{found.repo}:{found.type}" if found.type else found.repo), *file]


def flag(name: str, value: Any) -> str:
    """One setting as a flag with its value, or as the switch that turns it on or off; "" where there is no switch."""
    if name in FLAGS:
        return f"{FLAGS[name]} {','.join(value) or 'none'}"
    if name == "tensor_split":
        return f"{options()[name].cli} {shares(value)}"
    if name == "override_tensor":
        return f"{options()[name].cli} {shlex.quote(','.join(value))}"
    if isinstance(value, bool):
        return options()[name].names_in("cli")[0] if value else options()[name].cli_off
    if name == "n_gpu_layers" and value < 0:
        return "-ngl all"
    return f"{options()[name].cli} {LOAD_MODES.get(value, value)}"
