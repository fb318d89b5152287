"""Computes the KV cache of each layer: its cells, their width and their types. `speed` uses the same formulas.

    bytes of the cache    sum over layers of streams * cells * bytes of a cell
    bytes of a cell       row(type_k, KV heads * head_dim_k) + row(type_v, KV heads * head_dim_v)
    cells                 ceil256(n_ctx / streams); in a layer with a window, unless `swa_full`,
                          at most ceil256(window * sequences of the stream + n_ubatch)
    cells read by a step  min(ceil256(tokens in the cache), cells)

row(type, n) = n / block * block_bytes of the type, and ceil256 rounds up to a multiple of 256, both in
model.ggml_types. Heads may differ from layer to layer, and their width in layers with a window; without KV heads
a layer has no cells. What else there is:

    latent (MLA)      keys alone, where the header splits them (attention.key_length_mla)
    no flash          without flash attention values lie transposed, and each layer has room for the widest layer's
    shared            the last layers use the cache of layers before them (gemma3n, gemma4)
    indexer           a second cache of one key, indexer.key_length wide, in the layers that choose which cells to
                      attend to; with values of one head where the cache is not latent; three times as wide in glm5-next
    compressed        deepseek4: a window in every layer, and ceil256(cells / ratio) cells of one key in the layers with
                      a ratio of 4 or 128, with 4 an indexer's keys, too; for each sequence, in one pool or not
    states            a recurrent layer has a state of fixed size for each sequence, see `recurrent`
    further tokens    layers that predict several tokens have no cache, but in hybrids that do not leave them out

Sources: llama-kv-cache.cpp:205-255, llama-kv-cache-iswa.cpp:69-81, llama-kv-cache-dsa.cpp:36-60,
llama-kv-cache-msa.cpp:34-50, llama-memory-hybrid-idx.cpp:45-71, llama-kv-cache-dsv4.cpp:1227-1330,
llama-context.cpp:290-305, llama-model.cpp:2350-2860; of each architecture data/facts/architectures.toml.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.model import architecture_table as table
from inferlab.model.architecture_table import architecture
from inferlab.model.catalog import KnownModel
from inferlab.model.dimensions import (
    Heads,
    has_latent_cache,
    header_of_known,
    heads_of,
    layers_counted,
    of_each_layer,
    required,
    trunk_layers,
)
from inferlab.model.ggml_types import padded, row_bytes
from inferlab.model.gguf import Model
from inferlab.prediction.memory.recurrent import STATE_BYTES, attending_layers, states_of_layers
from inferlab.prediction.memory.windows import windows_of
from inferlab.settings import Settings

INDEXED_RATIO, RATIOS = 4, (4, 128)  # DSV4_CSA_RATIO, DSV4_HCA_RATIO, llama-kv-cache-dsv4.cpp:17-18
GLM_INDEXED = (True, True, *(True, False, False, False) * 19)  # GLM_5_2_DEFAULT_INDEXER_TYPES, glm-dsa.cpp:6
GLM_LONG = 1_048_576  # context from which glm-dsa has that list (glm-dsa.cpp:60)
INDEXED = "attention.indexer.types"


@dataclass(frozen=True)
class CacheLayer:
    """The cache of one layer: width of a key and of a value in one cell, and the window in tokens (0: no window).

    state_values        32-bit numbers of a recurrent state, for each sequence (0: not recurrent)
    widest_value        the width of a value without flash attention: the widest of all layers
    index_key           width of the indexer's key in each of the cells without a window (0: no indexer)
    index_value         and of its value
    ratio               cells that one compressed cell stands for (0: none are compressed)
    per_sequence        whether each sequence has cells of its own although `kv_unified` pools them
    """

    key_width: int
    value_width: int
    window: int = 0
    state_values: int = 0
    widest_value: int = 0
    index_key: int = 0
    index_value: int = 0
    ratio: int = 0
    per_sequence: bool = False


def cache_layers(model: Model | KnownModel) -> tuple[CacheLayer, ...]:
    """One CacheLayer for each block; more where llama.cpp runs blocks several times.

    Raises UnsupportedArchitecture for a cache that has no formula here, and for a header that lacks a dimension.
    """
    header = header_of_known(model)
    kind = architecture(header.architecture)
    if not kind.is_known:
        raise UnsupportedArchitecture(
            f"{header.name} is of the architecture {header.architecture!r}, whose cache has no closed form here. "
            "It is a draft or an encoder that belongs to another model, or newer than this library."
        )
    if kind.cache == table.NONE:
        return (CacheLayer(0, 0),) * layers_counted(header)
    if kind.cache == table.COMPRESSED:
        return _compressed(header)
    return _with_indexer(header, _attention(header))


def _attention(model: Model) -> tuple[CacheLayer, ...]:
    """Keys, values, windows and states of each layer."""
    windows, states = windows_of(model), states_of_layers(model)
    keeps = _keeping_layers(model)
    if not any(keeps):
        return tuple(CacheLayer(0, 0, 0, state) for state in states)
    heads = _known_heads(model)
    widths = [heads.width(i, bool(window)) for i, window in enumerate(windows)]
    if has_latent_cache(model):
        widths = [(key, 0) for key, _ in widths]
    widest = max(value for _, value in widths)
    return tuple(
        CacheLayer(*width, window, state, widest) if keep else CacheLayer(0, 0, 0, state)
        for width, window, state, keep in zip(widths, windows, states, keeps, strict=True)
    )


def _known_heads(model: Model) -> Heads:
    """The heads of each layer. Raises UnsupportedArchitecture for a header without them."""
    if model.per_layer("attention.head_count") is None:
        required(model, "attention.head_count")
    return heads_of(model)


def _keeping_layers(model: Model) -> tuple[bool, ...]:
    """Whether each layer keeps keys and values of its own (has_kv and the filters of create_memory)."""
    kind, n_layer, n_trunk = architecture(model.architecture), layers_counted(model), trunk_layers(model)
    if kind.state:
        return attending_layers(model)
    last = n_layer if kind.nextn_cache or not n_trunk else n_trunk
    if kind.layers_with_cache is not None:
        last = min(last, kind.layers_with_cache)
    if kind.shares_cache:
        last = min(last, n_layer - (model.number("attention.shared_kv_layers") or 0))
    return tuple(i < last for i in range(n_layer))


def _with_indexer(model: Model, layers: tuple[CacheLayer, ...]) -> tuple[CacheLayer, ...]:
    """The layers, with the keys of those that choose cells to attend to."""
    indexed = _indexed_layers(model)
    if not any(indexed):
        return layers
    kind, heads = architecture(model.architecture), _known_heads(model)
    key = required(model, "attention.indexer.key_length")[0]
    values = 0 if kind.state or has_latent_cache(model) else heads.value
    widths = tuple(heads.key_in_window if layer.window else key for layer in layers)
    pooled = 3 if model.architecture == "glm5-next" else 1  # key, gate and pooled key, llama-memory-hybrid-idx.cpp:53
    return tuple(
        replace(layer, index_key=pooled * width, index_value=values) if has else layer
        for layer, width, has in zip(layers, widths, indexed, strict=True)
    )


def _indexed_layers(model: Model) -> tuple[bool, ...]:
    """Whether each layer has an indexer of its own."""
    kind, n_layer, n_trunk = architecture(model.architecture), layers_counted(model), trunk_layers(model)
    if not kind.indexer or (model.architecture == "hy_v4" and not model.number("attention.indexer.top_k")):
        return (False,) * n_layer
    if kind.indexer == table.AFTER_DENSE:
        dense = model.number("leading_dense_block_count") or 0
        return tuple(i >= dense for i in range(n_layer))
    keeps = attending_layers(model) if kind.state else (True,) * n_layer
    listed = _listed(model, n_layer) if kind.indexer == table.LISTED else (True,) * n_layer
    return tuple(i < n_trunk and keeps[i] and listed[i] for i in range(n_layer))


def _listed(model: Model, n_layer: int) -> tuple[bool, ...]:
    """The header's own list of layers with an indexer, else the architecture's."""
    if model.per_layer(INDEXED) is not None:
        return tuple(map(bool, of_each_layer(model, INDEXED)))
    if model.architecture == "glm-dsa" and (model.n_ctx_train or 0) >= GLM_LONG:
        return (*GLM_INDEXED, *(False,) * n_layer)[:n_layer]
    return (model.architecture in ("glm-dsa", "glm5-next"),) * n_layer


def _compressed(model: Model) -> tuple[CacheLayer, ...]:
    """The layers of deepseek4: keys alone, in a window and compressed, and the states of the compressors.

    States of a layer, for each sequence: with ratio 4 two of 8 rows, 2 keys wide and 2 indexer's keys wide, with 128
    one of 128 rows, a key wide, each of keys and of scores (llama_dsv4_comp_state).
    """
    heads, windows = _known_heads(model), windows_of(model)
    ratios, index = (
        of_each_layer(model, "attention.compress_ratios"),
        required(model, "attention.indexer.key_length")[0],
    )
    first, n_trunk = heads.key_in_window if windows[:1] != (0,) else heads.key, _trunk_of_deepseek4(model)
    states = {4: 2 * 8 * 2 * (first + index), 128: 2 * 128 * first}
    return tuple(
        CacheLayer(
            heads.width(i, bool(window))[0],
            0,
            window,
            states[ratio] if ratio in RATIOS and i < n_trunk else 0,
            index_key=index if ratio == INDEXED_RATIO else 0,
            ratio=ratio if ratio in RATIOS else 0,
            per_sequence=True,
        )
        for i, (window, ratio) in enumerate(zip(windows, ratios, strict=True))
    )


def _trunk_of_deepseek4(model: Model) -> int:
    """Layers without those that predict further tokens, of which a file may have none (deepseek4.cpp:20-26)."""
    n_trunk = trunk_layers(model)
    probe = f"blk.{n_trunk}.nextn.eh_proj.weight"
    return n_trunk if any(tensor.name == probe for tensor in model.tensors) else layers_counted(model)


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
    """Bytes of one cell in one layer: keys and values, and those of an indexer that has as many cells."""
    index = 0 if layer.ratio else row_bytes(type_k, layer.index_key) + row_bytes(type_v, layer.index_value)
    return row_bytes(type_k, layer.key_width) + row_bytes(type_v, layer.value_width) + index


def layer_bytes(layer: CacheLayer, settings: Settings) -> int:
    """Bytes of one layer's cache, and of its recurrent states."""
    return cells_bytes(layer, settings) + state_bytes(layer, settings)


