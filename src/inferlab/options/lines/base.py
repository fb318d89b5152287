"""What the writers of all programs share: a part of the lines, known defaults, and values in words."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from inferlab.model.find import is_address
from inferlab.model.hub import MAIN, HubAddress, hub_address
from inferlab.options.names import options

PLACEHOLDER = "model.gguf"
ALWAYS = ("n_ctx", "n_gpu_layers")
NO_ROW_WHAT = {"devices": "devices to use", "rpc_servers": "other machines to use"}
"""Settings that name the parts of one machine; the table of options has no row for them."""


@dataclass(frozen=True)
class Part:
    """Lines for one place: the terminal, a file named `Modelfile`, fields of an interface."""

    where: str
    text: str
    language: str = "sh"


def on_hub(path: str) -> HubAddress | None:
    """What a path means on the main branch of a repository of the Hub: of other branches no program takes a file."""
    found = hub_address(path)
    return found if found and found.revision == MAIN else None


def here(path: str) -> tuple[list[str], str]:
    """Comments, and the path of a file here; a placeholder for one at an address, which has to be downloaded."""
    if not is_address(path):
        return [], path
    shown = " ".join(path.partition("?")[0].split())
    return [f"# {PLACEHOLDER} stands for the file of {shown}: download it first"], PLACEHOLDER


def is_default(name: str, value: Any, program: str) -> bool:
    """Whether a program does so by itself; always false for the context, the layers and what has no row."""
    if name in ALWAYS or name not in options():
        return False
    said = re.split(r"[:,;] ?", options()[name].default_in(program))
    return bool({str(value), switch(value)} & set(said))


def cannot(name: str, value: Any, program: str) -> str:
    """A comment on a setting that a program does not have, or not with this value."""
    what = options()[name].what if name in options() else NO_ROW_WHAT[name]
    return f"# {name} ({what}) cannot be set to {words(value)} in {program}"


def maps_file(load_mode: str) -> bool:
    """Whether a load mode maps the file; llama.cpp's own choice does."""
    return "mmap" in load_mode or load_mode == "auto"


def switch(value: Any) -> str:
    """A value as text, a bool as on or off."""
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def shares(values: tuple[float, ...]) -> str:
    """Shares of devices as llama.cpp reads them."""
    return ",".join(f"{share:g}" for share in values)


def words(value: Any) -> str:
    """A value for a sentence or a field."""
    if isinstance(value, tuple):
        return ", ".join(f"{part:g}" if isinstance(part, float) else str(part) for part in value) or "none"
    return switch(value)
