"""Models of many architectures as header-only files: real tensors' names, shapes and types, zeros for weights.

llama.cpp loads them like any other file, and a file of any size takes a few kilobytes on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter

SMALL = {
    "n_layer": 4,
    "n_embd": 256,
    "n_ff": 512,
    "n_vocab": 512,
    "n_head": 4,
    "n_head_kv": 2,
    "head_dim": 64,
    "n_expert": 8,
    "n_expert_used": 2,
    "n_ff_exp": 256,
    "n_swa": 256,
    "type": "F16",
}
DELTA_HEADS, DELTA_GROUPS, DELTA_STATE = 4, 2, 64  # of a gated delta net
# family: (architecture, dimensions of its own, whether the output matrix is the embedding)
FAMILIES: dict[str, tuple[str, dict[str, Any], bool]] = {
    "llama": ("llama", {}, False),
    "llama-wide": ("llama", {"n_ff": 1024}, False),
    "llama-mha": ("llama", {"n_head_kv": 4}, False),
    "llama-mqa": ("llama", {"n_head_kv": 1}, False),
    "llama-tied": ("llama", {"rope_freqs": True}, True),
    "llama-moe": ("llama", {"moe": True, "n_ff_exp": 512}, False),
    "qwen2": ("qwen2", {"bias": "qkv"}, True),
    "qwen3": ("qwen3", {"head_dim": 128, "qk_norm": True}, False),
    "qwen3moe": ("qwen3moe", {"head_dim": 128, "qk_norm": True, "moe": True}, False),
    "gemma": ("gemma", {"head_dim": 128, "n_head_kv": 1}, True),
    "gemma2": ("gemma2", {"head_dim": 128, "post_norm": True, "swa": True}, True),
    "gemma3": ("gemma3", {"n_layer": 7, "head_dim": 128, "post_norm": True, "qk_norm": True, "swa": True}, True),
    "gpt-oss": (
        "gpt-oss",
        {"post_norm": "attention", "swa": True, "moe": "biased", "bias": "qkvo", "sinks": True, "n_ff_exp": 256},
        False,
    ),
    "cohere2": ("cohere2", {"swa": True, "ffn_norm": False}, True),
    "phi3": ("phi3", {"fused": True}, False),
    "olmo2": ("olmo2", {"qk_norm": "whole", "post_norm": "only"}, False),
    "starcoder2": ("starcoder2", {"bias": "all", "gate": False}, True),
    "granite": ("granite", {}, True),
    "granitemoe": ("granitemoe", {"moe": True, "n_ff_exp": 512}, True),
    "deepseek2": ("deepseek2", {"mla": True, "moe": "shared", "n_head_kv": 1}, False),
    "qwen35": ("qwen35", {"qk_norm": True, "post_norm": "attention", "delta": 4, "n_layer": 5}, False),
    "qwen3next": (
        "qwen3next",
        {"qk_norm": True, "post_norm": "attention", "delta": 4, "n_layer": 5, "moe": "shared all"},
        False,
    ),
    "lfm2": ("lfm2", {"qk_norm": True, "recurrent": (0, 1)}, True),
}


def write_model(path: Path, family: str, **dimensions: Any) -> Path:
    """Write the file of one of FAMILIES, with SMALL dimensions unless others are given."""
    architecture, own, tied = FAMILIES[family]
    d = {"tied": tied, **SMALL, **own, **dimensions}
    writer = GGUFWriter(path, architecture)
    writer.add_name(family)
    _add_metadata(writer, d)
    end = 0
    for name, shape, type in tensors(d):
        kind = GGMLQuantizationType[type]
        block, block_bytes = GGML_QUANT_SIZES[kind]
        n_bytes = int(np.prod(shape)) // block * block_bytes
        writer.add_tensor_info(name, shape[::-1], np.dtype(np.float16), n_bytes, raw_dtype=kind)
        end += -(-n_bytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    with path.open("ab") as file:
        file.truncate(-(-file.tell() // 32) * 32 + end)
    return path


def _add_metadata(writer: GGUFWriter, d: dict[str, Any]) -> None:
    writer.add_vocab_size(d["n_vocab"])
    writer.add_context_length(d.get("n_ctx_train", 131072))
    writer.add_embedding_length(d["n_embd"])
    writer.add_block_count(d["n_layer"])
    writer.add_feed_forward_length(d["n_ff"])
    writer.add_head_count(d["n_head"])
    recurrent = d.get("recurrent", ())
    per_layer = [0 if i in recurrent else d["n_head_kv"] for i in range(d["n_layer"])]
    writer.add_head_count_kv(per_layer if recurrent else d["n_head_kv"])
    if d["head_dim"] * d["n_head"] != d["n_embd"] or d.get("mla"):
        writer.add_key_length(576 if d.get("mla") else d["head_dim"])
        writer.add_value_length(512 if d.get("mla") else d["head_dim"])
        writer.add_rope_dimension_count(64 if d.get("mla") else d["head_dim"])
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_layer_norm_eps(1e-5)
    writer.add_tokenizer_model("no_vocab")
    if writer.arch in ("granite", "granitemoe", "cohere2"):
        writer.add_logit_scale(1.0)
    if d.get("swa"):
        writer.add_sliding_window(d["n_swa"])
    if recurrent:
        writer.add_shortconv_l_cache(3)
    if d.get("delta"):
        writer.add_ssm_conv_kernel(4)
        writer.add_ssm_inner_size(DELTA_HEADS * DELTA_STATE)
        writer.add_ssm_state_size(DELTA_STATE)
        writer.add_ssm_time_step_rank(DELTA_HEADS)
        writer.add_ssm_group_count(DELTA_GROUPS)
        writer.add_full_attention_interval(d["delta"])
        writer.add_rope_dimension_sections([8, 8, 8, 8])
    if d.get("moe"):
        writer.add_expert_count(d["n_expert"])
        writer.add_expert_used_count(d["n_expert_used"])
        writer.add_expert_feed_forward_length(d["n_ff_exp"])
    if d.get("moe") == "shared all":
        writer.add_expert_shared_feed_forward_length(d["n_ff_exp"])
    if d.get("moe") == "shared":
        writer.add_expert_shared_count(1)
        writer.add_leading_dense_block_count(1)
    if d.get("mla"):
        writer.add_kv_lora_rank(512)
        writer.add_q_lora_rank(128)
        writer.add_key_length_mla(192)
        writer.add_value_length_mla(128)


def tensors(d: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...], str]]:
    """(name, shape in ggml's order, type) of every tensor; vectors are F32 as llama.cpp keeps them."""
    width, matrix = d["n_embd"], d["type"]
    yield "token_embd.weight", (width, d["n_vocab"]), d.get("type_embd", matrix)
    for i in range(d["n_layer"]):
        for name, shape in _block(d, i):
            vector = len(shape) == 1 or name.endswith("bias") or name.startswith("ffn_gate_inp") or "conv" in name
            yield f"blk.{i}.{name}", shape, "F32" if vector else matrix
    if d.get("rope_freqs"):
        yield "rope_freqs.weight", (d["head_dim"] // 2,), "F32"
    yield "token_embd_norm.weight" if d.get("recurrent") else "output_norm.weight", (width,), "F32"
    if d.get("bias") == "all":
        yield "output_norm.bias", (width,), "F32"
    if not d["tied"]:
        yield "output.weight", (width, d["n_vocab"]), d.get("type_output", matrix)


def _block(d: dict[str, Any], index: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, bias = d["n_embd"], d.get("bias") == "all"
    if d.get("post_norm") != "only":
        yield "attn_norm.weight", (width,)
    if bias:
        yield "attn_norm.bias", (width,)
    if d.get("delta") and (index + 1) % d["delta"]:
        yield from _delta_net(d)
    elif index in d.get("recurrent", ()):
        yield "shortconv.conv.weight", (3, width)
        yield "shortconv.in_proj.weight", (width, 3 * width)
        yield "shortconv.out_proj.weight", (width, width)
    else:
        yield from _latent_attention(d) if d.get("mla") else _attention(d)
    if d.get("post_norm"):
        yield "post_attention_norm.weight", (width,)
    if d.get("post_norm") not in (None, "attention"):
        yield "post_ffw_norm.weight", (width,)
    if d.get("post_norm") not in ("only", "attention") and d.get("ffn_norm", True):
        yield "ffn_norm.weight", (width,)
    if bias:
        yield "ffn_norm.bias", (width,)
    yield from _feed_forward(d, index)


def _attention(d: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, q, kv = d["n_embd"], d["n_head"] * d["head_dim"], d["n_head_kv"] * d["head_dim"]
    if d.get("fused"):
        yield "attn_qkv.weight", (width, q + 2 * kv)
    else:
        for name, rows in (("q", 2 * q if d.get("delta") else q), ("k", kv), ("v", kv)):
            yield f"attn_{name}.weight", (width, rows)
            if d.get("bias"):
                yield f"attn_{name}.bias", (rows,)
    if d.get("qk_norm"):
        whole = d["qk_norm"] == "whole"
        yield "attn_q_norm.weight", (q if whole else d["head_dim"],)
        yield "attn_k_norm.weight", (kv if whole else d["head_dim"],)
    yield "attn_output.weight", (q, width)
    if d.get("sinks"):
        yield "attn_sinks.weight", (d["n_head"],)
    if d.get("bias") in ("all", "qkvo"):
        yield "attn_output.bias", (width,)


def _delta_net(d: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, keys, values = d["n_embd"], DELTA_GROUPS * DELTA_STATE, DELTA_HEADS * DELTA_STATE
    yield "attn_qkv.weight", (width, 2 * keys + values)
    yield "attn_gate.weight", (width, values)
    yield "ssm_conv1d.weight", (4, 2 * keys + values)
    yield "ssm_dt.bias", (DELTA_HEADS,)
    yield "ssm_a", (DELTA_HEADS,)
    if d.get("moe"):
        yield "ssm_ba.weight", (width, 2 * DELTA_HEADS)
    else:
        yield "ssm_beta.weight", (width, DELTA_HEADS)
        yield "ssm_alpha.weight", (width, DELTA_HEADS)
    yield "ssm_norm.weight", (DELTA_STATE,)
    yield "ssm_out.weight", (values, width)


def _latent_attention(d: dict[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, heads, rank, q_rank, nope, rope, value = d["n_embd"], d["n_head"], 512, 128, 128, 64, 128
    yield "attn_q_a_norm.weight", (q_rank,)
    yield "attn_kv_a_norm.weight", (rank,)
    yield "attn_q_a.weight", (width, q_rank)
    yield "attn_q_b.weight", (q_rank, heads * (nope + rope))
    yield "attn_kv_a_mqa.weight", (width, rank + rope)
    yield "attn_k_b.weight", (nope, rank, heads)
    yield "attn_v_b.weight", (rank, value, heads)
    yield "attn_output.weight", (heads * value, width)


def _feed_forward(d: dict[str, Any], index: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, inner = d["n_embd"], d["n_ff"]
    if d.get("moe") and not (d["moe"] == "shared" and index == 0):
        experts, each = d["n_expert"], d["n_ff_exp"]
        yield "ffn_gate_inp.weight", (width, experts)
        yield "ffn_gate_exps.weight", (width, each, experts)
        yield "ffn_down_exps.weight", (each, width, experts)
        yield "ffn_up_exps.weight", (width, each, experts)
        if d["moe"] == "biased":
            yield "ffn_gate_inp.bias", (experts,)
            for name, rows in (("gate", each), ("down", width), ("up", each)):
                yield f"ffn_{name}_exps.bias", (rows, experts)
        if d["moe"] == "shared all":
            yield "ffn_gate_inp_shexp.weight", (width,)
        if str(d["moe"]).startswith("shared"):
            yield "ffn_gate_shexp.weight", (width, each)
            yield "ffn_down_shexp.weight", (each, width)
            yield "ffn_up_shexp.weight", (width, each)
        return
    if d.get("gate", True) and not d.get("fused"):
        yield "ffn_gate.weight", (width, inner)
    yield "ffn_down.weight", (inner, width)
    yield "ffn_up.weight", (width, 2 * inner if d.get("fused") else inner)
    if d.get("bias") == "all":
        yield "ffn_down.bias", (width,)
        yield "ffn_up.bias", (inner,)