def cells_bytes(layer: CacheLayer, settings: Settings) -> int:
    """Bytes of one layer's cells: with keys and values, of an indexer, and compressed."""
    streams, n_cells = cells(settings)
    if layer.per_sequence:
        return settings.n_seq_max * _compressed_bytes(layer, settings, n_cells)
    values = layer.value_width if settings.flash_attn != "off" else layer.widest_value
    own = row_bytes(settings.type_k, layer.key_width) + row_bytes(settings.type_v, values)
    index = row_bytes(settings.type_k, layer.index_key) + row_bytes(settings.type_v, layer.index_value)
    return streams * (windowed_cells(settings, layer.window) * own + n_cells * index)


def _compressed_bytes(layer: CacheLayer, settings: Settings, n_cells: int) -> int:
    """Bytes of one sequence's cells in a layer of deepseek4 (llama-kv-cache-dsv4.cpp:1255-1303)."""
    alone = settings.but(kv_unified=False, n_seq_max=1, n_ctx=n_cells)
    key, index = row_bytes(settings.type_k, layer.key_width), row_bytes(settings.type_k, layer.index_key)
    compressed = padded(-(-n_cells // layer.ratio)) * (key + index) if layer.ratio else 0
    return windowed_cells(alone, layer.window) * key + compressed


def state_bytes(layer: CacheLayer, settings: Settings) -> int:
    """Bytes of one layer's recurrent states: one for each sequence, of the same size at any length."""
    return settings.n_seq_max * STATE_BYTES * layer.state_values


def require_effect(settings: Settings, model: Model | KnownModel) -> None:
    """Refuse settings of the cache that change nothing, where that can be known: for the places where people set them.

    Raises InvalidSettings for kv_unified with one sequence, and for swa_full without windows.
    """
    if settings.kv_unified and settings.n_seq_max == 1:
        raise InvalidSettings(
            "kv_unified=True changes nothing for one sequence (n_seq_max=1): it has all cells anyhow, and llama.cpp "
            "would not say so. Leave it out, or give more sequences."
        )
    if settings.swa_full and not may_have_windows(model):
        raise InvalidSettings(
            f"swa_full=True changes nothing: no layer of {model.name} has a sliding window, and llama.cpp would "
            "ignore the setting. Leave it out."
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
