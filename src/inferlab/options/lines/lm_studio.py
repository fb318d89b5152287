"""A command and the fields of a form for LM Studio."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from math import floor
from typing import Any

from inferlab.model.hub import HUB, type_in
from inferlab.options.lines.base import Part, cannot, here, is_default, maps_file, on_hub, words
from inferlab.options.names import options

PROGRAM = "LM Studio"
TYPES = ("f32", "f16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")  # LLMLoadModelConfig.ts
KEPT = ("flash_attn", "type_k", "type_v", "n_batch", "n_ubatch", "n_seq_max", "offload_kqv", "kv_unified")
"""Written even where they are its defaults: LM Studio keeps settings for each model, which may differ from them."""


def parts(values: dict[str, Any], path: str, n_layers: int) -> Iterator[Part]:
    """The import of the file, the fields of its load settings, and the command that loads it."""
    command, comments = ["lms", "load", "MODEL_KEY"], []
    fields = [f"{options()['fit'].lmstudio}: off"]  # so that nothing replaces what the plan has
    for name, value in _by_layer(_by_pool(values), n_layers - 1).items():
        option = options().get(name)
        if is_default(name, value, "lmstudio") and not (option and option.lmstudio and name in KEPT):
            continue
        if option and option.lms:
            command += [option.lms, _share(value, n_layers) if name == "n_gpu_layers" else str(value)]
        elif option and option.lmstudio and _takes(name, value):
            fields.append(f"{option.lmstudio}: {_field(name, value)}")
            fields += [f"{options()['mlock'].lmstudio}: on"] if name == "load_mode" and "mlock" in value else []
            comments += [cannot(name, value, PROGRAM)] if value == "direct_io" else []
        else:
            comments.append(cannot(name, value, PROGRAM))
    if 0 < values.get("n_gpu_layers", 0) < n_layers:
        comments.append(
            f"# {options()['n_gpu_layers'].lmstudio} is a share there: {values['n_gpu_layers']} of "
            f"{n_layers} layers, rounded down"
        )
    yield Part("In a terminal", _model(path))
    yield Part("In the model's load settings (My Models, the gear)", "\n".join(fields), "text")
    load = ["# MODEL_KEY is its name in `lms ls`", *comments, " ".join(command)]
    yield Part("Then in the terminal", "\n".join(load))


def _model(path: str) -> str:
    """The import of a file, or the download of a repository's: by its type, or by what LM Studio offers to choose."""
    if found := on_hub(path):
        kind = type_in(found.file)
        return f"lms get {HUB}/{found.repo}{f'@{kind}' if kind else ' --always-show-download-options'}"
    comments, file = here(path)
    return "\n".join([*comments, f"lms import --copy {shlex.quote(file)}"])


def _by_pool(values: dict[str, Any]) -> dict[str, Any]:
    """The values with its context: that of the pool, or without one pool that of one prediction."""
    if values.get("kv_unified", True) or "n_ctx" not in values:
        return values
    return values | {"n_ctx": values["n_ctx"] // values.get("n_seq_max", 1)}


def _by_layer(values: dict[str, Any], n_blocks: int) -> dict[str, Any]:
    """The values with the experts of all layers as those of so many: it has a number of layers and no switch."""
    if not values.get("cpu_moe"):
        return values
    return {name: value for name, value in values.items() if name != "cpu_moe"} | {"n_cpu_moe": n_blocks}


def _takes(name: str, value: Any) -> bool:
    """Whether its interface offers a value: not every cache type, and no split by tensors or rows."""
    return value in TYPES if name in ("type_k", "type_v") else name != "split_mode"


def _share(n_on_gpu: int, n_layers: int) -> str:
    """A share of the layers as `lms load --gpu` takes it: off, max, or a number rounded down to a hundredth."""
    if n_on_gpu == 0:
        return "off"
    return "max" if n_on_gpu < 0 or n_on_gpu >= n_layers else f"{floor(100 * n_on_gpu / n_layers) / 100:.2f}"


def _field(name: str, value: Any) -> str:
    if name == "flash_attn":
        return "off" if value == "off" else "on"
    if name in ("type_k", "type_v") and value == "f16":
        return "off (f16)"
    if name == "load_mode":
        return "on" if maps_file(value) else "off"
    return words(value)
