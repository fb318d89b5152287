"""A model's header from the lines of its load: dimensions, and its tensors where a layout and a mix agree with them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

from inferlab.errors import InferlabError
from inferlab.model.architecture_table import BUT_EVERY_NTH, architecture
from inferlab.model.architectures import tensors
from inferlab.model.catalog import KnownModel
from inferlab.model.ggml_types import FILE_TYPES
from inferlab.model.gguf import VERSIONS, Model, Tensor
from inferlab.model.layouts import architectures_with_layout
from inferlab.model.quant_mixes import with_mix_types
from inferlab.prediction.memory.cache import cache_layers
from inferlab.prediction.memory.recurrent import kv_heads
from inferlab.results.log_memory.logged import CUT, Logged, number, numbers
from inferlab.units import GIB, MIB

KEYS = {
    "n_ctx_train": "context_length",
    "n_embd": "embedding_length",
    "n_layer": "block_count",
    "n_head": "attention.head_count",
    "n_head_kv": "attention.head_count_kv",
    "n_embd_head_k": "attention.key_length",
    "n_embd_head_v": "attention.value_length",
    "n_ff": "feed_forward_length",
    "n_vocab": "vocab_size",
}
"""Names that `print_info` gives, and the keys of the metadata that they come from."""
KEYS_IF_ANY = {
    "n_swa": "attention.sliding_window",
    "n_expert": "expert_count",
    "n_expert_used": "expert_used_count",
    "n_ff_exp": "expert_feed_forward_length",
    "n_embd_head_k_mla": "attention.key_length_mla",
    "n_embd_head_k_swa": "attention.key_length_swa",
    "n_embd_head_v_swa": "attention.value_length_swa",
    "n_layer_nextn": "nextn_predict_layers",
    "ssm_d_conv": "ssm.conv_kernel",
    "ssm_d_inner": "ssm.inner_size",
    "ssm_d_state": "ssm.state_size",
    "ssm_dt_rank": "ssm.time_step_rank",
    "ssm_n_group": "ssm.group_count",
}
"""Those of which 0 means that the model has no such thing."""
DIMENSIONS = KEYS | KEYS_IF_ANY
NEEDED = ("n_layer", "n_embd", "n_head", "n_head_kv", "n_embd_head_k", "n_embd_head_v", "n_vocab")
MOST_LAYERS = 512  # LLAMA_MAX_LAYERS, llama-hparams.h:11
MOST = 2**31 - 1
"""What llama.cpp's own types of a dimension hold."""
FILE_TYPE_NAMES = {"Small": "S", "Medium": "M", "Large": "L"}
SPECIAL_TYPES = {"all F32": "F32", "MXFP4 MoE": "MXFP4_MOE", "IQ3_S mix": "IQ3_M", "Q2_K - Medium": "Q2_K"}
"""File types whose names in a log (llama-model-loader.cpp:33-76) do not follow from those of llama-quantize."""


def header_of(logged: Logged) -> Model | str:
    """The header without tensors, or which part of it is missing, as a sentence."""
    name = logged.seen.model.architecture
    if not name:
        return "The log has no lines of the model's header (`print_info`), so the load cannot be planned again."
    entries = _entries(logged, name)
    model = Model(Path(logged.seen.model.name or name), 0, VERSIONS[-1], entries, ())
    if not 0 < (model.number("block_count") or 0) <= MOST_LAYERS or not model.number("embedding_length"):
        return "The log does not have the header's `n_layer` and `n_embd`, or they are no model's."
    if any(too_large := [said for said in DIMENSIONS if _largest(model, said) > MOST]):
        return f"The log has numbers that are no model's: {', '.join(f'`{said}`' for said in too_large)}."
    missing = [said for said in NEEDED if _is_missing(model, said, logged.has_all_metadata)]
    if missing:
        return f"The log does not have the header's {', '.join(f'`{said}`' for said in missing)}."
    return _unsupported(model, logged) or model


def _largest(model: Model, said: str) -> int:
    """A dimension, or the largest one of its layers."""
    value = model.metadata.get(f"{model.architecture}.{DIMENSIONS[said]}", 0)
    values = value if isinstance(value, tuple) else (value,)
    return max((one for one in values if isinstance(one, int)), default=0)


def _entries(logged: Logged, name: str) -> dict[str, Any]:
    """The metadata as the file has it, where `print_info` has a value as llama.cpp took it."""
    entries: dict[str, Any] = dict(logged.metadata)
    n_vocab = entries.pop("n_vocab", None)
    entries |= {"general.architecture": name}
    if n_vocab is not None:
        entries[f"{name}.vocab_size"] = n_vocab
    for said, key in KEYS.items():
        if (value := _printed(logged, said)) is not None:
            entries[f"{name}.{key}"] = value
    for said, key in KEYS_IF_ANY.items():
        if value := _printed(logged, said):
            entries[f"{name}.{key}"] = value
    _add_predicted_layers(logged, name, entries)
    return entries


def _printed(logged: Logged, said: str) -> int | tuple[int, ...] | None:
    text = logged.header.get(said, "")
    return numbers(text) if text.startswith("[") else number(text)


