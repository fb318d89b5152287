"""Computes the KV cache of each layer: its cells, their width and their types. `speed` uses the same formulas.

    bytes of the cache    sum over layers of streams * cells * bytes of a cell
    bytes of a cell       row(type_k, KV heads * head_dim_k) + row(type_v, KV heads * head_dim_v)
    cells                 ceil256(n_ctx / streams); in a layer with a window, unless `swa_full`,
                          at most ceil256(window * sequences of the stream + n_ubatch)
    cells read by a step  min(ceil256(tokens in the cache), cells)

A recurrent layer adds a state of fixed size for each sequence, see `recurrent`, and a pure one has no cells.
row(type, n) = n / block * block_bytes of the type, and ceil256 rounds up to a multiple of 256, both in
model.ggml_types. A latent (MLA) cache has keys only.
Sources: llama-kv-cache.cpp:205-234, llama-kv-cache-iswa.cpp:69-81, llama-context.cpp:290-305, llama-model.cpp:2352.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.model.architecture_table import LATENT, STATE, architecture, architectures
from inferlab.model.catalog import KnownModel
from inferlab.model.dimensions import dimensions_of
from inferlab.model.ggml_types import padded, row_bytes
from inferlab.model.gguf import LazyArray, Model
from inferlab.prediction.memory.recurrent import STATE_BYTES, has_state, kv_heads, state_values
from inferlab.settings import Settings

NO_SIZE = "a header without the size of its state or of its heads"


@dataclass(frozen=True)
class CacheLayer:
    """The cache of one layer: width of a key and of a value in one cell, and the window in tokens (0: no window).

    state_values  32-bit numbers of a recurrent state, for each sequence (0: not recurrent)
    """

    key_width: int
    value_width: int
    window: int = 0
    state_values: int = 0


def cache_layers(model: Model | KnownModel) -> tuple[CacheLayer, ...]:
    """One CacheLayer for each block. Raises UnsupportedArchitecture for a cache that has no formula here."""
    if not isinstance(model, Model):
        if architecture(model.architecture).cache == STATE:
            return _recurrent(model)
        return _windowed(model, model.n_swa)
    if unsupported := _unsupported_cache(model):
        raise _without_formula(model, unsupported)
    if architecture(model.architecture).cache == STATE:
        return _recurrent(model)
    if architecture(model.architecture).cache == LATENT:
        size = dimensions_of(model)
        return (CacheLayer(size.n_head_kv * size.head_dim_k, 0),) * size.n_layer
    return _windowed(model, _window(model))


def _without_formula(model: Model | KnownModel, what: str) -> UnsupportedArchitecture:
    return UnsupportedArchitecture(
        f"{model.name} ({model.architecture}) has {what}; the closed form for the KV cache does not hold for it."
    )


def cells(settings: Settings) -> tuple[int, int]:
    """(streams, cells of each): sequences share one stream if `kv_unified`, and n_ctx is rounded up twice to 256.

    llama-context.cpp:290-305. Raises InvalidSettings without n_ctx.
    """
    streams = 1 if settings.kv_unified else settings.n_seq_max
    return streams, padded(padded(n_ctx_of(settings)) // streams)


def n_ctx_of(settings: Settings) -> int:
    """The context, in tokens. Raises InvalidSettings where it is left open."""
    if settings.n_ctx is None:
        raise InvalidSettings("n_ctx=None leaves the size of the KV cache open; say how many tokens it must hold.")
    return settings.n_ctx


def windowed_cells(settings: Settings, window: int) -> int:
    """Cells of each stream in a layer with a sliding window (llama-kv-cache-iswa.cpp:69-81)."""
    _, all_cells = cells(settings)
    if settings.swa_full or not window:
        return all_cells
    window_cells = window * (settings.n_seq_max if settings.kv_unified else 1)
    return padded(min(all_cells, window_cells + batches(settings)[1]))


def batches(settings: Settings) -> tuple[int, int]:
    """(n_batch, n_ubatch) as llama.cpp limits them: no batch is larger than n_ctx."""
    n_batch = min(n_ctx_of(settings), settings.n_batch)
    return n_batch, min(n_batch, settings.n_ubatch)


def cells_read(settings: Settings, window: int, n_tokens: int) -> int:
    """Cells that attention reads with `n_tokens` in one sequence's cache, masked ones included (get_n_kv)."""
    return min(padded(n_tokens), windowed_cells(settings, window))


def cell_bytes(layer: CacheLayer, type_k: str, type_v: str) -> int:
    """Bytes of the keys and values of one cell in one layer."""
    return row_bytes(type_k, layer.key_width) + row_bytes(type_v, layer.value_width)


def layer_bytes(layer: CacheLayer, settings: Settings) -> int:
    """Bytes of one layer's cache, and of its recurrent states."""
    streams, _ = cells(settings)
    of_cells = streams * windowed_cells(settings, layer.window) * cell_bytes(layer, settings.type_k, settings.type_v)
    return of_cells + state_bytes(layer, settings)


def state_bytes(layer: CacheLayer, settings: Settings) -> int:
    """Bytes of one layer's recurrent states: one for each sequence, of the same size at any length."""
    return settings.n_seq_max * STATE_BYTES * layer.state_values


