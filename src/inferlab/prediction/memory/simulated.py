"""The memory plan from llama.cpp's own simulation, on the devices themselves or on stand-ins for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from inferlab.engine import libraries
from inferlab.errors import DeviceUnavailable, EngineUnavailable, UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE
from inferlab.model.dimensions import layers_counted
from inferlab.prediction.memory.assembly import assembled
from inferlab.prediction.memory.compute import embedded_bytes, tokens_reserved, uses_flash_attention
from inferlab.prediction.memory.plan import BOUND, SIMULATED, MemoryPlan
from inferlab.prediction.memory.request import MemoryRequest, require_simulation
from inferlab.settings import WITHOUT_OVERRIDES, Settings

if TYPE_CHECKING:
    from inferlab.engine.dry_run import Simulation

PRINTED = 5243  # bytes by which a buffer in llama.cpp's log, to 0.01 MiB, may be off
FEW_TOKENS = 32  # a batch below this is computed as one of decode (llama-context.cpp:2647)
LIBRARIES = {"CUDA": "cuda", "ROCm": "hip", "MTL": "metal", "Metal": "metal", "Vulkan": "vulkan", "SYCL": "sycl"}
"""A backend's name in ggml -> that of its library, as `libraries.backends` has it."""
STAGE = re.compile(r"blk\.(\d+)\.(attn|ffn)_")  # a block's tensors by the stage that needs them
BOUNDARY_NOTE = (
    "Where blocks of two cards meet outside of a pipeline, llama.cpp's simulation misplaces an operation: the compute "
    "buffer of the later card lies between the two ends given."
)
STAND_IN_NOTE = "The card is not on this machine: a loopback device stood in for it in llama.cpp's simulation."


def from_simulation(request: MemoryRequest) -> MemoryPlan | None:
    """The plan from llama.cpp's simulation, on the devices themselves or on a stand-in that is known to agree.

    A loopback device serves one client at a time, and the engine may be connected to it; therefore another
    loopback device stands in for each. None where neither simulation is valid.
    """
    if host_attends_for_devices(request) or moves_neighbouring_stages(request) or not request.can_simulate:
        return None
    from inferlab.engine import dry_run
    from inferlab.engine.loopback import is_loopback

    model, n_outputs, n_devices = request.model, request.n_outputs_max, len(request.gpus)
    if request.gpus and all(is_loopback(device.description) for device in request.gpus):
        return plan_from(request, dry_run.simulate_stand_in(model, request.settings, n_outputs, n_devices))
    if devices_are_on_this_machine(request):
        return plan_from(request, dry_run.simulate(model, settings_with_devices_named(request), n_outputs))
    if request.all_on_one_device and not request.adds_operands and not request.shares_tensors:
        request.require_verified()
        return plan_from(request, simulate_on_stand_in(request), STAND_IN_NOTE)
    return None


def plan_from(request: MemoryRequest, simulation: Simulation, *notes: str) -> MemoryPlan:
    cache_bytes = request.cache_bytes
    if cache_bytes is None:
        cache_bytes = simulated_caches(request, simulation)
        notes += ("The KV cache is llama.cpp's own figure, exact to the 0.01 MiB that it prints.",)
    compute = dict(simulation.compute_bytes)
    if request.shares_tensors:  # one device to the simulation; each of its parts has a compute buffer of this size
        compute = {HOST_DEVICE: compute.get(HOST_DEVICE, 0)} | dict.fromkeys(
            request.device_names[1:], compute.get("gpu0", 0)
        )
    entered = entered_devices(request, simulation.layers)
    vector = embedded_bytes(request.model, request.settings)
    if request.copies_in_flight > 1:
        compute |= {device: compute[device] - request.copies_in_flight * vector for device in entered}
        return assembled(request, SIMULATED, simulation.layers, cache_bytes, compute, notes)
    ranges = {d: (compute[d] - vector - PRINTED, compute[d] + vector + PRINTED) for d in entered}
    notes += (BOUNDARY_NOTE,) * bool(ranges)
    method, known = BOUND if ranges else SIMULATED, {**compute, **dict.fromkeys(ranges)}
    return assembled(request, method, simulation.layers, cache_bytes, known, notes, ranges)


