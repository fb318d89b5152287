"""One call of llama-cpp-python's `Llama`."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from typing import Any

from inferlab.model.ggml_types import TYPE_IDS
from inferlab.model.hub import part_paths
from inferlab.options.lines.base import Part, cannot, here, is_default, maps_file, on_hub
from inferlab.options.names import options

PROGRAM = "llama-cpp-python"
SPLIT_MODES = {"none": 0, "layer": 1, "row": 2, "tensor": 3}  # llama_split_mode, llama.h


def parts(values: dict[str, Any], path: str, n_layers: int) -> Iterator[Part]:
    """The import and the call, an argument on each line."""
    called, lines = _model(path)
    for name, value in values.items():
        if not is_default(name, value, "python"):
            lines += _lines(name, value)
    call = ["from llama_cpp import Llama", "", f"llm = {called}(", *(f"    {line}" for line in lines), ")"]
    yield Part("In Python", "\n".join(call), "python")


def _model(path: str) -> tuple[str, list[str]]:
    """What is called, and its arguments for the model; of a file of the Hub all parts are named, as patterns."""
    if not (found := on_hub(path)):
        comments, file = here(path)
        return "Llama", [*comments, f"model_path={file!r},"]
    first, *others = map(escape, part_paths(found.file))
    more = [f"additional_files={others!r},"] if others else []
    return "Llama.from_pretrained", [f"repo_id={found.repo!r},", f"filename={first!r},", *more]


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