def require_effect(settings: Settings, model: Model | KnownModel) -> None:
    """Refuse settings of the cache that change nothing, where that can be known: for the places where people set them.

    Raises InvalidSettings for kv_unified with one sequence, and for swa_full=False without windows.
    """
    if settings.kv_unified and settings.n_seq_max == 1:
        raise InvalidSettings(
            "kv_unified=True changes nothing for one sequence (n_seq_max=1): it has all cells anyhow, and llama.cpp "
            "would not say so. Leave it out, or give more sequences."
        )
    if not settings.swa_full and not may_have_windows(model):
        raise InvalidSettings(
            f"swa_full=False changes nothing: no layer of {model.name} has a sliding window, and llama.cpp would "
            "ignore the setting. Leave it at True; a smaller n_ctx or cache type makes this cache smaller."
        )


def may_have_windows(model: Model | KnownModel) -> bool:
    """Whether a layer attends to a sliding window; of an architecture without a formula, perhaps."""
    try:
        return any(layer.window for layer in cache_layers(model))
    except UnsupportedArchitecture:
        return True


def kv_cache_bytes(model: Model | KnownModel, settings: Settings) -> int:
    """Bytes of the KV cache that llama.cpp allocates when it creates the context; the cache never grows.

    Raises InvalidSettings without n_ctx, UnsupportedArchitecture for a cache that has no formula here.
    """
    return sum(layer_bytes(layer, settings) for layer in cache_layers(model))


def kv_cache_bytes_per_token(model: Model | KnownModel, type_k: str = "f16", type_v: str = "f16") -> int:
    """Bytes of one cell of the KV cache over all layers; KV heads count, query heads do not. A state has no cells.

    n_layer * (row(type_k, n_head_kv * head_dim_k) + row(type_v, n_head_kv * head_dim_v)); llama-kv-cache.cpp.
    """
    return sum(cell_bytes(layer, type_k, type_v) for layer in cache_layers(model))


def _windowed(model: Model | KnownModel, window: int) -> tuple[CacheLayer, ...]:
    """The layers with and without a sliding window, in their pattern: set_swa_pattern, llama-hparams.cpp:8-22."""
    size = dimensions_of(model)
    widths = size.n_head_kv * size.head_dim_k, size.n_head_kv * size.head_dim_v
    period = architecture(model.architecture).window_every
    if not window or not period:
        return (CacheLayer(*widths),) * model.n_layer
    return tuple(CacheLayer(*widths, window if i % period < period - 1 else 0) for i in range(model.n_layer))


def _recurrent(model: Model | KnownModel) -> tuple[CacheLayer, ...]:
    """The layers of a model with recurrent states: cells where it has KV heads, a state where it is recurrent."""
    k, v, state, heads = model.head_dim_k or 0, model.head_dim_v or 0, state_values(model), kv_heads(model)
    if state is None or heads is None:
        raise _without_formula(model, NO_SIZE)
    return tuple(CacheLayer(n * k, n * v, 0, state * has_state(model.architecture, n)) for n in heads)


def _window(model: Model) -> int:
    """Tokens of the sliding window; llama.cpp assumes one for some architectures and ignores the key for others."""
    known = architecture(model.architecture)
    return (model.number("attention.sliding_window", known.assumed_window) or 0) if known.window_every else 0


def _has_standard_window_pattern(model: Model) -> bool:
    """Whether the file's own pattern of windows, a number or one flag for each layer, is its architecture's."""
    period = architecture(model.architecture).window_every
    key = f"{model.architecture}.attention.sliding_window_pattern"
    if period and isinstance(model.metadata.get(key), LazyArray):
        return [bool(flag) for flag in model.array(key)] == [i % period < period - 1 for i in range(model.n_layer)]
    return model.metadata.get(key, period) == period


def _unsupported_state(model: Model) -> str | None:
    """Why no formula here is valid for the states and the cache of a recurrent model; None where one is."""
    if any(kv_heads(model) or ()) and None in (model.head_dim_k, model.head_dim_v):
        return NO_SIZE
    if model.number("attention.sliding_window"):
        return "sliding windows beside recurrent states"
    return "layers that predict several tokens" if model.number("nextn_predict_layers") else None


def _unsupported_cache(model: Model) -> str | None:
    """Why no formula here is valid for this model's cache; None where one is."""
    per_layer = ("attention.head_count_kv", "attention.head_count", "attention.key_length", "attention.value_length")
    arrays = [k for k in per_layer if isinstance(model.metadata.get(f"{model.architecture}.{k}"), LazyArray)]
    if not architecture(model.architecture).is_known:
        known = sorted(name for name, one in architectures().items() if one.is_known)
        return "an architecture that is not among " + ", ".join(known)
    if architecture(model.architecture).cache == STATE:
        return _unsupported_state(model)
    if arrays:
        return f"{arrays[0]} for each layer"
    if None in (model.n_head_kv, model.head_dim_k, model.head_dim_v):
        return "a header without the number of heads or their width"
    if _window(model) and not _has_standard_window_pattern(model):
        return "a pattern of sliding windows of its own"
    if model.number("nextn_predict_layers"):
        return "layers that predict several tokens"
    if architecture(model.architecture).cache == LATENT and not model.number("attention.key_length_mla"):
        return "keys and values that its file leaves unsplit"
    return None
