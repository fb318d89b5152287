"""Assembles a memory plan from the bytes of its layers and its compute buffers; the plan by formulas alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from inferlab.errors import UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE
from inferlab.model.dimensions import layers_counted
from inferlab.model.repacking import NOT_REPACKED
from inferlab.prediction.memory.compute import compute_bytes, output_bytes
from inferlab.prediction.memory.host_weights import HostWeights, host_weights
from inferlab.prediction.memory.placement import OUTPUT_MATRIX, layer_of, loaded_tensors, tied_output_bytes
from inferlab.prediction.memory.plan import CLOSED_FORM, DeviceBytes, LayerBytes, MemoryPlan
from inferlab.prediction.memory.refused import refused_note
from inferlab.prediction.memory.request import MemoryRequest
from inferlab.prediction.memory.tensor_split import split_weights
from inferlab.units import bytes_text

REPACKED_NOTE = (
    "llama.cpp keeps a second, repacked copy of {n_bytes} of the host's weights beside the mapped file (its buffers "
    "AMX and CPU_REPACK). That copy is not in this plan."
)
UNKNOWN_PROCESSOR_NOTE = (
    "llama.cpp may keep a second, repacked copy of some host weights beside the mapped file (its buffers AMX and "
    "CPU_REPACK): up to {n_bytes}, depending on the processor. That copy is not in this plan."
)
NO_FLASH_NOTE = (
    "CUDA's flash attention has no kernel for heads of this size: llama.cpp turns it off, and this plan is without it."
)
AS_CUDA_NOTE = (
    "This plan has compute buffers as CUDA's backend allocates them; another backend's can be larger or smaller. "
    "Weights and KV cache are the same on every card."
)
ENCODER_NOTE = (
    "The file holds {n_bytes} of an encoder for pictures or sound beside the language model, as Ollama's own files do; "
    "they are in this plan. llama.cpp refuses such a file: take a GGUF without the encoder there, and its mmproj file."
)
SUMS_NOTE = (
    "With the first full batch each device allocates {n_bytes} more, in which partial sums meet. No line of "
    "llama.cpp's log has them; the upper end of a range here has, an exact compute buffer has not."
)


def closed_form(request: MemoryRequest) -> MemoryPlan:
    """The plan by formulas, of a request that `has_closed_form`. Raises UnsupportedArchitecture without a formula."""
    compute = compute_bytes(request.model, request.settings, request.n_outputs, bool(request.gpus))
    if compute is None or request.cache_bytes is None:
        raise UnsupportedArchitecture(
            f"{request.model.name} ({request.model.architecture}) lacks a tensor that its graph needs, or its header "
            "has a number that cannot be. llama.cpp would not load it: look for another file."
        )
    return assembled(request, CLOSED_FORM, request.layer_devices(), request.cache_bytes, compute)


def assembled(
    request: MemoryRequest,
    method: str,
    layers: Sequence[str],
    cache_bytes: Sequence[int],
    compute: Mapping[str, int | None],
    notes: tuple[str, ...] = (),
    ranges: dict[str, tuple[int, int]] | None = None,
) -> MemoryPlan:
    """A plan from the device of each layer, the bytes of each block's cache, and the compute bytes of each device."""
    rows = _layer_rows(request, layers, cache_bytes)
    devices = {name: _device_bytes(request, name, rows, compute.get(name, 0)) for name in request.device_names}
    held = host_weights(request.model, layers, request.settings, request.gpus, request.processor, request.moved)
    in_place = held.get(request.processor or NOT_REPACKED) or held[NOT_REPACKED]
    devices[HOST_DEVICE] = replace(devices[HOST_DEVICE], weights_bytes=in_place.n_bytes)
    return MemoryPlan(
        request.model.card(),
        request.rounded_settings,
        method,
        devices,
        rows,
        request.aborts
        + notes
        + refused_note(request.model, request.refused, request.gpus)
        + _encoder_note(request)
        + request.model.beside
        + _sums_note(request)
        + _copies_note(held)
        + (NO_FLASH_NOTE,) * request.lost_flash_attention
        + (AS_CUDA_NOTE,) * request.is_taken_for_cuda,
        ranges or {},
        held,
        request.moved,
        bool(request.aborts),
        request.planned_for,
    )