def _add_predicted_layers(logged: Logged, name: str, entries: dict[str, Any]) -> None:
    """Layers that predict several tokens: of all layers those that `n_layer` does not count."""
    every, counted = _printed(logged, "n_layer_all"), _printed(logged, "n_layer")
    if isinstance(every, int) and isinstance(counted, int) and every > counted:
        entries |= {f"{name}.nextn_predict_layers": every - counted, f"{name}.block_count": every}


def _is_missing(model: Model, said: str, has_all_metadata: bool) -> bool:
    """Whether a dimension is told neither by `print_info` nor, by llama.cpp's rule for a missing key, by the file."""
    key = f"{model.architecture}.{KEYS[said]}"
    if key in model.metadata:
        return False
    found = {"n_head_kv": model.n_head_kv, "n_embd_head_k": model.head_dim_k, "n_embd_head_v": model.head_dim_v}
    return found.get(said) is None or not has_all_metadata


def _unsupported(model: Model, logged: Logged) -> str | None:
    """Why the cache has no closed form, or cannot be known from this log; None where it has one."""
    kind = architecture(model.architecture)
    if not kind.is_known:
        return f"The library has no closed form for the architecture `{model.architecture}` yet."
    if not logged.has_all_metadata and (kind.may_have_windows or kind.state == BUT_EVERY_NTH):
        return (
            "The log does not have all of the file's metadata (`llama_model_loader: - kv`), and in "
            f"`{model.architecture}` these may say which layers attend to what."
        )
    try:
        cache_layers(model)
    except InferlabError as error:
        cut = [key for key, value in model.metadata.items() if value == CUT and key.startswith(model.architecture)]
        if cut:
            return f"The log has only the beginning of `{cut[0]}`, which has a value for each layer."
        return str(error)
    return None


# --- tensors ------------------------------------------------------------------------------------------------


def tensors_of(model: Model, logged: Logged) -> tuple[Tensor, ...] | str:
    """The tensors that number, types and the file's size in the log agree with; or why they are not known."""
    if model.architecture not in architectures_with_layout():
        return f"Weights were not derived: the library has no layout of `{model.architecture}`."
    mix = _mix(model, logged)
    if mix is None or not logged.types or logged.n_tensors is None:
        return "Weights were not derived: the log does not have the file's type and the types of its tensors."
    choices = product((False, True), (False, True), (False, True))
    for tied, factors, imatrix in choices:
        try:
            known = _known(model, tied, factors)
            found = with_mix_types(tensors(known), mix, known, imatrix=imatrix)
        except (InferlabError, KeyError, ZeroDivisionError):
            continue
        if _agree(found, logged):
            return found
    return (
        f"Weights were not derived: this file's tensors are not those of `{model.architecture}` in {mix}, such as a "
        "mix of its publisher's own, or the log lacks a line of the header."
    )


def _mix(model: Model, logged: Logged) -> str | None:
    """The file's type under the name that llama-quantize takes."""
    stored = model.metadata.get("general.file_type")
    if isinstance(stored, int):
        return next((name for name, n in FILE_TYPES.items() if n == stored), None)
    said = re.sub(r"^\(guessed\) ", "", logged.seen.model.file_type or "").strip()
    for begins, name in SPECIAL_TYPES.items():
        if said.startswith(begins):
            return name
    base, _, size = said.partition(" - ")
    mix = f"{base}_{FILE_TYPE_NAMES[size]}" if size in FILE_TYPE_NAMES else base
    return mix if mix in FILE_TYPES else None


def _known(model: Model, tied: bool, factors: bool) -> KnownModel:
    """The model by its dimensions, as a layout takes them."""
    name = model.architecture
    heads = kv_heads(model) if architecture(name).state else None
    own = {key.removeprefix(f"{name}."): value for key, value in model.metadata.items() if key.startswith(f"{name}.")}
    return KnownModel(
        name=model.name,
        source="",
        n_layer=model.n_layer,
        n_embd=model.n_embd,
        n_ff=model.n_ff or 0,
        n_vocab=model.n_vocab or 0,
        n_head=model.n_head or 0,
        n_head_kv=max(heads) if heads else model.n_head_kv or 0,
        head_dim_k=model.head_dim_k or 0,
        head_dim_v=model.head_dim_v or 0,
        n_ctx_train=model.n_ctx_train or 0,
        tied_embeddings=tied,
        files={},
        architecture=name,
        rope_factors=factors,
        n_expert=model.number("expert_count") or 0,
        n_expert_used=model.number("expert_used_count") or 0,
        n_ff_expert=model.number("expert_feed_forward_length") or 0,
        n_swa=model.number("attention.sliding_window") or 0,
        attention_layers=tuple(i for i, n in enumerate(heads or ()) if n),
        metadata={key: value for key, value in own.items() if isinstance(value, (int, float, tuple))},
    )


def _agree(found: tuple[Tensor, ...], logged: Logged) -> bool:
    """Whether tensors have the number, the types and, as far as it is printed, the bytes that the log has."""
    n_bytes, said = sum(tensor.n_bytes for tensor in found), logged.seen.model.weights_bytes
    unit = GIB if n_bytes >= GIB else MIB
    same_size = said is not None and abs(said - n_bytes) <= 0.0051 * unit
    return same_size and len(found) == logged.n_tensors and Counter(t.type for t in found) == logged.types
