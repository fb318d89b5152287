"""The memory plan as a bound: least and most compute bytes of each device, where nothing knows them exactly."""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.machine import HOST_DEVICE
from inferlab.model.architecture_table import architecture
from inferlab.prediction.memory.assembly import assembled
from inferlab.prediction.memory.cache import cache_layers, layer_bytes
from inferlab.prediction.memory.compute import compute_bytes, embedded_bytes, head_bytes, most_compute_bytes
from inferlab.prediction.memory.placement import tied_output_bytes
from inferlab.prediction.memory.plan import BOUND, PARTIAL, MemoryPlan
from inferlab.prediction.memory.request import COPIES_IN_FLIGHT, MemoryRequest
from inferlab.prediction.memory.simulated import (
    fully_offloaded,
    host_attends_for_devices,
    moves_neighbouring_stages,
    simulate_on_stand_in,
    simulated_caches,
)
from inferlab.settings import WITHOUT_OVERRIDES, Settings


def bound(request: MemoryRequest) -> MemoryPlan:
    """The plan with least and most compute bytes for each device; weights and cache are exact.

    The bytes of a device stay unknown where neither the simulation nor a closed form knows its most.
    Raises UnsupportedArchitecture where even the cache has no formula and nothing can be simulated.
    """
    request.require_verified()
    layers = request.layer_devices()
    cache_bytes = request.cache_bytes or simulated_caches(request, simulate_on_stand_in(request))
    ranges = compute_ranges(request, layers, cache_bytes)
    unknown = [name for name in request.device_names if name not in ranges]
    notes = (bound_reason(request),) * bool(ranges) + (unknown_reason(request, unknown),) * bool(unknown)
    method = BOUND if ranges else PARTIAL
    return assembled(request, method, layers, cache_bytes, dict.fromkeys(request.device_names), notes, ranges)


def compute_ranges(
    request: MemoryRequest, layers: Sequence[str], cache_bytes: Sequence[int]
) -> dict[str, tuple[int, int]]:
    """Least and most compute bytes of each device whose most is known.

    Least: what one batch needs at once on any card. Most: the compute bytes of full offload plus all weights and
    cache that can be staged on the card. The compute bytes of full offload and of the host alone are simulated, or
    come from the closed form, or are a bound themselves, where llama.cpp is not asked.
    """
    full_offload, carried = compute_of_full_offload(request), carried_bytes(request)
    if full_offload is None or carried is None:
        return {}
    copied = staged_bytes(request, layers, cache_bytes) + f16_copy_bytes(request) + carried
    cards = [f"gpu{i}" for i in range(len(request.gpus))]
    ranges = {name: compute_range_of(request, name, full_offload, layers, copied) for name in cards}
    alone = compute_of_host_alone(request)
    if alone is None:
        return ranges
    most = alone[HOST_DEVICE] + (full_offload.get(HOST_DEVICE, 0) if request.gpus else 0)
    return {HOST_DEVICE: (embedded_bytes(request.model, request.settings), most), **ranges}


def compute_of_full_offload(request: MemoryRequest) -> dict[str, int] | None:
    """Compute bytes with everything on one device, or more; None where nothing tells them."""
    if request.can_simulate:
        return simulate_on_stand_in(request).compute_bytes
    return compute_by_formula(request, fully_offloaded(request), on_device=True)


def compute_of_host_alone(request: MemoryRequest) -> dict[str, int] | None:
    """Compute bytes with everything on the host, or more; None where nothing tells them."""
    everything = {"n_gpu_layers": -1, "tensor_split": None, "main_gpu": 0}
    alone = request.settings.but(devices=(), rpc_servers=(), **everything, **WITHOUT_OVERRIDES)
    if not request.can_simulate:
        return compute_by_formula(request, alone, on_device=False)
    from inferlab.engine import dry_run

    return dry_run.simulate(request.model, alone, request.n_outputs_max).compute_bytes


def compute_by_formula(request: MemoryRequest, settings: Settings, on_device: bool) -> dict[str, int] | None:
    """Compute bytes in closed form, else bytes that suffice; None where no formula holds."""
    asked = request.model, settings, request.n_outputs, on_device
    return compute_bytes(*asked) or most_compute_bytes(*asked)


