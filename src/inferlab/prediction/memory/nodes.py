"""Whether a batch's graph has more tensors than llama.cpp has room for: then a load aborts, whatever memory is free.

The scheduler keeps the operations and the leaves of a graph in one table, whose size counts operations alone:

    room  the smallest of ggml's tables for max(1024, 8 * tensors of the model) entries
    need  operations + tensors of the model + tensors of the cache + inputs

A quantized cache has 6 operations more in each layer for its keys, and 6 for its values. `decoder` leaves out what
takes no memory of its own, such as views of the cache; that is added here. Some architectures have more of it, so the
need is the least that there can be; tests/prediction/test_nodes.py compares it with llama.cpp.
Sources: graph_max_nodes (llama-context.cpp:2396), ggml_backend_sched_new (ggml-backend.cpp:1890), ggml_hash_size
(ggml.c:6640); a public report is https://github.com/ollama/ollama/issues/16650.
"""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.machine import HOST_DEVICE
from inferlab.model.gguf import Model
from inferlab.options.names import programs
from inferlab.prediction.memory.cache import cache_layers, cells
from inferlab.prediction.memory.compute import ODD_HEADER, decoder_of, is_exact, uses_flash_attention
from inferlab.prediction.memory.decoder import Decoder
from inferlab.prediction.memory.kept import kept_by_graph
from inferlab.prediction.memory.placement import loaded_tensors, tied_output_bytes
from inferlab.settings import Settings

TABLES = 1031, 2053, 4099, 8209, 16411, 32771, 65537
LEAST_NODES, NODES_OF_A_TENSOR = 1024, 8
ROOMY = (
    "bailingmoe3 deepseek4 glm5-next hrm_text hy_v4 kimi-k3 kimi-linear minimax-01 minimax-m3 nanbeige qwen35 "
    "qwen35moe qwen3next qwen4exp"
)
"""Architectures to which graph_max_nodes gives at least 32 nodes for each tensor."""
MOST_OF_A_TENSOR = 10
"""No graph that was counted needs so many entries for each tensor of its model."""
F16, ONE_POOL = "a cache of type f16 (type_k and type_v)", "one pool of cells for all slots (kv_unified)"


def too_many_note(model: Model, settings: Settings, layers: Sequence[str]) -> tuple[str, ...]:
    """A note on a load that llama.cpp aborts; none where it has room, or where the graph was not followed.

    layers  the device of each block and, last, of the output
    """
    n_copied = int(layers[-1] != HOST_DEVICE and tied_output_bytes(model) > 0)
    need, room = tensors_needed(model, settings, n_copied)
    if need <= room:
        return ()
    changes = {F16: settings.but(type_k="f16", type_v="f16"), ONE_POOL: settings.but(kv_unified=True)}
    ways = [way for way, other in changes.items() if tensors_needed(model, other, n_copied)[0] <= room]
    return (
        f"llama.cpp {programs()['cli'].version} aborts this load (ggml-impl.h: fatal error), however much memory is "
        f"free: its scheduler has room for {room:,} tensors, and this graph has at least {need:,}. "
        + (f"Take {', or '.join(ways)}." if ways else "Take another model, or a later llama.cpp."),
    )


def tensors_needed(model: Model, settings: Settings, n_copied: int = 0) -> tuple[int, int]:
    """Tensors of the graph of a batch, at least, and how many the scheduler has room for.

    Where the graph was not followed, or cannot have too many, they are those of the model alone.
    n_copied  tensors of the model that a device has once more
    """
    try:
        n_tensors = len(loaded_tensors(model))
        has_room = model.architecture in ROOMY.split() or _room(n_tensors) > MOST_OF_A_TENSOR * n_tensors
        no_size = settings.but(n_ctx=256 * settings.n_seq_max, n_batch=512, n_ubatch=512)
        others = 0 if has_room or not is_exact(model, settings) else _beside_them(model, no_size)
    except ODD_HEADER:
        n_tensors, others = len(model.tensors), 0
    return n_tensors + n_copied + others, _room(n_tensors + n_copied)


def _room(n_tensors: int) -> int:
    nodes = max(LEAST_NODES, NODES_OF_A_TENSOR * n_tensors)
    return next((size for size in TABLES if size >= nodes), nodes)


@kept_by_graph
def _beside_them(model: Model, settings: Settings) -> int:
    """Operations, inputs and tensors of the cache."""
    decoder = decoder_of(model, settings, 1)
    try:
        graph = decoder.build()
        n_counted = len(graph.nodes) + len(graph.inputs)
    finally:
        decoder.graph.unlink()
    in_cache = sum(
        bool(width)
        for layer in cache_layers(model)
        for width in (layer.key_width, layer.value_width, layer.index_key, layer.state_values)
    )
    return n_counted + in_cache + _left_out(decoder, settings)


def _left_out(decoder: Decoder, settings: Settings) -> int:
    """Operations that `decoder` leaves out: views of cache and streams, one of each dense network, and scales."""
    flash = uses_flash_attention(settings)
    of_attention = (5 if flash else 7) + (cells(settings)[0] > 1) * (1 + flash)
    n_attending = sum(layer.keeps_keys and decoder.has_mixer(layer) for layer in decoder.layers)
    n_dense = sum("ffn_down.weight" in layer and "ffn_down_exps.weight" not in layer for layer in decoder.layers)
    n_scaled = 2 * len(decoder.layers) * bool(decoder.header("residual_scale")) + bool(decoder.header("logit_scale"))
    return of_attention * n_attending + n_dense + n_scaled
