"""One call of llama-cpp-python's `Llama`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from inferlab.model.ggml_types import TYPE_IDS
from inferlab.options.lines.base import Part, cannot, is_default, maps_file
from inferlab.options.names import options

PROGRAM = "llama-cpp-python"
SPLIT_MODES = {"none": 0, "layer": 1, "row": 2, "tensor": 3}  # llama_split_mode, llama.h


def parts(values: dict[str, Any], path: str, n_layers: int) -> Iterator[Part]:
    """The import and the call, an argument on each line."""
    lines = [f"model_path={path!r},"]
    for name, value in values.items():
        if not is_default(name, value, "python"):
            lines += _lines(name, value)
    call = ["from llama_cpp import Llama", "", "llm = Llama(", *(f"    {line}" for line in lines), ")"]
    yield Part("In Python", "\n".join(call), "python")


def _lines(name: str, value: Any) -> list[str]:
    """Arguments of one setting: types and modes by number, flash attention as a bool, two switches for loading."""
    if name in ("type_k", "type_v"):
        return [f"{name}={TYPE_IDS[value.upper()]},  # {value}"]
    if name == "flash_attn":
        return [f"{name}={value != 'off'},"]
    if name == "split_mode":
        return [f"{name}={SPLIT_MODES[value]},  # {value}"]
    if name == "tensor_split":
        return [f"{name}={list(value)!r},"]
    if name == "load_mode":
        direct = [cannot(name, value, PROGRAM)] if value == "direct_io" else []
        return [*direct, f"use_mmap={maps_file(value)},", f"use_mlock={'mlock' in value},"]
    if name == "n_seq_max":
        return [] if value == 1 else [f"# llama-cpp-python computes one sequence; the plan has {value}"]
    known = name in options() and options()[name].python
    return [f"{name}={value!r},"] if known else [cannot(name, value, PROGRAM)]
