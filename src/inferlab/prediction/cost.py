"""Counts bytes and operations of a model's parts, and of generating a text with and without a KV cache.

The counts come from a file's header and its list of tensors; nothing is loaded.
An operation is one multiplication or one addition, so each weight of a matrix costs two operations per token.
Softmax, norms, RoPE and the activation are left out: they grow linearly with the width, the matrices quadratically.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from inferlab.errors import UnsupportedArchitecture
from inferlab.model.catalog import KnownModel
from inferlab.model.dimensions import dimensions_of
from inferlab.model.gguf import Model, Tensor
from inferlab.model.repacking import LOOKED_UP
from inferlab.prediction.memory import kv_cache_bytes, kv_cache_bytes_per_token
from inferlab.prediction.memory.cache import n_ctx_of
from inferlab.prediction.memory.placement import loaded_tensors
from inferlab.prediction.memory.recurrent import attending_layers
from inferlab.settings import Settings

PARTS = {
    "token_embd": "embedding table",
    "attn_q": "attention: queries",
    "attn_k": "attention: keys",
    "attn_v": "attention: values",
    "attn_qkv": "attention: queries, keys, values",
    "attn_output": "attention: output",
    "ffn_gate": "feed-forward: gate",
    "ffn_up": "feed-forward: up",
    "ffn_down": "feed-forward: down",
    "ffn_gate_inp": "experts: router",
    "ffn_gate_exps": "experts: gate",
    "ffn_up_exps": "experts: up",
    "ffn_down_exps": "experts: down",
    "output": "output layer",
}
NORMS, OTHER, CACHE = "norms", "other", "attention over the cells"
ORDER = (*dict.fromkeys(PARTS.values()), NORMS, OTHER, CACHE)


@dataclass(frozen=True)
class Part:
    """One kind of tensor, summed over all layers, and its cost for one token.

    n_bytes      in the file, or in the cells in use
    read_bytes   bytes read for one token: one row of a table that is looked up in, the used experts, else all
    operations   multiplications and additions for one token
    """

    name: str
    n_weights: int
    n_bytes: int
    read_bytes: int
    operations: int


def part_of(tensor_name: str) -> str:
    """The part that a tensor belongs to, by its name in llama.cpp: `blk.3.attn_q.weight` -> `attention: queries`."""
    stem = re.sub(r"^blk\.\d+\.|\.(weight|bias)$", "", tensor_name)
    if "norm" in stem:
        return NORMS
    return PARTS.get(stem, OTHER)


def parts(model: Model, n_cells: int = 0) -> tuple[Part, ...]:
    """Every part of a model; with `n_cells`, also attention over the cells of a 16-bit KV cache.

    Matrices cost two operations a weight (one multiplication, one addition), vectors none.
    An embedding table that is also the output layer (tied) is read and multiplied whole; of every other table that a
    token or its position is looked up in (`repacking.LOOKED_UP`) one row is read.
    Raises UnsupportedArchitecture for `n_cells` where the cache is not of the plain kind.
    """
    tied = _is_tied(model)
    parts_by_name: dict[str, list[Part]] = defaultdict(list)
    for tensor in model.tensors:
        parts_by_name[part_of(tensor.name)].append(_part_from(model, tensor, tied))
    summed = [_total(name, parts_by_name[name]) for name in ORDER if name in parts_by_name]
    if n_cells:
        summed.append(_attention_over_cells(model, n_cells))
    return tuple(summed)


def type_bytes(tensors: Iterable[Tensor]) -> dict[str, dict[str, int]]:
    """Bytes by part and by ggml type: {part: {type: bytes}}, parts in the model's order."""
    by_part: dict[str, dict[str, int]] = {name: {} for name in ORDER}
    for tensor in tensors:
        bytes_by_type = by_part[part_of(tensor.name)]
        bytes_by_type[tensor.type] = bytes_by_type.get(tensor.type, 0) + tensor.n_bytes
    return {name: types for name, types in by_part.items() if types}


def operations(model: Model, n_cells: int) -> tuple[int, int]:
    """(in matrices, in attention over the cells) for one token that attends to `n_cells` tokens, itself included."""
    *matrices, cells = parts(model, n_cells)
    return sum(part.operations for part in matrices), cells.operations


