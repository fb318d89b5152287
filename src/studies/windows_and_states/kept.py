"""Computes what llama-server keeps of a prompt in host memory: context checkpoints, and copies of idle prompts.

    checkpoint        the states of one sequence + min(n, window) cells in each layer with a window
    copy of n tokens  the states + n cells in each layer without a window + min(n, window) in each with one, 12 bytes
                      for each of these cells, and the checkpoints that were made of the prompt

Cells outside the window are left out of a copy, with swa_full too. A hundred bytes or two of numbers are not counted.
The server makes a checkpoint before the last 4 tokens of a prompt, and one n_ubatch earlier, where the prompt is long
enough and a checkpoint is needed at all; a slot keeps at most `-ctxcp` of them. It copies a prompt when another takes
its slot, and drops the oldest copies above `-cram`.
Sources: tools/server/server-context.cpp:258-282, 2290-2354 and 3441-3616, server-task.cpp:1711-1790,
llama-kv-cache.cpp:2065-2310, llama-kv-cache-iswa.cpp:259-265, llama-memory-recurrent.cpp (state_write).
"""

from __future__ import annotations

from collections.abc import Iterable

from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import Model
from inferlab.prediction.memory.cache import CacheLayer, cache_layers, cell_bytes
from inferlab.prediction.memory.recurrent import STATE_BYTES
from inferlab.settings import Settings

DEFAULT_CHECKPOINTS = 32  # -ctxcp
BEFORE_END = 4  # tokens between the last checkpoint and the end of a prompt, server-context.cpp:3546
PLACE_BYTES = 12  # of a cell: its position, the number of its sequences, and the sequence


def needs_checkpoints(model: Model | KnownModel, settings: Settings) -> bool:
    """Whether the cache cannot be taken back to any earlier token: states, or windows that keep only themselves."""
    return any(layer.state_values or (layer.window and not settings.swa_full) for layer in cache_layers(model))


def checkpoint_bytes(model: Model | KnownModel, settings: Settings, n_tokens: int | None = None) -> int:
    """Bytes of one checkpoint after n_tokens (None: at least a window); 0 where the cache needs none.

    Raises UnsupportedArchitecture for a cache that has no formula here.
    """
    if not needs_checkpoints(model, settings):
        return 0
    layers = [layer for layer in cache_layers(model) if layer.window]
    return _copied(layers, settings, n_tokens) + _states(model)


def copy_bytes(model: Model | KnownModel, settings: Settings, n_tokens: int, n_checkpoints: int = 0) -> int:
    """Bytes of the copy of a prompt of n_tokens, with n_checkpoints of them.

    Raises UnsupportedArchitecture for a cache that has no formula here.
    """
    checkpoints = n_checkpoints * checkpoint_bytes(model, settings, n_tokens)
    return _copied(cache_layers(model), settings, n_tokens) + _states(model) + checkpoints


def copies_in(n_bytes: int, model: Model | KnownModel, settings: Settings, n_tokens: int) -> int:
    """How many copies of such prompts fit in n_bytes, the server's limit."""
    return n_bytes // copy_bytes(model, settings, n_tokens)


def _copied(layers: Iterable[CacheLayer], settings: Settings, n_tokens: int | None) -> int:
    """Bytes of one sequence's cells in these layers, and of their places; windows keep no more than themselves."""
    n_bytes = 0
    places: dict[int, int] = {}  # window -> cells
    for layer in layers:
        n_cells = min(n for n in (n_tokens, layer.window or None) if n is not None)
        each = cell_bytes(layer, settings.type_k, settings.type_v)
        n_bytes += n_cells * each
        places |= {layer.window: n_cells} if each else {}
    return n_bytes + PLACE_BYTES * sum(places.values())


def _states(model: Model | KnownModel) -> int:
    return sum(STATE_BYTES * layer.state_values for layer in cache_layers(model))
