"""The memory plan as a bound: least and most compute bytes of each device, where nothing knows them exactly."""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.machine import HOST_DEVICE
from inferlab.model.dimensions import heads_of
from inferlab.prediction.memory.assembly import assembled
from inferlab.prediction.memory.cache import cache_layers, layer_bytes
from inferlab.prediction.memory.compute import (
    compute_range,
    embedded_bytes,
    fused_bytes,
    head_bytes,
    is_exact,
    least_of_layers,
    outputs_reserved,
)
from inferlab.prediction.memory.kept import kept_by_graph
from inferlab.prediction.memory.placement import tied_output_bytes
from inferlab.prediction.memory.plan import BOUND, PARTIAL, MemoryPlan
from inferlab.prediction.memory.request import COPIES_IN_FLIGHT, MemoryRequest
from inferlab.prediction.memory.shared import OFF_WHOLE, shared_ranges
from inferlab.prediction.memory.simulated import (
    fully_offloaded,
    host_attends_for_devices,
    moves_neighbouring_stages,
    simulate_on_stand_in,
    simulated_caches,
)
from inferlab.settings import WITHOUT_OVERRIDES

_range_of_graph = kept_by_graph(compute_range)
"""Computed once for all placements of layers that a search tries."""


def bound(request: MemoryRequest) -> MemoryPlan:
    """The plan with least and most compute bytes for each device; weights and cache are exact.

    The bytes of a device stay unknown where neither the simulation nor a closed form knows its most.
    Raises UnsupportedArchitecture where even the cache has no formula and nothing can be simulated.
    """
    if not request.aborts:
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

    Least is what one batch needs at once on any card, most the compute bytes of full offload plus all weights and
    cache that can be staged on the card. The compute bytes of full offload and of the host alone come from the closed
    form where that is exact, or are simulated, or are a range themselves, where llama.cpp is not asked.
    Where llama.cpp's scheduler was followed (`shared`), what both ranges have is taken; with everything on one card,
    the replay alone.
    """
    if not request.follow:
        return quick_ranges(request, layers, cache_bytes)
    if not (followed := shared_ranges(request, layers)):
        return ranges_by_parts(request, layers, cache_bytes)
    (least, most), carried = followed[HOST_DEVICE], carried_bytes(request)
    followed |= {HOST_DEVICE: (max(0, least - carried), most + carried)}
    if request.all_on_one_device:
        return followed
    ranges = ranges_by_parts(request, layers, cache_bytes)
    return {name: _common(ends, ranges.get(name, ends)) for name, ends in followed.items()}


def quick_ranges(
    request: MemoryRequest, layers: Sequence[str], cache_bytes: Sequence[int]
) -> dict[str, tuple[int, int]]:
    """By parts, with what `compute_ranges` leaves open for everything on one card."""
    ranges = ranges_by_parts(request, layers, cache_bytes)
    if not request.all_on_one_device:
        return ranges
    return {name: (int((1 - OFF_WHOLE) * least), int((1 + OFF_WHOLE) * most)) for name, (least, most) in ranges.items()}


def _common(followed: tuple[int, int], by_parts: tuple[int, int]) -> tuple[int, int]:
    """What two ranges have in common; the replay's alone where the other has not the middle of it.

    The parts miss holes between tensors, and that llama.cpp may turn flash attention off.
    """
    middle = sum(followed) / 2
    least, most = max(followed[0], by_parts[0]), min(followed[1], by_parts[1])
    return (least, most) if by_parts[0] <= middle <= by_parts[1] else followed


def ranges_by_parts(
    request: MemoryRequest, layers: Sequence[str], cache_bytes: Sequence[int]
) -> dict[str, tuple[int, int]]:
    """Least and most compute bytes without the scheduler, see `compute_ranges`."""
    full_offload = compute_of_full_offload(request)
    if full_offload is None:
        return {}
    if request.all_on_one_device and not request.shares_tensors:
        least, most = full_offload["gpu0"]
        return full_offload | {"gpu0": (least, most + operand_bytes(request))}
    if not request.gpus:
        return compute_of_host_alone(request, with_head=True) or {}
    copied = staged_bytes(request, layers, cache_bytes) + operand_bytes(request) + carried_bytes(request)
    cards = [f"gpu{i}" for i in range(len(request.gpus))]
    most_on_card = full_offload["gpu0"][1]
    ranges = {name: compute_range_of(request, name, most_on_card, layers, copied) for name in cards}
    alone = compute_of_host_alone(request, with_head=layers[-1] == HOST_DEVICE)
    if alone is None:
        return ranges
    most = alone[HOST_DEVICE][1] + full_offload.get(HOST_DEVICE, (0, 0))[1]
    return {HOST_DEVICE: (least_of_host(request, layers), most), **ranges}


def least_of_host(request: MemoryRequest, layers: Sequence[str]) -> int:
    """The embedded tokens, and what its own layers need; these only where no card computes for the host.

    CUDA does, for batches of 32 tokens and more (ggml_backend_cuda_device_offload_op); an RPC device never does.
    """
    embedded = embedded_bytes(request.model, request.settings)
    if request.backends != {"RPC"} or request.moved:
        return embedded
    own = [i for i, device in enumerate(layers[:-1]) if device == HOST_DEVICE]
    return max(embedded, least_of_layers(request.model, request.settings, request.n_outputs, own))


def compute_of_full_offload(request: MemoryRequest) -> dict[str, tuple[int, int]] | None:
    """Least and most compute bytes with everything on one device; None where nothing tells them."""
    if request.can_simulate and not is_exact(request.model, request.settings):
        return _told(simulate_on_stand_in(request).compute_bytes)
    return _range_of_graph(request.model, fully_offloaded(request), request.n_outputs, True)


def compute_of_host_alone(request: MemoryRequest, with_head: bool) -> dict[str, tuple[int, int]] | None:
    """Least and most compute bytes with everything on the host; None where nothing tells them.

    with_head  whether with all logits that are reserved; else, where a card computes them, with one of each sequence
    """
    everything = {"n_gpu_layers": -1, "tensor_split": None, "main_gpu": 0}
    alone = request.settings.but(devices=(), rpc_servers=(), **everything, **WITHOUT_OVERRIDES)
    if not request.can_simulate or is_exact(request.model, request.settings):
        n_outputs = request.n_outputs if with_head else outputs_reserved(alone, per_sequence=True)
        return _range_of_graph(request.model, alone, n_outputs, False)
    from inferlab.engine import dry_run

    n_outputs_max = request.n_outputs_max if with_head else alone.n_seq_max
    return _told(dry_run.simulate(request.model, alone, n_outputs_max).compute_bytes)


def _told(compute: dict[str, int]) -> dict[str, tuple[int, int]]:
    return {name: (n_bytes, n_bytes) for name, n_bytes in compute.items()}


def compute_range_of(
    request: MemoryRequest, name: str, full_offload: int, layers: Sequence[str], copied_bytes: int
) -> tuple[int, int]:
    """Least and most compute bytes of one card, see `compute_ranges`."""
    name = "gpu0" if request.shares_tensors else name  # to the layers the cards are one
    head = head_bytes(request.model, request.n_outputs) if layers[-1] == name else 0
    complete = request.settings.offload_kqv and not request.moved
    whole = [i for i, device in enumerate(layers[:-1]) if device == name and complete]
    of_layers = least_of_layers(request.model, request.settings, request.n_outputs, whole)
    least = max(of_layers, head)
    most = full_offload * (COPIES_IN_FLIGHT if len(request.gpus) > 1 and not request.shares_tensors else 1)
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


def operand_bytes(request: MemoryRequest) -> int:
    """The most that CUDA's backend adds: one layer's keys and values as f16, if the cache is quantized, and operands.

    Flash attention converts the former; the latter are those of a mixture's operations.
    """
    fused = fused_bytes(request.model, request.settings) if "CUDA" in request.backends else 0
    if not request.cache_is_quantized:
        return fused
    as_f16 = request.settings.but(type_k="f16", type_v="f16")
    return fused + max(layer_bytes(layer, as_f16) for layer in cache_layers(request.model))


def carried_bytes(request: MemoryRequest) -> int:
    """Bytes of one batch that go to moved tensors, or to a cache on the host, and come back.

    Queries, keys, values, and results of experts:

    (2 (D + q + kv) + used experts * D) ub * 4; no load needed more.
    """
    if not request.moved and request.settings.offload_kqv:
        return 0
    model, used = request.model, (request.model.number("expert_used_count") or 0) * bool(request.moved)
    heads = heads_of(model)
    width = (2 + used) * model.n_embd + 2 * (max(heads.n_head) + max(heads.n_head_kv)) * heads.key
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
    if not request.gpus or (request.all_on_one_device and not request.adds_operands):
        return (
            f"{request.model.name} ({request.model.architecture}) has no closed form for its compute buffer under "
            f"these settings, and {request.no_simulation}: it lies between the two ends given."
        )
    whole = "a quantized cache" if request.cache_is_quantized else "a mixture of experts"
    cause = whole if request.all_on_one_device else "work shared with the host or another card"
    why = "is not on this machine" if request.simulate and not request.aborts else "was not asked"
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