def total_operations(model: Model, n_tokens: int, cached: bool = True) -> int:
    """Operations to generate a text of `n_tokens` one token after another.

    With a cache, token n costs a operations in the matrices and b n in attention: the sum over n of (a + b n).
    Without a cache, each step computes the whole text: the sum over n of the sum over m = 1..n of (a + b m).
    """
    matrices, per_cell = operations(model, 1)
    n = n_tokens
    if cached:
        return matrices * n + per_cell * n * (n + 1) // 2
    return matrices * n * (n + 1) // 2 + per_cell * n * (n + 1) * (n + 2) // 6


def kv_readings(model: Model | KnownModel, settings: Settings) -> dict[str, int]:
    """Bytes of the KV cache by the right formula and by four wrong ones in common use.

    query heads        n_head where n_head_kv belongs
    hidden width       n_embd for each key and value, as if n_head_kv * head_dim were always n_embd
    whole bytes        the bits in the type's name, without the scales of its blocks (q8_0 as 1 byte, q4_0 as 0.5)
    cells as asked     n_ctx as given, not rounded up to a multiple of 256 for each sequence
    """
    right = kv_cache_bytes(model, settings)
    per_token = kv_cache_bytes_per_token(model, settings.type_k, settings.type_v)
    size = dimensions_of(model)
    values = size.n_layer * size.n_head_kv
    as_named = size.head_dim_k * _named_bits(settings.type_k) + size.head_dim_v * _named_bits(settings.type_v)
    cells = right // per_token
    return {
        "right": right,
        "query heads": right * size.n_head // size.n_head_kv,
        "hidden width": right * 2 * size.n_embd // (size.n_head_kv * (size.head_dim_k + size.head_dim_v)),
        "whole bytes": cells * values * as_named // 8,
        "cells as asked": n_ctx_of(settings) * per_token,
    }


def break_even_cells(weights_bytes: int, model: Model | KnownModel, type_k: str = "f16", type_v: str = "f16") -> float:
    """Cells in use at which the KV cache has as many bytes as the weights."""
    return weights_bytes / kv_cache_bytes_per_token(model, type_k, type_v)


def bytes_read(model: Model) -> dict[str, int]:
    """Bytes of each tensor that one token reads, by the tensor's name: see `Part.read_bytes`."""
    tied = _is_tied(model)
    return {tensor.name: _part_from(model, tensor, tied).read_bytes for tensor in loaded_tensors(model)}


def _is_tied(model: Model) -> bool:
    """Whether the embedding table is also the output matrix."""
    return all(tensor.name != "output.weight" for tensor in model.tensors)


def _part_from(model: Model, tensor: Tensor, tied: bool) -> Part:
    share_read = share_multiplied = 1.0
    if len(tensor.shape) < 2:
        share_multiplied = 0.0
    elif tensor.name.split(".")[0] in LOOKED_UP and not (tied and tensor.name == "token_embd.weight"):
        share_read, share_multiplied = 1 / tensor.shape[1], 0.0
    elif "_exps" in tensor.name:
        share_read = share_multiplied = _share_of_experts(model)
    read, operations = round(share_read * tensor.n_bytes), round(share_multiplied * 2 * tensor.n_elements)
    return Part(part_of(tensor.name), tensor.n_elements, tensor.n_bytes, read, operations)


def _share_of_experts(model: Model) -> float:
    used, count = model.number("expert_used_count"), model.number("expert_count")
    if not used or not count:
        raise UnsupportedArchitecture(f"{model.name} has experts, but its header does not say how many are used.")
    return used / count


def _total(name: str, parts: Iterable[Part]) -> Part:
    total = Part(name, 0, 0, 0, 0)
    for part in parts:
        total = replace(
            total,
            n_weights=total.n_weights + part.n_weights,
            n_bytes=total.n_bytes + part.n_bytes,
            read_bytes=total.read_bytes + part.read_bytes,
            operations=total.operations + part.operations,
        )
    return total


def _attention_over_cells(model: Model, n_cells: int) -> Part:
    """Scores (queries times keys) and mixing (scores times values) over `n_cells`, in every layer with attention."""
    n_bytes = n_cells * kv_cache_bytes_per_token(model)
    if model.n_head is None or model.head_dim_k is None or model.head_dim_v is None:
        raise UnsupportedArchitecture(f"The header of {model.name} does not give its attention heads and their size.")
    operations = 2 * n_cells * sum(attending_layers(model)) * model.n_head * (model.head_dim_k + model.head_dim_v)
    return Part(CACHE, 0, n_bytes, n_bytes, operations)


def _named_bits(type: str) -> int:
    """The digits in a type's name: 16 for f16 and bf16, 8 for q8_0, 4 for q4_0 and iq4_nl."""
    return int(re.findall(r"\d+", type)[0])
