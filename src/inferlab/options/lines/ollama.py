"""A Modelfile and the environment of Ollama's server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from inferlab.model.ggml_types import row_bytes
from inferlab.model.hub import part_paths
from inferlab.model.ollama_store import NAME, PREFIX, bare_name
from inferlab.options.lines.base import Part, cannot, here, is_default, maps_file, on_hub, shares, switch
from inferlab.options.names import options
from inferlab.settings import UNQUANTIZED, Settings

PROGRAM = "Ollama"
SERVER = (
    "In the terminal of the server, before it starts (a service takes them from its own environment; on Windows write "
    "$env:NAME='value' in PowerShell, or set NAME=value in cmd, in place of export NAME=value)"
)
HUB = "hf.co"
MOST_OF_A_TAG = 80  # characters, types/model/name.go
BLOCKS = 256  # values in whole blocks of every cache type, to compare their bytes
USUAL = Settings()


def parts(values: dict[str, Any], path: str, n_layers: int) -> Iterator[Part]:
    """The Modelfile, the server's variables where there are any, and the commands that make and run the model."""
    file = _from(path)
    server: list[str] = []
    comments: list[str] = []
    for name, value in _translated(values, n_layers, comments).items():
        option = options().get(name)
        known, env = (option.ollama, option.env) if option else ("", "")
        if is_default(name, value, "ollama" if known else "cli") and name != "n_ubatch":
            continue
        if name == "load_mode":
            file.append(f"PARAMETER {known} {str(maps_file(value)).lower()}")
            comments += [cannot(name, value, PROGRAM)] if "mlock" in value or value == "direct_io" else []
        elif known.islower():
            file.append(f"PARAMETER {known} {value}")
        elif known or env:
            server.append(f"export {known or env}={_environment(name, value)}")
        else:
            comments.append(cannot(name, value, PROGRAM))
    yield Part("In a file named Modelfile", "\n".join(file), "text")
    if server:
        yield Part(SERVER, "\n".join([*comments, *server, "ollama serve"]))
    create = "ollama create my-model -f Modelfile\nollama run my-model"
    yield Part("In another terminal", create) if server else Part("In a terminal", "\n".join([*comments, create]))


def _translated(values: dict[str, Any], n_layers: int, comments: list[str]) -> dict[str, Any]:
    """The values as Ollama counts: one batch size, one cache type, layers in full, the context of one sequence."""
    translated = {name: value for name, value in values.items() if name not in ("split_mode", "main_gpu")}
    if "n_ctx" in translated:
        translated["n_ctx"] = max(1, values["n_ctx"] // values.get("n_seq_max", 1))
    if translated.get("n_gpu_layers", 0) < 0:
        translated["n_gpu_layers"] = n_layers
    _join_types(translated, comments)
    _join_batches(translated, comments)
    if values.get("split_mode") == "none":
        translated["main_gpu"] = values.get("main_gpu", 0)  # which also turns splitting off (llm/llama_server.go)
    elif "split_mode" in values:
        comments.append(cannot("split_mode", values["split_mode"], PROGRAM))
    return translated


def _join_types(translated: dict[str, Any], comments: list[str]) -> None:
    """Leave the type of the keys for both, and flash attention on where a quantized type needs it."""
    if not {"type_k", "type_v"} & set(translated):
        return
    flash_attn = translated.get("flash_attn", USUAL.flash_attn)
    types = translated.get("type_k", USUAL.type_k), translated.pop("type_v", USUAL.type_v)
    translated["type_k"] = joined = types[0] if types[0] == types[1] else _one_type(types, flash_attn)
    if types[0] != types[1]:
        comments.append(
            f"# Ollama has one type for keys and values; the plan has {types[0]} and {types[1]}, "
            f"these lines have {joined} for both"
        )
    if joined not in UNQUANTIZED and flash_attn == "auto":
        translated["flash_attn"] = "on"


def _join_batches(translated: dict[str, Any], comments: list[str]) -> None:
    """Leave the micro-batch for both; a smaller n_batch alone stands for it."""
    if not {"n_batch", "n_ubatch"} & set(translated):
        return
    n_batch = translated.pop("n_batch", USUAL.n_batch)
    n_ubatch = translated.setdefault("n_ubatch", min(n_batch, USUAL.n_ubatch))
    if n_batch not in (n_ubatch, USUAL.n_batch):
        comments.append(
            f"# Ollama has one batch size; the plan has n_batch {n_batch} and n_ubatch "
            f"{n_ubatch}, these lines have {n_ubatch} for both"
        )


def _one_type(types: tuple[str, str], flash_attn: str) -> str:
    """The smaller type, which needs no more memory; without flash attention that of the values, which it limits."""
    return types[1] if flash_attn == "off" else min(types, key=lambda name: row_bytes(name, BLOCKS))


def _environment(name: str, value: Any) -> str:
    if name == "flash_attn":
        return str(int(value == "on"))
    if name == "override_tensor":
        return shlex.quote(",".join(value))
    return shares(value) if name == "tensor_split" else switch(value)


def _from(path: str) -> list[str]:
    """The model: Ollama's by its name, a file of the Hub by its own, or a path that Ollama does not take for a name.

    The Hub gives Ollama no model in parts (https://github.com/huggingface/hub-docs/issues/2702), and a tag has no
    folder.
    """
    if path.startswith(PREFIX):
        return [f"FROM {bare_name(path)}"]
    if found := on_hub(path):
        name, tag = f"{HUB}/{found.repo}:{found.file}", found.file
        if NAME.fullmatch(name) and len(tag) <= MOST_OF_A_TAG and len(part_paths(tag)) == 1:
            return [f"FROM {name}"]
    comments, file = here(path)
    is_path = file.startswith((".", "/", "~")) or re.match(r"[A-Za-z]:", file)
    return [*comments, f"FROM {file if is_path else f'./{file}'}"]
