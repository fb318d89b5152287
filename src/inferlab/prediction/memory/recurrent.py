"""Computes the state of recurrent layers: fixed bytes for each sequence, however long it is.

    bytes of the states   sum over recurrent layers of n_seq_max * (R + S) * 4
    R, a convolution      (conv_kernel - 1) * (inner_size + 2 * group_count * state_size); Mamba
                          (l_cache - 1) * n_embd; LFM2
    S, a state space      state_size * inner_size; Mamba; none in LFM2

llama.cpp keeps both as 32-bit floats whatever the types of the KV cache are, in as many rows as there may be sequences
(one more for each step that speculative decoding may take back, which `Settings` does not have). n_ctx, kv_unified
and swa_full do not change them. Keys and values of a hybrid's attention layers are an ordinary KV cache beside them.
Sources: llama-hparams.cpp:166-230, llama-memory-recurrent.cpp:98-101, llama-model.cpp:2661-2671.
"""

from __future__ import annotations

from inferlab.model.architecture_table import (
    BESIDE_ATTENTION,
    BUT_EVERY_NTH,
    EVERY_LAYER,
    WITHOUT_HEADS,
    architecture,
)
from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import Model

STATE_BYTES = 4  # GGML_TYPE_F32 for R and S, llama-model.cpp:2664


def kv_heads(model: Model | KnownModel) -> tuple[int, ...] | None:
    """KV heads of each layer of a recurrent model, 0 for a layer without a KV cache; None where they are not known."""
    state = architecture(model.architecture).state
    if state == EVERY_LAYER:
        return (0,) * model.n_layer
    if state == BUT_EVERY_NTH:
        return _every_nth(model)
    if isinstance(model, Model):
        return model.per_layer("attention.head_count_kv")
    listed = model.attention_layers if state == WITHOUT_HEADS else range(model.n_layer)
    return tuple(model.n_head_kv * (i in listed) for i in range(model.n_layer))


def _every_nth(model: Model | KnownModel) -> tuple[int, ...] | None:
    """Heads in every n-th layer (qwen35.cpp:18-26); None for a list of layers of the file's own."""
    n, known = model.n_head_kv, architecture(model.architecture)
    period = _number(model, "full_attention_interval") or known.attention_every
    if not period or n is None or f"{model.architecture}.attention.recurrent_layers" in model.metadata:
        return None
    return tuple(n * ((i + 1) % period == 0) for i in range(model.n_layer))


def state_values(model: Model | KnownModel) -> int | None:
    """Numbers in the state of one recurrent layer, for one sequence: R + S. None where the header does not tell."""
    kernel = _number(model, "shortconv.l_cache")
    if kernel:
        return (kernel - 1) * model.n_embd
    sizes = numbers(model, "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size", "ssm.group_count")
    if sizes is None:
        return None
    kernel, inner, state, groups = sizes
    return (kernel - 1) * (inner + 2 * groups * state) + state * inner


def has_state(name: str, n_kv_heads: int) -> bool:
    """Whether a layer of a recurrent architecture with so many KV heads keeps a state."""
    return architecture(name).state in (EVERY_LAYER, BESIDE_ATTENTION) or not n_kv_heads


def numbers(model: Model | KnownModel, *keys: str) -> list[int] | None:
    """The integers of these keys; None where the header lacks one of them."""
    told = [number for key in keys if (number := _number(model, key)) is not None]
    return told if len(told) == len(keys) else None


def _number(model: Model | KnownModel, key: str) -> int | None:
    return model.number(key) if isinstance(model, Model) else model.metadata.get(key)
