"""Computes which device has which layer, with the layer's weights and cache.

n_gpu_layers counts from the end: the output layer first, then the last block, and so on. The token embedding always
stays on the host; a model whose output matrix is its embedding has a second copy on the device.
Overrides move single tensors, found by their names, to another device; the cache stays with the layer.
Layers that predict further tokens are placed, but llama.cpp does not load their weights unless it is asked to.
Sources: llama-model.cpp:1556-1614, 2927 (load_mtp), llama-model-loader.cpp:1162-1261, llama-arch.cpp:728-1008.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate

from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_BUFFER, HOST_DEVICE, Device
from inferlab.model.dimensions import layers_counted, trunk_layers
from inferlab.model.gguf import Model, Tensor
from inferlab.model.repacking import LOOKED_UP
from inferlab.settings import EXPERTS, Settings

BLOCK = re.compile(r"(?:enc\.|dec\.)?blk\.(\d+)\.")
# Outside of the blocks, but with the first one's device: LLM_TENSOR_LAYER_REPEATING without a number in the name.
FIRST_BLOCK_TENSORS = frozenset(["token_embd_norm", "per_layer_model_proj", "per_layer_proj_norm", "hrm"])
UNUSED = re.compile(r"masked_embd_|.*\.cross_attn_rel_b\.")  # GGML_OP_NONE
NORM_NAMED_TOKEN_EMBD_NORM = "lfm2"  # its output norm is called token_embd_norm
TENSORS_ON_EVERY_DEVICE = frozenset(["rope_freqs", "rope_factors_long", "rope_factors_short"])
OUTPUT_MATRIX, EMBEDDING = "output.weight", "token_embd.weight"


def loaded_tensors(model: Model) -> tuple[Tensor, ...]:
    """The tensors that llama.cpp loads: all but those of layers that predict further tokens, and unused ones."""
    ahead = range(trunk_layers(model), model.n_layer) if model.number("nextn_predict_layers") else range(0)
    ahead = ahead if ahead.start else range(0)  # a draft, of such layers alone

    def is_loaded(tensor: Tensor) -> bool:
        block = BLOCK.match(tensor.name) if ahead else None
        return not UNUSED.match(tensor.name) and not (block and int(block[1]) in ahead)

    return tuple(filter(is_loaded, model.tensors))


def placed_layers(n_layer: int, settings: Settings, shares: Sequence[float]) -> tuple[str, ...]:
    """The device of each block and, last, of the output: "host", "gpu0", ...; `shares` has one number per device.

    Contiguous slices in proportion to `shares` (tensor_split, else free memory), compared in 32-bit floats as
    llama.cpp compares them.
    """
    n_offloaded = n_layer + 1 if settings.n_gpu_layers < 0 else min(settings.n_gpu_layers, n_layer + 1)
    if not shares or not n_offloaded:
        return (HOST_DEVICE,) * (n_layer + 1)
    ends = list(accumulate((_float32(share) for share in shares), lambda total, share: _float32(total + share)))
    ends = [_float32(end / ends[-1]) for end in ends]
    devices = (bisect_right(ends, _float32(i / n_offloaded)) for i in range(n_offloaded))
    return (HOST_DEVICE,) * (n_layer + 1 - n_offloaded) + tuple(f"gpu{device}" for device in devices)


def device_overrides(settings: Settings, gpus: Sequence[Device]) -> tuple[tuple[str, str], ...]:
    """Each pattern of the settings' overrides with its device: "host", "gpu0", ...; as `engine.devices` knows them."""
    known = {HOST_BUFFER: HOST_DEVICE} | {device.name: f"gpu{i}" for i, device in enumerate(gpus)}
    return tuple((pattern, known[buffer.split("[")[0]]) for pattern, buffer in settings.tensor_overrides)


def moved_tensors(model: Model, layers: Sequence[str], overrides: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Tensors that an override puts on another device than their layer's, by name, with that device.

    layers     the device of each block and, last, of the output
    overrides  patterns and devices, of which the first that is found in a name counts
    Raises InvalidSettings for a tensor of which there is more than one copy: no plan of that was compared with a load.
    """
    found, patterns = {}, [(re.compile(pattern), device) for pattern, device in overrides]
    for tensor in loaded_tensors(model) if overrides else ():
        device = next((device for pattern, device in patterns if pattern.search(tensor.name)), None)
        if device is None:
            continue
        layer = layer_of(tensor, model)
        if layer is None or (tensor.name == EMBEDDING and tied_output_bytes(model)):
            raise InvalidSettings(
                f"override_tensor: {tensor.name} of {model.name} is in several places, and moving it "
                "cannot be planned. Give a pattern that is not found in its name."
            )
        if device != (HOST_DEVICE if layer < 0 else layers[min(layer, layers_counted(model))]):
            found[tensor.name] = device
    return found


def bytes_moved(model: Model, moved: Mapping[str, str]) -> dict[int, Counter[str]]:
    """Bytes of moved tensors by the layer that they belong to (see `layer_of`) and the device that has them."""
    by_layer: dict[int, Counter[str]] = {}
    for tensor in loaded_tensors(model):
        layer = layer_of(tensor, model)
        if tensor.name in moved and layer is not None:
            by_layer.setdefault(min(layer, layers_counted(model)), Counter())[moved[tensor.name]] += tensor.n_bytes
    return by_layer


def has_experts(model: Model) -> bool:
    """Whether a model has the matrices that n_cpu_moe moves."""
    return any(re.search(EXPERTS, tensor.name) for tensor in model.tensors)


def layer_of(tensor: Tensor, model: Model) -> int | None:
    """The block of a tensor: -1 for the input, `layers_counted` for the output, None if every device has a copy."""
    if block := BLOCK.match(tensor.name):
        return int(block[1])
    stem = tensor.name.split(".")[0]
    if stem in TENSORS_ON_EVERY_DEVICE:
        return None
    if stem in FIRST_BLOCK_TENSORS and not model.architecture.startswith(NORM_NAMED_TOKEN_EMBD_NORM):
        return 0
    return -1 if stem in LOOKED_UP else layers_counted(model)


def weights_of_layers(model: Model) -> tuple[int, tuple[int, ...], int]:
    """Bytes of the input, of each block and the output, and of the tensors that every device with a block copies."""
    n_layer = layers_counted(model)
    totals, shared = [0] * (n_layer + 2), 0
    for tensor in loaded_tensors(model):
        layer = layer_of(tensor, model)
        if layer is None:
            shared += tensor.n_bytes
        else:
            totals[min(layer, n_layer)] += tensor.n_bytes
    return totals[-1], tuple(totals[:-1]), shared


def tied_output_bytes(model: Model) -> int:
    """Bytes of the embedding where it is also the output matrix: the size of its second copy; else 0."""
    tensors = {tensor.name: tensor.n_bytes for tensor in model.tensors}
    return 0 if OUTPUT_MATRIX in tensors else tensors.get(EMBEDDING, 0)


def _float32(value: float) -> float:
    """The nearest 32-bit float."""
    return struct.unpack("<f", struct.pack("<f", value))[0]