def compute_range_of(
    request: MemoryRequest, name: str, full_offload: dict[str, int], layers: Sequence[str], copied_bytes: int
) -> tuple[int, int]:
    """Least and most compute bytes of one card, see `compute_ranges`."""
    name = "gpu0" if request.shares_tensors else name  # to the layers the cards are one
    head = head_bytes(request.model, request.n_outputs) if layers[-1] == name else 0
    simple = architecture(request.model.architecture).simple_compute
    gated = simple and not request.model.number("expert_count") and not request.moved
    embedded = embedded_bytes(request.model, request.settings)
    n_ff = request.model.n_ff or 0
    feed_forward = 3 * n_ff * embedded // request.model.n_embd if gated and name in layers[:-2] else 0
    least = max(feed_forward, head)
    most = full_offload["gpu0"] * (COPIES_IN_FLIGHT if len(request.gpus) > 1 and not request.shares_tensors else 1)
    return least, most + copied_bytes + request.sums_bytes


def staged_bytes(request: MemoryRequest, layers: Sequence[str], cache_bytes: Sequence[int]) -> int:
    """Bytes of host weights and cache that a card copies in for a batch: the largest block, and the output.

    Of a cache on the host two layers: one that is in use, and the next.
    """
    weights = request.weights_of_layers[1]
    blocks = zip(layers[:-1], weights, cache_bytes, strict=False)
    most = max((w + cache for device, w, cache in blocks if device == HOST_DEVICE), default=0)
    most = max([most, *(moved[HOST_DEVICE] for moved in request.bytes_moved.values())])
    most += weights[-1] + tied_output_bytes(request.model) if layers[-1] == HOST_DEVICE else 0
    return most if request.settings.offload_kqv else most + 2 * max(cache_bytes, default=0)


def f16_copy_bytes(request: MemoryRequest) -> int:
    """Bytes of one layer's keys and values as f16: CUDA's flash attention converts a quantized cache to f16."""
    if not request.cache_is_quantized:
        return 0
    as_f16 = request.settings.but(type_k="f16", type_v="f16")
    return max(layer_bytes(layer, as_f16) for layer in cache_layers(request.model))


def carried_bytes(request: MemoryRequest) -> int | None:
    """Bytes of one batch that go to moved tensors and come back: queries, keys, values, and results of experts.

    (2 (D + q + kv) + used experts * D) ub * 4; no load with moved tensors needed more. None where the header does
    not have one number for all layers.
    """
    if not request.moved:
        return 0
    model, used = request.model, request.model.number("expert_used_count") or 0
    n_head, n_head_kv, head_dim = model.n_head, model.n_head_kv, model.head_dim_k
    if n_head is None or n_head_kv is None or head_dim is None:
        return None
    width = (2 + used) * model.n_embd + 2 * (n_head + n_head_kv) * head_dim
    return width * embedded_bytes(model, request.settings) // model.n_embd


def bound_reason(request: MemoryRequest) -> str:
    """Why only a bound can be given."""
    if host_attends_for_devices(request):
        return (
            "With offload_kqv=False and without flash attention the host computes attention for layers that lie on "
            "a device. llama.cpp's simulation forgets that, so compute lies between the two ends given."
        )
    if moves_neighbouring_stages(request):
        return (
            "Overrides move stages that follow each other, such as a block's attention and its feed-forward "
            "network. llama.cpp's simulation miscounts that, so compute lies between the two ends given."
        )
    cards = ", ".join(device.name for device in request.gpus)
    if not request.gpus or (request.all_on_one_device and not request.cache_is_quantized):
        return (
            f"{request.model.name} ({request.model.architecture}) has no closed form for its compute buffer under "
            f"these settings, and {request.no_simulation}: it lies between the two ends given."
        )
    cause = "a quantized cache" if request.all_on_one_device else "work shared with the host or another card"
    why = "is not on this machine" if request.simulate else "was not asked"
    return (
        f"With {cause} the compute buffer depends on the card's backend, and {cards} {why}: "
        "the buffer is at least the smaller and at most the larger size shown."
    )


def unknown_reason(request: MemoryRequest, devices: Sequence[str]) -> str:
    """Why the compute buffers of some devices are unknown."""
    return (
        f"{request.model.name} ({request.model.architecture}) has no closed form for the compute buffer of "
        f"{', '.join(devices)} under these settings, and {request.no_simulation}. Weights and KV cache are exact."
    )