def entered_devices(request: MemoryRequest, layers: Sequence[str]) -> set[str]:
    """Devices whose first block follows one of another device, where the simulation misplaces that block's norm.

    A load computes a block's first norm on the block's device, which receives one vector per token: the graph says
    so (llama-context.cpp:2646-2656). The simulation resets that (ggml-backend.cpp:1982), computes the norm on the
    device before, and has two vectors cross. In a pipeline each crossing vector has a place of its own for each
    copy, so that the difference is known: n_embd * 4 bytes per token and copy. Else the places are shared with
    other operations, and the difference was at most one vector in every load.
    """
    if len(request.gpus) < 2 or not (request.offloads_all or tokens_reserved(request.settings) < FEW_TOKENS):
        return set()
    return {
        device for before, device in pairwise(layers[:-1]) if HOST_DEVICE not in (before, device) and before != device
    }


def simulated_caches(request: MemoryRequest, simulation: Simulation) -> tuple[int, ...]:
    """Bytes of each layer's cache as simulated: each cache divided evenly among its layers."""
    sizes = [0] * layers_counted(request.model)
    for cache in simulation.caches:
        for nth, layer in enumerate(cache.devices):
            share = cache.n_bytes * (nth + 1) // len(cache.devices) - cache.n_bytes * nth // len(cache.devices)
            sizes[layer] += share
    return tuple(sizes)


def simulate_on_stand_in(request: MemoryRequest) -> Simulation:
    """Simulate everything on one loopback device."""
    if not request.simulate:
        raise UnsupportedArchitecture(
            f"{request.model.name} ({request.model.architecture}) has no closed form for its KV cache, and "
            f"{request.no_simulation}. Plan where llama.cpp is installed."
        )
    try:
        require_simulation()
        from inferlab.engine import dry_run

        return dry_run.simulate_stand_in(request.model, fully_offloaded(request), request.n_outputs_max)
    except (DeviceUnavailable, EngineUnavailable) as error:
        raise UnsupportedArchitecture(
            f"{request.model.name} ({request.model.architecture}) has no closed form under these settings, its device "
            f"is not on this machine, and nothing can stand in for it. {error}"
        ) from error


def fully_offloaded(request: MemoryRequest) -> Settings:
    whole = {"n_gpu_layers": -1, "offload_kqv": True, "split_mode": "layer", "tensor_split": None}
    return request.settings.but(**whole, **WITHOUT_OVERRIDES)


def devices_are_on_this_machine(request: MemoryRequest) -> bool:
    """Whether llama.cpp can simulate on these devices themselves; it is asked only where it has their backend."""
    own = {device.name: device.backend for device in request.gpus if device.backend != "RPC"}
    if not own:
        return True
    if not {LIBRARIES.get(backend or "") for backend in own.values()} <= set(libraries.backends()):
        return False
    from inferlab.engine import dry_run

    return own.keys() <= {device.name for device in dry_run.machine().gpus}


def host_attends_for_devices(request: MemoryRequest) -> bool:
    """Whether the host computes attention for layers on a device, which llama.cpp's simulation does not count.

    Without flash attention the graph assigns attention to the host (llama-graph.cpp:2746);
    ggml_backend_sched_reserve_size resets that assignment before it counts (ggml-backend.cpp:1982).
    """
    cache_only_on_host = not request.settings.offload_kqv and not uses_flash_attention(request.settings)
    return cache_only_on_host and any(layer != HOST_DEVICE for layer in request.layer_devices()[:-1])


def moves_neighbouring_stages(request: MemoryRequest) -> bool:
    """Whether overrides move two stages that follow each other, or the first of all, beside the host's input.

    A stage is the attention or the feed-forward network of a block. The simulation then assigns the operations
    between the two otherwise than a load does (ggml_backend_sched_reserve_size); else it agreed with every load.
    """
    found = (STAGE.match(name) for name in request.moved)
    moved = {2 * int(match[1]) + (match[2] == "ffn") for match in found if match}
    return 0 in moved or any(stage + 1 in moved for stage in moved)


def settings_with_devices_named(request: MemoryRequest) -> Settings:
    """The settings with their devices named, so that no other device of this machine is used.

    RPC devices stay unnamed, because devices of different servers have the same name.
    """
    if any(device.backend == "RPC" for device in request.gpus):
        return request.settings
    return request.settings.but(devices=tuple(device.name for device in request.gpus), main_gpu=0)