def _encoder_note(request: MemoryRequest) -> tuple[str, ...]:
    n_bytes = request.model.encoder_bytes
    return (ENCODER_NOTE.format(n_bytes=bytes_text(n_bytes)),) * bool(n_bytes)


def _device_bytes(request: MemoryRequest, name: str, rows: Sequence[LayerBytes], compute: int | None) -> DeviceBytes:
    return DeviceBytes(
        sum(row.weights_on(name) for row in rows),
        sum(row.cache_by_device.get(name, 0) for row in rows),
        compute,
        output_bytes(request.model, request.settings) if name == HOST_DEVICE else 0,
    )


def _layer_rows(request: MemoryRequest, layers: Sequence[str], cache_bytes: Sequence[int]) -> tuple[LayerBytes, ...]:
    """The input, each block, the output; tensors that every device copies count with the device's first block."""
    input_bytes, weights, shared = request.weights_of_layers
    tied = tied_output_bytes(request.model) if layers[-1] != HOST_DEVICE and OUTPUT_MATRIX not in request.moved else 0
    rows = [_without_moved(request, -1, LayerBytes("input", HOST_DEVICE, input_bytes, HOST_DEVICE, 0))]
    for i, (device, cache) in enumerate(zip(layers[:-1], cache_bytes, strict=True)):
        copied = shared if device not in layers[:i] else 0
        cache_device = device if request.settings.offload_kqv else HOST_DEVICE
        whole = LayerBytes(f"block {i}", device, weights[i] + copied, cache_device, cache, i)
        rows.append(_shared_out(request, i, _without_moved(request, i, whole), copied))
    n_layer, output = len(weights) - 1, LayerBytes("output", layers[-1], weights[-1] + tied, layers[-1], 0)
    return (*rows, _shared_out(request, n_layer, _without_moved(request, n_layer, output), tied))


def _without_moved(request: MemoryRequest, layer: int, whole: LayerBytes) -> LayerBytes:
    """A layer with the bytes that overrides put elsewhere told apart."""
    moved = dict(request.bytes_moved.get(layer, {}))
    return replace(whole, weights_bytes=whole.weights_bytes - sum(moved.values()), moved_bytes=moved)


def _shared_out(request: MemoryRequest, layer: int, row: LayerBytes, mirrored: int) -> LayerBytes:
    """A layer as the devices share it, where they share every matrix; `mirrored` bytes are on each of them."""
    if not request.shares_tensors or row.device == HOST_DEVICE:
        return row
    tensors = [
        t
        for t in loaded_tensors(request.model)
        if t.name not in request.moved
        and (at := layer_of(t, request.model)) is not None
        and min(at, layers_counted(request.model)) == layer
    ]
    weights = split_weights(request.tensor_split, tensors)
    weights.update(dict.fromkeys(request.device_names[1:], mirrored))
    on_devices = row.kv_cache_device != HOST_DEVICE and row.index is not None
    parts = request.tensor_split.cache(layer, request.settings) if on_devices else ()
    return replace(
        row,
        weights_bytes=weights.total(),
        shared_weights=dict(weights),
        shared_cache={f"gpu{i}": n_bytes for i, n_bytes in enumerate(parts)},
    )


def _sums_note(request: MemoryRequest) -> tuple[str, ...]:
    """A note on the buffers that are allocated with the first batch, where devices share every matrix."""
    return (SUMS_NOTE.format(n_bytes=bytes_text(request.sums_bytes)),) if request.sums_bytes else ()


def _copies_note(held: dict[str, HostWeights]) -> tuple[str, ...]:
    """A note on second copies of host weights, if there can be any."""
    most = max((weights.repacked_bytes for weights in held.values() if weights.mapped), default=0)
    note = UNKNOWN_PROCESSOR_NOTE if len(held) > 1 else REPACKED_NOTE
    return (note.format(n_bytes=bytes_text(most)),) if most else ()
