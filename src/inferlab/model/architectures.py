"""Lists the tensors and metadata of a published model from its cited dimensions.

The tensors are those of `layouts`; the header has the keys that llama.cpp's conversion writes.
Types are those of a fresh conversion: matrices F16, norms, biases and routers F32; `quant_mixes` quantizes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.model.catalog import KnownModel
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import DEFAULT_ALIGNMENT, Tensor
from inferlab.model.layouts import Layout
from inferlab.model.layouts import layout as layout_by_name

# What a conversion keeps in 32 bits (conversion/base.py:1084-1121): routers, convolutions, and what is small.
F32_MATRICES = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "conv1d.weight",
    "conv1d_q.weight",
    "conv1d_k.weight",
    "conv1d_v.weight",
    "shortconv.conv.weight",
    "altup_correct_coef.weight",
    "altup_predict_coef.weight",
    "indexer.proj.weight",
)
INTEGERS = "ffn_gate_tid2eid.weight"  # a table of the experts of each token
# Keys with one value for each layer where they are lists. A shorter list repeats, and changed layers cut it.
FOR_EACH_LAYER = (
    "feed_forward_length",
    "expert_feed_forward_length",
    "expert_used_count",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.sliding_window_pattern",
    "attention.compress_ratios",
    "attention.indexer.types",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
)
WITHOUT_PREDICTION = ("attention.indexer.types",)  # for the layers without those that predict several tokens


def tensors(known: KnownModel) -> tuple[Tensor, ...]:
    """All tensors of the model as converted to F16, in the order of a quantized file: by layer, then by name.

    Offsets count from the start of the data. Order: weight_name_comparer in llama-model-loader.h.
    Raises UnsupportedArchitecture for an architecture without a layout, InvalidSettings for dimensions that do not fit.
    """
    named = layout_of(known).shapes(own_keys(known), _optional(known))
    return with_offsets((name, shape, _converted_type(name, shape)) for name, shape in named)


def n_params(known: KnownModel) -> int:
    """Weights in all tensors, as llama.cpp counts them."""
    return sum(prod(shape) for _, shape in layout_of(known).shapes(own_keys(known), _optional(known)))


def layout_of(known: KnownModel) -> Layout:
    """The layout of the model's architecture. Raises UnsupportedArchitecture where there is none."""
    try:
        return layout_by_name(known.architecture)
    except UnsupportedArchitecture as error:
        raise UnsupportedArchitecture(f"{known.name}: {error}") from error


def with_offsets(specifications: Iterable[tuple[str, tuple[int, ...], str]]) -> tuple[Tensor, ...]:
    """Tensors from (name, shape, type), placed one after another, each aligned to 32 bytes.

    Raises InvalidSettings when a row does not fill the blocks of its type.
    """
    placed, offset = [], 0
    sizes: dict[tuple[tuple[int, ...], str], int] = {}
    for name, shape, type in specifications:
        if (shape, type) not in sizes:
            sizes[shape, type] = tensor_bytes(name, shape, type)
        n_bytes = sizes[shape, type]
        placed.append(Tensor(name, shape, type, n_bytes, offset))
        offset += aligned(n_bytes)
    return tuple(placed)


def tensor_bytes(name: str, shape: tuple[int, ...], type: str) -> int:
    """Bytes of a tensor: rows are stored in whole blocks (ggml_row_size)."""
    kind = TYPES[type]
    if shape[0] % kind.block:
        raise InvalidSettings(f"Rows of {name} hold {shape[0]} weights, which do not fill blocks of {kind.block}.")
    return kind.bytes_of(prod(shape))


def aligned(n_bytes: int) -> int:
    return -(-n_bytes // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def metadata(known: KnownModel) -> dict[str, Any]:
    """The keys of the header that llama.cpp reads for this architecture, without those of the tokenizer."""
    prefix = f"{known.architecture}."
    return {key[1:] if key.startswith("/") else prefix + key: value for key, value in own_keys(known).items()}


def own_keys(known: KnownModel) -> dict[str, Any]:
    """The same keys without the architecture's prefix."""
    layout = layout_of(known)
    keys: dict[str, Any] = {
        **layout.keys,
        "context_length": known.n_ctx_train,
        "embedding_length": known.n_embd,
        "block_count": known.n_layer,
        "feed_forward_length": known.n_ff,
        layout.norm: known.norm_eps,
        "vocab_size": known.n_vocab,
        **_attention_keys(known),
    }
    if known.n_expert:
        keys |= {"expert_count": known.n_expert, "expert_used_count": known.n_expert_used}
    if known.n_ff_expert:
        keys["expert_feed_forward_length"] = known.n_ff_expert
    if known.n_swa:
        keys["attention.sliding_window"] = known.n_swa
    return {key: _for_layers(key, value, known) for key, value in (keys | known.metadata).items()}


def _attention_keys(known: KnownModel) -> dict[str, Any]:
    """The keys of attention; of a hybrid one number of KV heads for each layer, 0 where the layer is recurrent."""
    if not known.n_head:
        return {"attention.head_count": 0}
    heads = tuple(known.n_head_kv * (i in known.attention_layers) for i in range(known.n_layer))
    return {
        "attention.head_count": known.n_head,
        "attention.head_count_kv": heads if known.attention_layers else known.n_head_kv,
        "attention.key_length": known.head_dim_k,
        "attention.value_length": known.head_dim_v,
        "rope.dimension_count": known.head_dim_k,
        "rope.freq_base": float(known.rope_freq_base),
    }


def _for_layers(key: str, value: Any, known: KnownModel) -> Any:
    """A list for each layer in the length of the model: repeated from its beginning, or cut."""
    if key not in FOR_EACH_LAYER or not isinstance(value, tuple):
        return value
    predicting = known.metadata.get("nextn_predict_layers", 0) if key in WITHOUT_PREDICTION else 0
    return tuple(value[i % len(value)] for i in range(known.n_layer - predicting))


def _optional(known: KnownModel) -> tuple[str, ...]:
    """The conditions of a layout that this model's file fulfils."""
    flags = {"tied": known.tied_embeddings, "rope_factors": known.rope_factors}
    return (*(name for name, is_so in flags.items() if is_so), *known.optional)


def _converted_type(name: str, shape: tuple[int, ...]) -> str:
    if name.endswith(INTEGERS):
        return "I32"
    is_matrix = len(shape) > 1 and name.endswith(".weight") and not name.endswith(F32_MATRICES)
    return "F16" if is_matrix else "F32"
