"""Computes the state of recurrent layers: fixed bytes for each sequence, however long it is.

    bytes of the states   sum over recurrent layers of n_seq_max * (R + S + P) * 4

                          R, a convolution or shift                            S, a state
    Mamba, Jamba          (conv_kernel - 1) * inner_size                       state_size * inner_size
    Mamba 2, delta net    (conv_kernel - 1) * (inner_size + 2 group_count * state_size), and the same S
    RWKV                  token_shift_count * n_embd                           n_embd * wkv.head_size
    short convolution     (l_cache - 1) * n_embd                               none
    Kimi delta attention  3 (conv_kernel - 1) * heads * kda.head_dim           heads * kda.head_dim^2
    linear attention      none                                                 heads * key_length^2

`heads` are those of the first layer. P, of qwen4exp's layers with n-gram embeddings:
(ple.conv_kernel - 1) * ple.ngram_size * hyper_connection.count * n_embd.

llama.cpp keeps all as 32-bit floats whatever the types of the KV cache are, in as many rows as there may be sequences
(one more for each step that speculative decoding may take back, which `Settings` does not have). n_ctx, kv_unified
and swa_full do not change them. Keys and values of a hybrid's attention layers are an ordinary KV cache beside them.
Sources: llama-hparams.cpp:143-242, llama-memory-recurrent.cpp:71-108, llama-model.cpp:2671-2776.
"""

from __future__ import annotations

from inferlab.model import architecture_table as table
from inferlab.model.architecture_table import architecture
from inferlab.model.catalog import KnownModel
from inferlab.model.dimensions import header_of_known, heads_of, layers_counted, of_each_layer, required, trunk_layers
from inferlab.model.gguf import Model

STATE_BYTES = 4  # GGML_TYPE_F32 for R and S, llama-model.cpp:2674
ALL_BUT, LISTED = "full_attention_interval", "attention.recurrent_layers"


def kv_heads(model: Model | KnownModel) -> tuple[int, ...]:
    """KV heads of each layer that keeps keys and values, 0 for a layer without a KV cache.

    Raises UnsupportedArchitecture for a header that lacks a dimension.
    """
    header = header_of_known(model)
    heads, attends = heads_of(header).n_head_kv, attending_layers(header)
    return tuple(n * keeps for n, keeps in zip(heads, attends, strict=True))


def attending_layers(model: Model) -> tuple[bool, ...]:
    """Whether each layer of a model with states keeps keys and values, too."""
    kind, n_layer, n_trunk = architecture(model.architecture), layers_counted(model), trunk_layers(model)
    recurrent = recurrent_layers(model)
    if kind.state == table.EVERY_LAYER:
        return (False,) * n_layer
    if kind.state == table.BESIDE_ATTENTION or not kind.state:
        return (True,) * n_layer
    with_feed_forward = of_each_layer(model, "feed_forward_length") if kind.state == table.WITHOUT_BOTH else None
    return tuple(
        not recurrent[i] and (i < n_trunk or kind.nextn_cache) and not (with_feed_forward and with_feed_forward[i])
        for i in range(n_layer)
    )


def recurrent_layers(model: Model) -> tuple[bool, ...]:
    """Whether each layer keeps a state; layers that predict further tokens keep none."""
    kind, n_layer, n_trunk = architecture(model.architecture), layers_counted(model), trunk_layers(model)
    if not kind.state:
        return (False,) * n_layer
    if kind.state in (table.EVERY_LAYER, table.BESIDE_ATTENTION):
        return tuple(i < n_trunk for i in range(n_layer))
    if kind.state == table.BUT_EVERY_NTH:
        return tuple(flag and i < n_trunk for i, flag in enumerate(_but_every_nth(model, n_layer)))
    heads = heads_of(model).n_head_kv
    feed_forward = of_each_layer(model, "feed_forward_length") if kind.state == table.WITHOUT_BOTH else (0,) * n_layer
    return tuple(i < n_trunk and not heads[i] and not feed_forward[i] for i in range(n_layer))


def _but_every_nth(model: Model, n_layer: int) -> tuple[bool, ...]:
    """The header's own list or flag for all, else every layer but each n-th (qwen35.cpp:17-23)."""
    if f"{model.architecture}.{LISTED}" in model.metadata:
        return tuple(map(bool, of_each_layer(model, LISTED)))
    every = model.number(ALL_BUT, architecture(model.architecture).attention_every) or 1
    return tuple((i + 1) % every != 0 for i in range(n_layer))


def states_of_layers(model: Model) -> tuple[int, ...]:
    """Numbers in the state of each layer, for one sequence; 0 where it keeps none."""
    each, history = state_values(model), _ngram_history(model)
    return tuple((each + history.get(i, 0)) if recurrent else 0 for i, recurrent in enumerate(recurrent_layers(model)))


def state_values(model: Model | KnownModel) -> int:
    """Numbers in the state of one recurrent layer, for one sequence: R + S; 0 for an architecture without states.

    Raises UnsupportedArchitecture where the header does not tell.
    """
    header = header_of_known(model)
    mixer = architecture(header.architecture).mixer
    return _STATES[mixer](header) if mixer else 0


def _mamba(model: Model) -> int:
    kernel, inner, state = required(model, "ssm.conv_kernel", "ssm.inner_size", "ssm.state_size")
    return max(kernel - 1, 0) * inner + state * inner


def _mamba2(model: Model) -> int:
    groups, state, kernel = required(model, "ssm.group_count", "ssm.state_size", "ssm.conv_kernel")
    return _mamba(model) + max(kernel - 1, 0) * 2 * groups * state


def _rwkv(model: Model) -> int:
    n_embd, head_size = required(model, "embedding_length", "wkv.head_size")
    return ((model.number("token_shift_count", 2) or 0) + head_size) * n_embd


def _short_convolution(model: Model) -> int:
    n_embd, kernel = required(model, "embedding_length", "shortconv.l_cache")
    return (kernel - 1) * n_embd


def _delta_attention(model: Model) -> int:
    head_dim, kernel = required(model, "kda.head_dim", "ssm.conv_kernel")
    inner = heads_of(model).n_head[0] * head_dim
    return 3 * (kernel - 1 if kernel else 3) * inner + head_dim * inner


def _linear_attention(model: Model) -> int:
    heads = heads_of(model)
    return heads.key**2 * heads.n_head[0]


_STATES = {
    table.MAMBA: _mamba,
    table.MAMBA2: _mamba2,
    table.RWKV: _rwkv,
    table.SHORT_CONVOLUTION: _short_convolution,
    table.DELTA: _delta_attention,
    table.LINEAR: _linear_attention,
}


def numbers(model: Model | KnownModel, *keys: str) -> list[int] | None:
    """The integers of these keys; None where the header lacks one of them."""
    header = header_of_known(model)
    told = [number for key in keys if (number := header.number(key)) is not None]
    return told if len(told) == len(keys) else None


def _ngram_history(model: Model) -> dict[int, int]:
    """Numbers of P in the layers that have it (qwen4exp.cpp:68-90, ple_conv_state in llama-hparams.cpp:206)."""
    name = f"{model.architecture}.ple.layers"
    if model.architecture != "qwen4exp" or name not in model.metadata:
        return {}
    keys = "ple.conv_kernel", "ple.ngram_size", "hyper_connection.count", "embedding_length"
    kernel, ngram, streams, n_embd = required(model, *keys)
    return dict.fromkeys(model.per_layer("ple.layers") or (), (kernel - 1) * ngram * streams * n_embd)
