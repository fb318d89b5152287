"""Lists the tensors and metadata of a published model from its cited dimensions.

Each layout follows src/models/<architecture>.cpp of llama.cpp (load_arch_tensors, load_arch_hparams).
Types are those of a fresh conversion: matrices F16, norms, biases and routers F32; `quant_mixes` quantizes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.model.architecture_table import architecture, architectures
from inferlab.model.catalog import KnownModel
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import DEFAULT_ALIGNMENT, Tensor

# The router of a mixture of experts, and what a state-space model is small in; conversion/base.py
F32_MATRICES = ("ffn_gate_inp.weight", "conv1d.weight", "shortconv.conv.weight", "ssm_norm.weight")

NamedShape = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Layout:
    """How an architecture differs from llama's: norms, biases, fused matrices, gates, experts."""

    norms: tuple[str, ...] = ("attn_norm", "ffn_norm")
    qk_norm: str = ""  # "head": one weight per head value; "all": one per value of all heads
    qkv_bias: bool = False
    fused: bool = False  # one matrix for q, k, v, and one for gate and up
    gated: bool = True
    experts: bool = False
    own_expert_width: bool = True  # the experts' feed-forward width has a key of its own; else it is n_ff
    every_bias: bool = False  # every matrix and norm has one
    square: bool = False  # llama.cpp requires n_head * head_dim = n_embd
    norm_key: str = "attention.layer_norm_rms_epsilon"
    mixer: str = ""  # the recurrent part: "mamba2" or "shortconv"
    attention: str = "all"  # in "all" layers, in those "listed" instead of the mixer, or in "none"
    feed_forward: bool = True
    ssm_norm: bool = True
    output_norm: str = "output_norm.weight"
    suffixless: tuple[str, ...] = ()  # norms whose name does not end in .weight


def tensors(known: KnownModel) -> tuple[Tensor, ...]:
    """All tensors of the model as converted to F16, in the order of a quantized file: by layer, then by name.

    Offsets count from the start of the data. Order: weight_name_comparer in llama-model-loader.h.
    Raises UnsupportedArchitecture for an architecture without a layout here.
    """
    layout = layout_of(known)
    named = [
        *_tensors_outside_layers(known, layout),
        *(t for i in range(known.n_layer) for t in _layer_tensors(known, layout, i)),
    ]
    return with_offsets((name, shape, _converted_type(name, shape)) for name, shape in sorted(named, key=_file_order))


def n_params(known: KnownModel) -> int:
    """Weights in all tensors, as llama.cpp counts them."""
    return sum(tensor.n_elements for tensor in tensors(known))


def layout_of(known: KnownModel) -> Layout:
    """The layout of the model's architecture. Raises UnsupportedArchitecture where there is none."""
    told = architecture(known.architecture).layout
    if told is None:
        described = (name for name, one in architectures().items() if one.layout is not None)
        raise UnsupportedArchitecture(
            f"{known.name} is of architecture {known.architecture!r}; shapes are known for {', '.join(described)}."
        )
    values: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in told.items()}
    return Layout(**values)


def with_offsets(specifications: Iterable[tuple[str, tuple[int, ...], str]]) -> tuple[Tensor, ...]:
    """Tensors from (name, shape, type), placed one after another, each aligned to 32 bytes.

    Raises InvalidSettings when a row does not fill the blocks of its type.
    """
    placed, offset = [], 0
    for name, shape, type in specifications:
        n_bytes = tensor_bytes(name, shape, type)
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
    layout = layout_of(known)
    keys: dict[str, Any] = {
        "context_length": known.n_ctx_train,
        "embedding_length": known.n_embd,
        "block_count": known.n_layer,
        "feed_forward_length": known.n_ff,
        layout.norm_key: known.norm_eps,
        "vocab_size": known.n_vocab,
    }
    keys |= _attention_keys(known, layout)
    if layout.experts:
        keys["expert_count"] = known.n_expert
        keys["expert_used_count"] = known.n_expert_used
        if layout.own_expert_width:
            keys["expert_feed_forward_length"] = known.n_ff_expert
    if known.n_swa:
        keys["attention.sliding_window"] = known.n_swa
    return {f"{known.architecture}.{key}": value for key, value in (keys | known.metadata).items()}


def _attention_keys(known: KnownModel, layout: Layout) -> dict[str, Any]:
    """The keys of attention; of a hybrid one number of KV heads for each layer, 0 where the layer is recurrent."""
    if layout.attention == "none":
        return {"attention.head_count": 0}
    heads = tuple(known.n_head_kv * has_attention(known, i) for i in range(known.n_layer))
    return {
        "attention.head_count": known.n_head,
        "attention.head_count_kv": heads if layout.attention == "listed" else known.n_head_kv,
        "attention.key_length": known.head_dim_k,
        "attention.value_length": known.head_dim_v,
        "rope.dimension_count": known.head_dim_k,
        "rope.freq_base": float(known.rope_freq_base),
    }


def has_attention(known: KnownModel, layer: int) -> bool:
    """Whether a layer has attention, and so a KV cache."""
    where = layout_of(known).attention
    return where == "all" or (where == "listed" and layer in known.attention_layers)


def has_mixer(known: KnownModel, layer: int) -> bool:
    """Whether a layer has a recurrent part, and so a state."""
    layout = layout_of(known)
    return bool(layout.mixer) and (layout.attention == "all" or not has_attention(known, layer))


