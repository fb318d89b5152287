"""Computes how llama.cpp holds the weights of the host: in place in the mapped file, and as repacked copies.

Tensors that are used in place share one buffer for each file. With mapping it is the part of the file

    span = end of the last of them - start of the first,

whatever lies between (llama-model-loader.cpp:1449 and llama-model.cpp:1860); without, their aligned sum.
Tensors that the processor's kernels want rearranged lie in other buffers (`model.repacking`), so that the span ends
before such a tensor where it is the last of the file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from inferlab.machine import HOST_DEVICE, Device
from inferlab.model.gguf import DEFAULT_ALIGNMENT, Model, Tensor
from inferlab.model.repacking import LOOKED_UP, NOT_REPACKED, ROWS, repacked_bytes
from inferlab.prediction.memory.placement import EMBEDDING, OUTPUT_MATRIX, layer_of, loaded_tensors
from inferlab.prediction.memory.refused import refuses
from inferlab.settings import Settings

MAPPED_MODES = ("auto", "mmap", "mmap_mlock")
NO_HOST_BUFFER = frozenset(["RPC", "Metal", "MTL", "OpenCL", "WebGPU"])
"""Backends without a host buffer; beside any other, host weights that it takes stay as they are, but for no_host."""


@dataclass(frozen=True)
class HostWeights:
    """Bytes of the host's weights on one kind of processor.

    in_place_bytes  the mapped part of the file, or the buffer of the tensors that are used as they are
    repacked_bytes  buffers of the rearranged ones
    mapped          whether the file is mapped: then the repacked buffers are second copies
    """

    in_place_bytes: int
    repacked_bytes: int
    mapped: bool

    @property
    def n_bytes(self) -> int:
        """Bytes without second copies."""
        return self.in_place_bytes + (0 if self.mapped else self.repacked_bytes)


def host_weights(
    model: Model,
    layers: Sequence[str],
    settings: Settings,
    gpus: Sequence[Device],
    processor: str | None,
    moved: Mapping[str, str],
) -> dict[str, HostWeights]:
    """The host's weights by kind of processor: one entry, or one for each kind where `processor` is None.

    layers  the device of each block and, last, of the output
    moved   the device of each tensor that is elsewhere, by its name
    """
    mapped = settings.load_mode in MAPPED_MODES
    placed = _tensors_on_host(model, layers, moved)
    pinning = None if settings.no_host else next((gpu for gpu in gpus if gpu.backend not in NO_HOST_BUFFER), None)
    as_they_are = {tensor.name for tensor in placed if pinning and not refuses(pinning, tensor, model)}
    if not settings.use_extra_bufts or as_they_are >= {tensor.name for tensor in placed if not _is_looked_up(tensor)}:
        kinds: Sequence[str] = (NOT_REPACKED,)
    else:
        kinds = (processor,) if processor else tuple(ROWS)
    return {kind: _held(placed, kind, mapped, as_they_are) for kind in kinds}


def _is_looked_up(tensor: Tensor) -> bool:
    return tensor.name.split(".")[0] in LOOKED_UP


def _tensors_on_host(model: Model, layers: Sequence[str], moved: Mapping[str, str]) -> tuple[Tensor, ...]:
    """The host's tensors; a tied embedding a second time, under the output matrix's name, where the output is there."""
    n_layer, has_block = len(layers) - 1, HOST_DEVICE in layers[:-1]

    def is_on_host(tensor: Tensor) -> bool:
        if tensor.name in moved:
            return moved[tensor.name] == HOST_DEVICE
        layer = layer_of(tensor, model)
        return has_block if layer is None else layer < 0 or layers[min(layer, n_layer)] == HOST_DEVICE

    found = [tensor for tensor in loaded_tensors(model) if is_on_host(tensor)]
    output = moved.get(OUTPUT_MATRIX, layers[-1])
    tied = output == HOST_DEVICE and all(tensor.name != OUTPUT_MATRIX for tensor in model.tensors)
    copies = [replace(tensor, name=OUTPUT_MATRIX) for tensor in found if tied and tensor.name == EMBEDDING]
    return (*found, *copies)


def _held(tensors: Sequence[Tensor], kind: str, mapped: bool, as_they_are: Collection[str]) -> HostWeights:
    """Bytes of the host's tensors on one kind of processor; `as_they_are` lie in a card's pinned memory, if not mapped.

    An embedding that is the output matrix, too, is stored twice where only one of the two is pinned.
    """
    repacked = {(t.name, t.offset): 0 if t.name in as_they_are else repacked_bytes(t, kind) for t in tensors}
    own = {(t.part, t.offset, mapped or t.name in as_they_are): t for t in tensors if not repacked[t.name, t.offset]}
    in_place = own.values()
    total = _span_bytes(in_place) if mapped else sum(_aligned(t.n_bytes) for t in in_place)
    return HostWeights(total, sum(repacked.values()), mapped)


def _span_bytes(tensors) -> int:
    """Bytes from the first to the last tensor, in each file."""
    ends: dict[int, tuple[int, int]] = {}
    for tensor in tensors:
        first, last = ends.get(tensor.part, (tensor.offset, 0))
        ends[tensor.part] = min(first, tensor.offset), max(last, tensor.offset + tensor.n_bytes)
    return sum(last - first for first, last in ends.values())


def _aligned(n_bytes: int) -> int:
    """Rounded up to 32 bytes, as ggml places tensors in a buffer (TENSOR_ALIGNMENT, ggml-impl.h:44)."""
    return -(-n_bytes // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT
