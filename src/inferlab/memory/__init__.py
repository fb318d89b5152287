"""How many bytes a model takes, from its shape alone.

weights: the sum of tensor bytes. `cache`: the KV cache, layer by layer. `placement`: which device has which layer.
`compute`: the compute and output buffers, in closed form where that is exact. `plan`: all of it in one record.
What a formula does not cover is refused (UnsupportedArchitecture, or None), never guessed.
"""

from __future__ import annotations

from inferlab.facts import KnownModel
from inferlab.gguf import Model
from inferlab.memory.cache import kv_cache_bytes, kv_cache_bytes_per_token, row_bytes
from inferlab.memory.plan import DeviceBytes, LayerBytes, MemoryPlan

__all__ = [
    "DeviceBytes",
    "LayerBytes",
    "MemoryPlan",
    "kv_cache_bytes",
    "kv_cache_bytes_per_token",
    "n_matrix_weights",
    "n_norm_weights",
    "n_params",
    "row_bytes",
    "weights_bytes",
]


def n_params(model: KnownModel) -> int:
    """Weights of a dense Llama-shaped model: attention, feed-forward, embedding, output, norms."""
    return n_matrix_weights(model) + n_norm_weights(model)


def n_matrix_weights(model: KnownModel) -> int:
    """Weights in matrices, the part that a quantization type applies to."""
    queries_and_output = 2 * model.n_embd * model.n_head * model.head_dim_k
    keys = model.n_embd * model.n_head_kv * model.head_dim_k
    values = model.n_embd * model.n_head_kv * model.head_dim_v
    feed_forward = 3 * model.n_embd * model.n_ff
    embeddings = (1 if model.tied_embeddings else 2) * model.n_vocab * model.n_embd
    return model.n_layer * (queries_and_output + keys + values + feed_forward) + embeddings


def n_norm_weights(model: KnownModel) -> int:
    """Weights of the norms: two a layer and one at the end, kept in F32 whatever the type."""
    return (2 * model.n_layer + 1) * model.n_embd


def weights_bytes(model: Model | KnownModel, type: str | None = None) -> int:
    """Bytes of all tensors: read from a file's header, or of a known model with every matrix in one `type`.

    A named mix such as Q4_K_M is not one type; `known_model(...).files` has the sizes of published files.
    Raises InvalidSettings for a type that ggml does not have.
    """
    if isinstance(model, Model):
        return model.tensor_bytes
    return row_bytes(type or "f16", n_matrix_weights(model)) + row_bytes("f32", n_norm_weights(model))
