"""The most tokens per second that a card's bandwidth allows: the bytes that one token needs, and a division.

The other way round, a rate and a bandwidth give the most bytes that a token can have needed.
"""

from __future__ import annotations

from inferlab.errors import InvalidSettings
from inferlab.machine import HOST_DEVICE
from inferlab.model.gguf import Model, Tensor
from inferlab.prediction.cost import bytes_read
from inferlab.prediction.fit import Fit
from inferlab.prediction.memory.cache import CacheLayer, cache_layers, cell_bytes
from inferlab.prediction.memory.placement import EMBEDDING, OUTPUT_MATRIX, layer_of, loaded_tensors
from inferlab.prediction.memory.plan import SHARED, MemoryPlan
from inferlab.prediction.memory.recurrent import STATE_BYTES
from inferlab.units import bytes_text


def decode_bound(fit: Fit, model: Model, bandwidth_bytes_per_second: float, depth: int = 0) -> float | None:
    """Tokens per second of one sequence that the bandwidth of the cards' memory allows; None without a layer on a card.

    bandwidth / bytes that the cards read for one token on top of `depth` cells in use

    It is a bound, because each token needs every one of these bytes once, and no memory is read faster. Arithmetic,
    launches, activations and transfers only add time, and so does the host's part of the layers, which is left out;
    in unified memory, and without any card, the host's bytes count too. Cards that share the layers work one after
    another, so their bytes add up, at one bandwidth. Several sequences in one batch share a reading of the weights and
    may together be faster, and so may tokens that are drafted and checked together.
    Raises UnsupportedArchitecture for a KV cache without a formula, or experts whose used number is not known.
    """
    needed = decode_bytes(fit.plan, model, depth, _reading(fit))
    return bandwidth_bytes_per_second / needed if needed else None


def decode_bytes(plan: MemoryPlan, model: Model, depth: int, devices: frozenset[str]) -> int:
    """Bytes of weights and cache that these devices read for one token on top of `depth` cells.

    Weights as in `cost.bytes_read`: of experts only those used, of an embedding a row. Of the cache the cells in use,
    in a layer with a window at most that many, and the state of a recurrent layer. Masked cells, which some kernels
    read too, are left out.
    """
    blocks = [row for row in plan.layers if row.index is not None]
    read = bytes_read(model)
    weights = sum(read[tensor.name] for tensor in loaded_tensors(model) if _is_read(tensor, model, plan, devices))
    settings, n_cells = plan.settings, depth + 1
    cache = sum(
        _layer_bytes(layer, n_cells, settings.type_k, settings.type_v)
        for row, layer in zip(blocks, cache_layers(model), strict=True)
        if row.kv_cache_device in devices
    )
    return weights + cache


def token_bytes(model: Model, type_k: str = "f16", type_v: str = "f16", depth: int = 0) -> int:
    """Bytes of weights and cache that one token on top of `depth` cells needs, wherever they lie.

    Raises UnsupportedArchitecture for a KV cache without a formula, or experts whose used number is not known.
    """
    return sum(bytes_read(model).values()) + sum(
        _layer_bytes(layer, depth + 1, type_k, type_v) for layer in cache_layers(model)
    )


def _layer_bytes(layer: CacheLayer, n_cells: int, type_k: str, type_v: str) -> int:
    """Bytes of one layer's cells in use, and of its recurrent state, which every token reads whole."""
    in_use = min(n_cells, layer.window or n_cells) * cell_bytes(layer, type_k, type_v)
    return in_use + STATE_BYTES * layer.state_values


def active_text(model: Model) -> str:
    """Of a mixture of experts the weights that one token reads beside all of them, in a sentence; else empty."""
    n_expert, used = model.number("expert_count"), model.number("expert_used_count")
    if not n_expert or not used:
        return ""
    read, every = bytes_text(sum(bytes_read(model).values())), bytes_text(model.tensor_bytes)
    return f"One token uses {used} of {n_expert} experts in each layer: it reads {read} of the {every} of weights."


def most_token_bytes(bandwidth_bytes_per_second: float, tokens_per_second: float) -> float:
    """Most bytes of weights and cache that each token of one sequence can have needed at this rate.

    bandwidth / rate, as in `decode_bound`. Raises InvalidSettings for a rate that is not positive.
    """
    if tokens_per_second <= 0:
        raise InvalidSettings(f"tokens_per_second={tokens_per_second} is no rate. It must be more than 0.")
    return bandwidth_bytes_per_second / tokens_per_second


def _reading(fit: Fit) -> frozenset[str]:
    """The devices whose reading counts: the cards; all where memory is shared or there is no card."""
    cards = frozenset(fit.plan.devices) - {HOST_DEVICE}
    return frozenset(fit.plan.devices) if SHARED in fit.free_bytes or not cards else cards


def _is_read(tensor: Tensor, model: Model, plan: MemoryPlan, devices: frozenset[str]) -> bool:
    """Whether these devices read a tensor for a token; an embedding that is the output matrix lies with the output."""
    if tensor.name in plan.moved:
        return plan.moved[tensor.name] in devices
    layers, layer = plan.layer_devices, layer_of(tensor, model)
    if layer is None:
        return not devices.isdisjoint(layers[:-1])
    tied = tensor.name == EMBEDDING and all(other.name != OUTPUT_MATRIX for other in model.tensors)
    device = layers[-1] if tied else HOST_DEVICE if layer < 0 else layers[min(layer, model.n_layer)]
    return device in devices
