"""Tensors that a device refuses, so that llama.cpp leaves them in host memory, and caches that end a load.

llama.cpp asks a device about each weight, by the operation that needs it, for 512 tokens (weight_buft_supported,
llama-model-loader.cpp:927-1072). A refused weight goes to the host; no line of the usual log says so. A refused cache
aborts the load, because it has its place already (ggml-backend.cpp:941).

    refused  the matrix, its input or its product for 512 tokens is larger than the device's largest tensor
             or, in Vulkan, a scan other than Mamba-2's with 128 or 256 states (ggml-vulkan.cpp:15881-15918)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from inferlab.machine import HOST_DEVICE, Device
from inferlab.model.dimensions import layers_counted
from inferlab.model.ggml_types import row_bytes
from inferlab.model.gguf import Model, Tensor
from inferlab.model.repacking import LOOKED_UP
from inferlab.prediction.memory.cache import CacheLayer, cache_layers, cells, windowed_cells
from inferlab.prediction.memory.placement import EMBEDDING, OUTPUT_MATRIX, layer_of, loaded_tensors, tied_output_bytes
from inferlab.settings import Settings
from inferlab.units import bytes_text, count_text

ASKED_TOKENS = 512
F32 = 4
SCANNED = re.compile(r"blk\.\d+\.ssm_a")
SCANNED_STATES, SCANNED_HEADS = (128, 256), 16
"""Sizes of a state, and a divisor of a head's width, that Vulkan's scan takes."""


def refuses(device: Device, tensor: Tensor, model: Model) -> bool:
    """Whether a device refuses the operation that needs a tensor."""
    if device.backend == "Vulkan" and SCANNED.fullmatch(tensor.name) and _is_scanned(tensor, model):
        return not _scans(tensor, model)
    if device.largest_tensor_bytes is None or len(tensor.shape) < 2:
        return False
    return max(tensor.n_bytes, batch_bytes(tensor, model)) > device.largest_tensor_bytes


def batch_bytes(tensor: Tensor, model: Model) -> int:
    """Bytes of the larger of input and product of a matrix, for the tokens that llama.cpp asks about.

    batch_bytes = 4 * 512 * max(n_cols, n_rows) * experts that a token uses
    """
    n_cols, n_rows, *others = tensor.shape
    if tensor.name.split(".")[0] in LOOKED_UP:
        return F32 * ASKED_TOKENS * n_cols
    used = (model.number("expert_used_count") or 1) if "_exps" in tensor.name else prod(others)
    return F32 * ASKED_TOKENS * used * max(n_cols, n_rows)


def _is_scanned(tensor: Tensor, model: Model) -> bool:
    """Whether it is a scan's: a delta net multiplies with its row of numbers, which is PLaMo 2's shape, too."""
    return len(tensor.shape) > 1 or model.architecture == "plamo2"


def _scans(tensor: Tensor, model: Model) -> bool:
    """Whether Vulkan scans with this matrix: one number for each head in Mamba-2, one for each state in Mamba-1."""
    n_state, (one, n_head) = model.number("ssm.state_size"), (*tensor.shape, 1)[:2]
    width = (model.number("ssm.inner_size") or 0) // n_head
    return one == 1 and n_state in SCANNED_STATES and not width % SCANNED_HEADS


def refused_tensors(model: Model, layers: Sequence[str], gpus: Sequence[Device]) -> dict[str, str]:
    """Tensors that their layer's device refuses, by name, with "host", where they are; an embedding that is the output
    matrix too under the name of that.

    layers  the device of each block and, last, of the output
    """
    if not any(_has_limits(gpu) for gpu in gpus):
        return {}
    by_name = {f"gpu{i}": gpu for i, gpu in enumerate(gpus)}
    found = {}
    for tensor, layer in layer_tensors(model):
        device = by_name.get(layers[layer])
        if device and refuses(device, tensor, model):
            found[tensor.name] = HOST_DEVICE
    return found


def layer_tensors(model: Model) -> Iterator[tuple[Tensor, int]]:
    """Each tensor of a block or of the output, with its layer: the last layer is the output, and an embedding that is
    the output matrix too is there under the name of that."""
    last = layers_counted(model)
    for tensor in loaded_tensors(model):
        layer = layer_of(tensor, model)
        if tensor.name == EMBEDDING and tied_output_bytes(model):
            tensor, layer = replace(tensor, name=OUTPUT_MATRIX), last
        if layer is not None and layer >= 0:
            yield tensor, min(layer, last)


def _has_limits(gpu: Device) -> bool:
    return gpu.largest_tensor_bytes is not None or gpu.backend == "Vulkan"


def refused_note(model: Model, refused: dict[str, str], gpus: Sequence[Device]) -> tuple[str, ...]:
    """What of the weights is on the host although its layer is on a device; empty where nothing is."""
    if not refused:
        return ()
    sizes = {tensor.name: tensor.n_bytes for tensor in model.tensors} | (
        {OUTPUT_MATRIX: tied} if (tied := tied_output_bytes(model)) else {}
    )
    first, total = next(iter(refused)), sum(sizes[name] for name in refused)
    named = first if len(refused) == 1 else f"{first} and {count_text(len(refused) - 1, 'other tensor')}"
    limits = (bytes_text(gpu.largest_tensor_bytes) for gpu in gpus if gpu.largest_tensor_bytes is not None)
    limit = f", which takes no tensor or product above {next(limits)}" if any(map(_has_size, gpus)) else ""
    return (
        f"In host memory, although the layer is on the device: {named}, {bytes_text(total)}. {gpus[0].backend} refuses "
        f"that on {gpus[0].name}{limit}. llama.cpp's line about offloaded layers does not show it.",
    )


def _has_size(gpu: Device) -> bool:
    return gpu.largest_tensor_bytes is not None


def too_large_cache(model: Model, settings: Settings, layers: Sequence[str], gpus: Sequence[Device]) -> tuple[str, ...]:
    """A note on a load that llama.cpp aborts since one layer's cache is larger than its device's largest tensor."""
    if not settings.offload_kqv or not any(map(_has_size, gpus)):
        return ()
    limits = {f"gpu{i}": gpu.largest_tensor_bytes for i, gpu in enumerate(gpus)}
    for i, layer in enumerate(cache_layers(model)):
        limit, n_bytes = limits.get(layers[i]), largest_cache_tensor(layer, settings)
        if limit is not None and n_bytes > limit:
            return (
                f"llama.cpp would abort this load: the cache of layer {i} has a tensor of {bytes_text(n_bytes)}, and "
                f"{layers[i]} takes none above {bytes_text(limit)}. Ask for a shorter context or a smaller type of "
                "cache, or leave the cache in host memory (offload_kqv=False).",
            )
    return ()


def largest_cache_tensor(layer: CacheLayer, settings: Settings) -> int:
    """Bytes of a layer's keys or of its values, whichever are more: each is one tensor for all streams."""
    streams, _ = cells(settings)
    n_cells = streams * windowed_cells(settings, layer.window)
    kinds = (settings.type_k, layer.key_width), (settings.type_v, layer.value_width)
    return max(n_cells * row_bytes(kind, width) for kind, width in kinds)
