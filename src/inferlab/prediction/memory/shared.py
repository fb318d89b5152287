"""The compute buffers of the host and one card that share a model: a range around what llama.cpp's scheduler would do.

`scheduled` replays the scheduler on the graph of `decoder`, with each weight and cache where the request puts it. It
agreed with llama.cpp's own in all but a few tries, at 0.01 MiB, and the range has room for those:

    least  (1 - OFF) of the replay       most  (1 + OFF) of it, with operations fused or not, in prefill or decode

With everything on the card it is OFF_WHOLE: there the replay, made from CUDA's source alone, agreed with the compute
buffers that two programs published of real cards (studies/strangers_loads) to 0.2 MiB.
Either end of the card's is further off by the largest weight that it copies in: a hole that is missed moves it there.
llama.cpp decides about flash_attn="auto" by the same placement, and it turns flash attention off where that of a block
is not on the block's side (resolve_fused_ops, llama-context.cpp:507).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from inferlab.machine import HOST_DEVICE
from inferlab.model.ggml_types import row_bytes
from inferlab.model.gguf import Tensor as Weight
from inferlab.prediction.memory.cache import CacheLayer, cache_layers, cells, windowed_cells
from inferlab.prediction.memory.compute import ODD_HEADER, decoder_of, is_exact, tokens_reserved, uses_flash_attention
from inferlab.prediction.memory.decoder import F16, F32, FREQUENCIES, HEAD, NORM, NORMED, SCAN, Batch, Decoder
from inferlab.prediction.memory.placement import (
    BLOCK,
    EMBEDDING,
    OUTPUT_MATRIX,
    TENSORS_ON_EVERY_DEVICE,
    layer_of,
    loaded_tensors,
)
from inferlab.prediction.memory.request import MemoryRequest
from inferlab.prediction.memory.scheduled import (
    CARD,
    HOST,
    OFFLOADED,
    Places,
    Resident,
    scheduled_bytes,
    sides_of,
)
from inferlab.prediction.memory.simulated import host_attends_for_devices
from inferlab.settings import EXPERTS, UNQUANTIZED

OFF, OFF_WHOLE = 0.15, 0.01
ONE_ROW = 1 << 40  # the width of a scan's result, which is one row to ggml however long it is


def shared_ranges(request: MemoryRequest, layers: Sequence[str]) -> dict[str, tuple[int, int]] | None:
    """Least and most compute bytes of the host and the card; None where the scheduler was not followed."""
    if not _is_followed(request):
        return None
    try:
        return _ranges(request, places_of(request, layers))
    except ODD_HEADER:
        return None


def _ranges(request: MemoryRequest, places: Places) -> dict[str, tuple[int, int]]:
    prefill, placed = decoder_of(request.model, request.settings, request.n_outputs), _with_norms_placed(places)
    decode, shares = _decode(prefill), HOST in places.blocks
    indexes = any(layer.indexes for layer in prefill.layers)  # whose graph is not followed to every copy
    may_end = _is_open(request) and request.settings.offload_kqv and not indexes
    if shares and may_end and _misplaces_attention(decode.again(), placed):
        prefill = _of(prefill, replace(prefill.batch, flash_attn=False))
        decode = _decode(prefill)
    sizes = _scheduled(prefill, places)
    if request.moved and request.offloads_all:  # a load has its norms placed, llama.cpp's simulation has not
        sizes += _scheduled(prefill.again(), placed)
    needed = sizes + (_scheduled(decode, placed) if shares and places.offloads else [])
    ends = {side: (min(one[side] for one in sizes), max(one[side] for one in needed)) for side in (HOST, CARD)}
    copied, off = _largest_copied(places), OFF_WHOLE if request.all_on_one_device else OFF
    (least_host, most_host), (least, most) = ends[HOST], ends[CARD]
    return {
        HOST_DEVICE: (int((1 - off) * least_host), int((1 + off) * most_host)),
        "gpu0": (max(0, int((1 - off) * least) - copied), int((1 + off) * most) + copied),
    }


def _of(decoder: Decoder, batch: Batch) -> Decoder:
    """One for another batch."""
    return type(decoder)(decoder.model, batch, decoder.layers, decoder.traits)


def _decode(prefill: Decoder) -> Decoder:
    """Of one token of each sequence, for which llama.cpp reserves memory, too."""
    n = prefill.batch.n_sequences
    return _of(prefill, replace(prefill.batch, n_tokens=n, n_outputs=n))


def _with_norms_placed(places: Places) -> Places:
    """With each norm on its block's side, as for few tokens and with all layers offloaded (llama-context.cpp:2646)."""
    norms = {f"blk.{i}.{NORMED}": Resident(side, width=ONE_ROW) for i, side in enumerate(places.blocks)}
    return replace(places, residents={**places.residents, **norms})


def _is_open(request: MemoryRequest) -> bool:
    """Whether llama.cpp decides about flash attention; quantized values decide it (llama-context.cpp:557, 3840)."""
    return request.settings.flash_attn == "auto" and request.settings.type_v in UNQUANTIZED