def _tensors_outside_layers(known: KnownModel, layout: Layout) -> Iterator[NamedShape]:
    yield "token_embd.weight", (known.n_embd, known.n_vocab)
    yield layout.output_norm, (known.n_embd,)
    if layout.every_bias:
        yield "output_norm.bias", (known.n_embd,)
    if not known.tied_embeddings:
        yield "output.weight", (known.n_embd, known.n_vocab)
    if known.rope_factors:
        yield "rope_freqs.weight", (known.head_dim_k // 2,)


def _layer_tensors(known: KnownModel, layout: Layout, i: int) -> Iterator[NamedShape]:
    attention = has_attention(known, i)
    parts = [
        *_norm_tensors(known, layout, attention),
        *(_attention_tensors(known, layout) if attention else ()),
        *(_mixer_tensors(known, layout) if has_mixer(known, i) else ()),
        *(_feed_forward_tensors(known, layout) if layout.feed_forward else ()),
    ]
    return ((f"blk.{i}.{name}", shape) for name, shape in parts)


def _norm_tensors(known: KnownModel, layout: Layout, attention: bool) -> Iterator[NamedShape]:
    for name in layout.norms:
        yield name if name in layout.suffixless else f"{name}.weight", (known.n_embd,)
        if layout.every_bias:
            yield f"{name}.bias", (known.n_embd,)
    if layout.qk_norm and attention:
        heads = (known.n_head, known.n_head_kv) if layout.qk_norm == "all" else (1, 1)
        yield "attn_q_norm.weight", (heads[0] * known.head_dim_k,)
        yield "attn_k_norm.weight", (heads[1] * known.head_dim_k,)


def _attention_tensors(known: KnownModel, layout: Layout) -> Iterator[NamedShape]:
    q, k, v = known.n_head * known.head_dim_k, known.n_head_kv * known.head_dim_k, known.n_head_kv * known.head_dim_v
    if layout.fused:
        yield "attn_qkv.weight", (known.n_embd, q + k + v)
    else:
        for name, width in (("attn_q", q), ("attn_k", k), ("attn_v", v)):
            yield f"{name}.weight", (known.n_embd, width)
            if layout.qkv_bias:
                yield f"{name}.bias", (width,)
    yield "attn_output.weight", (known.n_head * known.head_dim_v, known.n_embd)
    if layout.every_bias:
        yield "attn_output.bias", (known.n_embd,)


def _mixer_tensors(known: KnownModel, layout: Layout) -> Iterator[NamedShape]:
    """The recurrent part of a layer: a short convolution (lfm2.cpp), or Mamba 2 (mamba2.cpp)."""
    d, told = known.n_embd, known.metadata
    if layout.mixer == "shortconv":
        yield "shortconv.conv.weight", (told["shortconv.l_cache"], d)
        yield "shortconv.in_proj.weight", (d, 3 * d)
        yield "shortconv.out_proj.weight", (d, d)
        return
    inner, n_heads, n_groups = told["ssm.inner_size"], told["ssm.time_step_rank"], told["ssm.group_count"]
    width = inner + 2 * n_groups * told["ssm.state_size"]
    yield "ssm_in.weight", (d, inner + width + n_heads)
    yield "ssm_conv1d.weight", (told["ssm.conv_kernel"], width)
    yield "ssm_conv1d.bias", (width,)
    yield "ssm_dt.bias", (n_heads,)
    yield "ssm_a", (1, n_heads)
    yield "ssm_d", (1, n_heads)
    if layout.ssm_norm:
        yield "ssm_norm.weight", (inner // n_groups, n_groups)
    yield "ssm_out.weight", (inner, d)


def _feed_forward_tensors(known: KnownModel, layout: Layout) -> Iterator[NamedShape]:
    if layout.experts:
        yield from _expert_tensors(known, layout)
        return
    if layout.gated and not layout.fused:
        yield "ffn_gate.weight", (known.n_embd, known.n_ff)
    yield "ffn_up.weight", (known.n_embd, (2 if layout.fused else 1) * known.n_ff)
    yield "ffn_down.weight", (known.n_ff, known.n_embd)
    if layout.every_bias:
        yield "ffn_up.bias", (known.n_ff,)
        yield "ffn_down.bias", (known.n_embd,)


def _expert_tensors(known: KnownModel, layout: Layout) -> Iterator[NamedShape]:
    n_ff = known.n_ff_expert if layout.own_expert_width else known.n_ff
    yield "ffn_gate_inp.weight", (known.n_embd, known.n_expert)
    yield "ffn_gate_exps.weight", (known.n_embd, n_ff, known.n_expert)
    yield "ffn_up_exps.weight", (known.n_embd, n_ff, known.n_expert)
    yield "ffn_down_exps.weight", (n_ff, known.n_embd, known.n_expert)


def _converted_type(name: str, shape: tuple[int, ...]) -> str:
    is_matrix = len(shape) > 1 and name.endswith(".weight") and not name.endswith(F32_MATRICES)
    return "F16" if is_matrix else "F32"


def _file_order(shaped: NamedShape) -> tuple[int, str]:
    name = shaped[0]
    return (int(name.split(".")[1]) if name.startswith("blk.") else -1), name