def _misplaces_attention(decode: Decoder, places: Places) -> bool:
    """Whether flash attention of a block is placed elsewhere than the block: llama.cpp turns it off then."""
    try:
        sides = sides_of(graph := decode.build(), places)
        return any(sides[id(node)] != places.blocks[block] for node, block in graph.attention)
    finally:
        decode.graph.unlink()


def _largest_copied(places: Places) -> int:
    """Bytes of the largest weight of a block that a card may copy in."""
    if not places.offloads:
        return 0
    of_host = (name for name, one in places.residents.items() if one.side == HOST and one.is_weight)
    return max((places.residents[name].n_bytes for name in of_host if BLOCK.match(name)), default=0)


def _scheduled(decoder: Decoder, places: Places) -> list[tuple[int, int]]:
    try:
        return scheduled_bytes(decoder.build(), places)
    finally:
        decoder.graph.unlink()


def _is_followed(request: MemoryRequest) -> bool:
    """One card of a backend whose rule is known, a graph with attention that was followed, none but experts moved.

    Without any attention (Mamba) a replay was up to a quarter off, where a hole was missed.
    """
    settings = request.settings
    caches = cache_layers(request.model) if request.cache_bytes is not None else ()
    return (
        len(request.gpus) == 1
        and not request.shares_tensors
        and request.is_verified
        and is_exact(request.model, settings)
        and tokens_reserved(settings) >= OFFLOADED
        and not (settings.no_host and "CUDA" in request.backends)
        and not host_attends_for_devices(request)
        and any(layer.key_width for layer in caches)
        and (settings.offload_kqv or not any(layer.state_values for layer in caches))
        and all(re.search(EXPERTS, name) for name in request.moved)
    )


def places_of(request: MemoryRequest, layers: Sequence[str]) -> Places:
    """Where the weights and caches of a request lie, whose devices are the host and one card."""
    model, sides = request.model, [HOST if device == HOST_DEVICE else CARD for device in layers]
    caches, is_cuda = sides if request.settings.offload_kqv else [HOST] * len(sides), "CUDA" in request.backends
    residents = {tensor.name: _weight(request, tensor, sides) for tensor in loaded_tensors(model)}
    table = next((t.n_bytes for t in model.tensors if t.name.split(".")[0] in TENSORS_ON_EVERY_DEVICE), None)
    for i, side in (*enumerate(sides), (HEAD, sides[-1])):
        residents[f"blk.{i}.{NORM}"] = Resident(side, F32 * model.n_embd, model.n_embd, is_weight=True)
        residents[f"blk.{i}.{SCAN}"] = Resident(side, F32, ONE_ROW, is_weight=True)
        if table:
            residents[f"blk.{i}.{FREQUENCIES}"] = Resident(side, table, is_weight=True)
    output = residents.get(OUTPUT_MATRIX) or replace(residents[EMBEDDING], side=sides[-1])
    residents[f"blk.{HEAD}.output"] = output
    for i, layer in enumerate(cache_layers(model)):
        residents |= {f"blk.{i}.{name}": one for name, one in _caches(request, layer, caches[i]).items()}
    return Places(residents, sides[:-1], caches, is_cuda, is_cuda and request.settings.op_offload)


def _weight(request: MemoryRequest, tensor: Weight, sides: Sequence[int]) -> Resident:
    layer = layer_of(tensor, request.model)
    side = sides[min(layer, len(sides) - 1)] if layer is not None and layer >= 0 else HOST
    if tensor.name in request.moved:
        side = HOST if request.moved[tensor.name] == HOST_DEVICE else CARD
    width = tensor.shape[1] if len(tensor.shape) > 1 else tensor.shape[0]
    if len(tensor.shape) > 2:
        width *= (request.model.number("expert_used_count") or 1) if "_exps" in tensor.name else tensor.shape[2]
    if tensor.name.endswith("attn_v_b.weight"):  # its batch is one of each stream
        width *= cells(request.settings)[0]
    return Resident(side, tensor.n_bytes, width, is_weight=True)


def _caches(request: MemoryRequest, layer: CacheLayer, side: int) -> dict[str, Resident]:
    """Keys, values, an indexer's keys and states of a block; latent values are a part of the keys."""
    settings = request.settings
    streams, n_cells = cells(settings)
    n_own = streams * windowed_cells(settings, layer.window)
    is_part = bool(layer.key_width) and not layer.value_width
    width = layer.value_width if uses_flash_attention(settings) else layer.widest_value
    kinds = {"k": (settings.type_k, layer.key_width, n_own), "v": (settings.type_v, width, n_own)}
    kinds |= {"v": kinds["k"]} if is_part else {}
    kinds |= {"index": (settings.type_k, layer.index_key, streams * n_cells)}
    stored = {
        name: Resident(
            side, n * row_bytes(kind, wide), 0, 0 if kind == "f16" else F16 * n * wide, is_part and name == "v"
        )
        for name, (kind, wide, n) in kinds.items()
    }
    return stored | {"r": Resident(side), "s": Resident(side)}
