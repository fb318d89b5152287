"""Computes a memory plan by the closed form, by llama.cpp's own simulation, or as a bound: least and most bytes.

Where none of them is valid for the compute buffers, these stay unknown; weights and cache are exact in every plan.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

from inferlab.engine import libraries
from inferlab.errors import DeviceUnavailable, EngineUnavailable, InvalidSettings, UnsupportedArchitecture
from inferlab.machine import Device, Machine
from inferlab.model.gguf import Model
from inferlab.model.repacking import NOT_REPACKED
from inferlab.options.devices import require_buffers, used_devices
from inferlab.prediction.memory.cache import batches, cache_layers, cells, layer_bytes
from inferlab.prediction.memory.compute import (
    DENSE,
    compute_bytes,
    embedded_bytes,
    head_bytes,
    most_compute_bytes,
    output_bytes,
    outputs_reserved,
    tokens_reserved,
    uses_flash_attention,
)
from inferlab.prediction.memory.host_weights import HostWeights, host_weights
from inferlab.prediction.memory.placement import (
    HOST,
    bytes_moved,
    device_overrides,
    layer_of,
    moved_tensors,
    placed_layers,
    tied_output_bytes,
    weights_of_layers,
)
from inferlab.prediction.memory.plan import BOUND, CLOSED_FORM, PARTIAL, SIMULATED, DeviceBytes, LayerBytes, MemoryPlan
from inferlab.prediction.memory.tensor_split import TensorSplit, split_weights
from inferlab.settings import UNQUANTIZED, WITHOUT_OVERRIDES, Settings
from inferlab.units import bytes_text

if TYPE_CHECKING:
    from inferlab.engine.dry_run import Simulation

COPIES_IN_FLIGHT = 4  # GGML_SCHED_MAX_COPIES, ggml-backend.cpp: batches in the pipeline of several cards
EXPERT_SUMS = re.compile(r"blk\.\d+\.ffn_down_exps\.weight")
PRINTED = 5243  # bytes by which a buffer in llama.cpp's log, to 0.01 MiB, may be off
FEW_TOKENS = 32  # a batch below this is computed as one of decode (llama-context.cpp:2647)
LIBRARIES = {"CUDA": "cuda", "ROCm": "hip", "MTL": "metal", "Metal": "metal", "Vulkan": "vulkan", "SYCL": "sycl"}
"""A backend's name in ggml -> that of its library, as `libraries.backends` has it."""
VERIFIED_BACKENDS = frozenset(["CUDA", "RPC"])  # backends whose real loads agreed with the plans
# (head_dim_k, head_dim_v) that CUDA's flash attention takes; with others llama.cpp turns it off (fattn.cu:576-620).
CUDA_HEADS = {(n, n) for n in (40, 64, 72, 80, 96, 112, 128, 256, 512)} | {(192, 128), (320, 256), (576, 512)}
STAGE = re.compile(r"blk\.(\d+)\.(attn|ffn)_")  # a block's tensors by the stage that needs them
REPACKED_NOTE = (
    "llama.cpp keeps a second, repacked copy of {n_bytes} of the host's weights beside the mapped file (its buffers "
    "AMX and CPU_REPACK). That copy is not in this plan."
)
UNKNOWN_PROCESSOR_NOTE = (
    "llama.cpp may keep a second, repacked copy of some host weights beside the mapped file (its buffers AMX and "
    "CPU_REPACK): up to {n_bytes}, depending on the processor. That copy is not in this plan."
)
AS_CUDA_NOTE = (
    "Compute buffers were compared with real loads for CUDA only, and this plan has them as CUDA's backend allocates. "
    "Weights and KV cache are the same on every card."
)
BOUNDARY_NOTE = (
    "Where blocks of two cards meet outside of a pipeline, llama.cpp's simulation misplaces an operation: the compute "
    "buffer of the later card lies between the two ends given."
)
SUMS_NOTE = (
    "With the first full batch each device allocates {n_bytes} more, in which partial sums meet. No line of "
    "llama.cpp's log has them; the upper end of a range here has, an exact compute buffer has not."
)
STAND_IN_NOTE = "The card is not on this machine: a loopback device stood in for it in llama.cpp's simulation."


def planned_devices(settings: Settings, machine: Machine | None) -> tuple[Device, ...]:
    """The devices that a plan calls gpu0, gpu1, ...: those of `settings.rpc_servers`, then the machine's own.

    Raises InvalidSettings for what `used_devices` refuses.
    """
    far = [Device(f"RPC{i}", endpoint, "gpu", backend="RPC") for i, endpoint in enumerate(settings.rpc_servers)]
    near = [device for device in (machine.devices if machine else ()) if device.backend != "RPC"]
    found = tuple(device for device in used_devices(settings, [*near, *far]) if device.kind in ("gpu", "igpu"))
    if settings.split_mode == "row":
        raise InvalidSettings("split_mode='row' cannot be planned: its plan was never compared with a load. Use "
                              "'layer'.")  # fmt: skip
    require_buffers(settings, found)
    return found


def require_simulation() -> None:
    """Raise EngineUnavailable where llama.cpp cannot simulate: it is not installed, or no process can be started."""
    try:
        libraries.folder()
        import inferlab.engine.dry_run  # noqa: F401
    except ImportError as error:
        raise EngineUnavailable(f"llama.cpp cannot run here: {error}. Its simulation needs a process.") from error


def can_simulate() -> bool:
    """Whether llama.cpp can simulate here."""
    try:
        require_simulation()
    except EngineUnavailable:
        return False
    return True


def _copies_note(held: dict[str, HostWeights]) -> tuple[str, ...]:
    """A note on second copies of host weights, if there can be any."""
    most = max((weights.repacked_bytes for weights in held.values() if weights.mapped), default=0)
    note = UNKNOWN_PROCESSOR_NOTE if len(held) > 1 else REPACKED_NOTE
    return (note.format(n_bytes=bytes_text(most)),) if most else ()


@dataclass(frozen=True)
class MemoryPlanner:
    """Plans the memory of one model with given settings on given devices.

    per_sequence  whether logits are reserved for one token of each sequence, not for each token of a batch
    processor     the kind of the host's processor by `model.repacking`; None where it is not known
    simulate      whether llama.cpp may be asked
    as_cuda       whether cards of backends that were never compared are planned as CUDA's, with a note
    """

    model: Model
    settings: Settings
    gpus: tuple[Device, ...]
    per_sequence: bool
    processor: str | None = None
    simulate: bool = True
    as_cuda: bool = False

    # --- three methods ------------------------------------------------------------------------

    def closed_form(self) -> MemoryPlan | None:
        """The plan by formulas, for the host alone or everything on one device; None where they are not exact."""
        one_card = self.all_on_one_device and self.is_verified and not self.shares_tensors
        if self.cache_bytes is None or (self.gpus and not one_card):
            return None
        compute = compute_bytes(self.model, self.settings, self.n_outputs, bool(self.gpus))
        return compute and self.plan(CLOSED_FORM, self.layer_devices(), self.cache_bytes, compute)

    def from_simulation(self) -> MemoryPlan | None:
        """The plan from llama.cpp's simulation, on the devices themselves or on a stand-in that is known to agree.

        A loopback device serves one client at a time, and the engine may be connected to it; therefore another
        loopback device stands in for each. None where neither simulation is valid.
        """
        if self.host_attends_for_devices or self.moves_neighbouring_stages or not self.can_simulate:
            return None
        from inferlab.engine import dry_run
        from inferlab.engine.loopback import is_loopback

        if self.gpus and all(is_loopback(device.description) for device in self.gpus):
            n_devices = len(self.gpus)
            return self.plan_from(dry_run.simulate_stand_in(self.model, self.settings, self.n_outputs_max, n_devices))
        if self.devices_are_on_this_machine:
            return self.plan_from(dry_run.simulate(self.model, self.settings_with_devices_named, self.n_outputs_max))
        if self.all_on_one_device and not self.cache_is_quantized and not self.shares_tensors:
            self.require_verified()
            return self.plan_from(self.simulate_on_stand_in(), STAND_IN_NOTE)
        return None

    def bound(self) -> MemoryPlan:
        """The plan with least and most compute bytes for each device; weights and cache are exact.

        The bytes of a device stay unknown where neither the simulation nor a closed form knows its most.
        Raises UnsupportedArchitecture where even the cache has no formula and nothing can be simulated.
        """
        self.require_verified()
        layers = self.layer_devices()
        cache_bytes = self.cache_bytes or self.simulated_caches(self.simulate_on_stand_in())
        ranges = self.compute_ranges(layers, cache_bytes)
        unknown = [name for name in self.device_names if name not in ranges]
        notes = (self.bound_reason,) * bool(ranges) + (self.unknown_reason(unknown),) * bool(unknown)
        method = BOUND if ranges else PARTIAL
        return self.plan(method, layers, cache_bytes, dict.fromkeys(self.device_names), notes, ranges)

    def require_verified(self) -> None:
        """Raise UnsupportedArchitecture for a card whose backend was never compared with a plan."""
        if not self.is_verified:
            cards = ", ".join(f"{device.name} ({device.backend}, {device.description})" for device in self.gpus)
            raise UnsupportedArchitecture(
                f"{cards} is not on this machine, and how its backend allocates for {self.model.name} is not known "
                "here. Plan on the machine that has it, or for a CUDA card; weights and cache are the same."
            )

    # --- parts of a plan ----------------------------------------------------------------------

    def plan(
        self,
        method: str,
        layers: Sequence[str],
        cache_bytes: Sequence[int],
        compute: dict[str, int | None],
        notes: tuple[str, ...] = (),
        ranges: dict[str, tuple[int, int]] | None = None,
    ) -> MemoryPlan:
        layer_rows = self.layer_rows(layers, cache_bytes)
        devices = {name: self.device_bytes(name, layer_rows, compute.get(name, 0)) for name in self.device_names}
        held = host_weights(self.model, layers, self.settings, self.gpus, self.processor, self.moved)
        in_place = held.get(self.processor or NOT_REPACKED) or held[NOT_REPACKED]
        devices[HOST] = replace(devices[HOST], weights_bytes=in_place.n_bytes)
        return MemoryPlan(
            self.model.card(), self.rounded_settings, method, devices, layer_rows,
            notes + self.sums_note + _copies_note(held) + (AS_CUDA_NOTE,) * self.is_taken_for_cuda,
            ranges or {}, held, self.moved,
        )  # fmt: skip

    def device_bytes(self, name: str, layer_rows: Sequence[LayerBytes], compute: int | None) -> DeviceBytes:
        return DeviceBytes(
            sum(row.weights_on(name) for row in layer_rows),
            sum(row.cache_by_device.get(name, 0) for row in layer_rows),
            compute,
            output_bytes(self.model, self.settings) if name == HOST else 0,
        )

    def layer_rows(self, layers: Sequence[str], cache_bytes: Sequence[int]) -> tuple[LayerBytes, ...]:
        """The input, each block, the output; tensors that every device copies count with the device's first block."""
        input_bytes, weights, shared = self.weights_of_layers
        tied = tied_output_bytes(self.model) if layers[-1] != HOST else 0
        layer_rows = [self.without_moved(-1, LayerBytes("input", HOST, input_bytes, HOST, 0))]
        for i, (device, cache) in enumerate(zip(layers[:-1], cache_bytes, strict=True)):
            copied = shared if device not in layers[:i] else 0
            cache_device = device if self.settings.offload_kqv else HOST
            whole = LayerBytes(f"block {i}", device, weights[i] + copied, cache_device, cache, i)
            layer_rows.append(self.shared_out(i, self.without_moved(i, whole), copied))
        output = LayerBytes("output", layers[-1], weights[-1] + tied, layers[-1], 0)
        return (*layer_rows, self.shared_out(self.model.n_layer, self.without_moved(self.model.n_layer, output), tied))

    def without_moved(self, layer: int, whole: LayerBytes) -> LayerBytes:
        """A layer with the bytes that overrides put elsewhere told apart."""
        moved = dict(self.bytes_moved.get(layer, {}))
        return replace(whole, weights_bytes=whole.weights_bytes - sum(moved.values()), moved_bytes=moved)

    def shared_out(self, layer: int, row: LayerBytes, mirrored: int) -> LayerBytes:
        """A layer as the devices share it, where they share every matrix; `mirrored` bytes are on each of them."""
        if not self.shares_tensors or row.device == HOST:
            return row
        tensors = [
            t for t in self.model.tensors
            if t.name not in self.moved and (at := layer_of(t, self.model)) is not None
            and min(at, self.model.n_layer) == layer
        ]  # fmt: skip
        weights = split_weights(self.tensor_split, tensors)
        weights.update(dict.fromkeys(self.device_names[1:], mirrored))
        on_devices = row.kv_cache_device != HOST and row.index is not None
        parts = self.tensor_split.cache(layer, self.settings) if on_devices else ()
        return replace(
            row, weights_bytes=weights.total(), shared_weights=dict(weights),
            shared_cache={f"gpu{i}": n_bytes for i, n_bytes in enumerate(parts)},
        )  # fmt: skip

    def plan_from(self, simulation: Simulation, *notes: str) -> MemoryPlan:
        cache_bytes = self.cache_bytes
        if cache_bytes is None:
            cache_bytes = self.simulated_caches(simulation)
            notes += ("The KV cache is llama.cpp's own figure, exact to the 0.01 MiB that it prints.",)
        compute: dict[str, int | None] = dict(simulation.compute_bytes)
        if self.shares_tensors:  # one device to the simulation; each of its parts has a compute buffer of this size
            compute = {HOST: compute.get(HOST, 0)} | dict.fromkeys(self.device_names[1:], compute.get("gpu0", 0))
        entered = self.entered_devices(simulation.layers)
        vector = embedded_bytes(self.model, self.settings)
        if self.copies_in_flight > 1:
            compute |= {device: compute[device] - self.copies_in_flight * vector for device in entered}
            return self.plan(SIMULATED, simulation.layers, cache_bytes, compute, notes)
        ranges = {d: (compute[d] - vector - PRINTED, compute[d] + vector + PRINTED) for d in entered}
        notes += (BOUNDARY_NOTE,) * bool(ranges)
        method = BOUND if ranges else SIMULATED
        return self.plan(method, simulation.layers, cache_bytes, compute | dict.fromkeys(ranges), notes, ranges)

    def entered_devices(self, layers: Sequence[str]) -> set[str]:
        """Devices whose first block follows one of another device, where the simulation misplaces that block's norm.

        A load computes a block's first norm on the block's device, which receives one vector per token: the graph says
        so (llama-context.cpp:2646-2656). The simulation resets that (ggml-backend.cpp:1982), computes the norm on the
        device before, and has two vectors cross. In a pipeline each crossing vector has a place of its own for each
        copy, so that the difference is known: n_embd * 4 bytes per token and copy. Else the places are shared with
        other operations, and the difference was at most one vector in every load.
        """
        if len(self.gpus) < 2 or not (self.offloads_all or tokens_reserved(self.settings) < FEW_TOKENS):
            return set()
        return {device for before, device in pairwise(layers[:-1]) if HOST not in (before, device) and before != device}

    def simulated_caches(self, simulation: Simulation) -> tuple[int, ...]:
        """Bytes of each layer's cache as simulated: each cache divided evenly among its layers."""
        sizes = [0] * self.model.n_layer
        for cache in simulation.caches:
            for nth, layer in enumerate(cache.devices):
                share = cache.n_bytes * (nth + 1) // len(cache.devices) - cache.n_bytes * nth // len(cache.devices)
                sizes[layer] += share
        return tuple(sizes)

    def compute_ranges(self, layers: Sequence[str], cache_bytes: Sequence[int]) -> dict[str, tuple[int, int]]:
        """Least and most compute bytes of each device whose most is known.

        Least: what one batch needs at once on any card. Most: the compute bytes of full offload plus all weights and
        cache that can be staged on the card. The compute bytes of full offload and of the host alone are simulated, or
        come from the closed form, or are a bound themselves, where llama.cpp is not asked.
        """
        full_offload = self.compute_of_full_offload()
        if full_offload is None or self.carried_bytes() is None:
            return {}
        cards = [f"gpu{i}" for i in range(len(self.gpus))]
        ranges = {name: self.compute_range_of(name, full_offload, layers, cache_bytes) for name in cards}
        alone = self.compute_of_host_alone()
        if alone is None:
            return ranges
        most = alone[HOST] + (full_offload.get(HOST, 0) if self.gpus else 0)
        return {HOST: (embedded_bytes(self.model, self.settings), most), **ranges}

    def compute_of_full_offload(self) -> dict[str, int] | None:
        """Compute bytes with everything on one device, or more; None where nothing tells them."""
        if self.can_simulate:
            return self.simulate_on_stand_in().compute_bytes
        return self.compute_by_formula(self.fully_offloaded, on_device=True)

    def compute_of_host_alone(self) -> dict[str, int] | None:
        """Compute bytes with everything on the host, or more; None where nothing tells them."""
        everything = {"n_gpu_layers": -1, "tensor_split": None, "main_gpu": 0}
        alone = self.settings.but(devices=(), rpc_servers=(), **everything, **WITHOUT_OVERRIDES)
        if not self.can_simulate:
            return self.compute_by_formula(alone, on_device=False)
        from inferlab.engine import dry_run

        return dry_run.simulate(self.model, alone, self.n_outputs_max).compute_bytes

    def compute_by_formula(self, settings: Settings, on_device: bool) -> dict[str, int] | None:
        """Compute bytes in closed form, else bytes that suffice; None where no formula holds."""
        asked = self.model, settings, self.n_outputs, on_device
        return compute_bytes(*asked) or most_compute_bytes(*asked)

    @property
    def fully_offloaded(self) -> Settings:
        whole = {"n_gpu_layers": -1, "offload_kqv": True, "split_mode": "layer", "tensor_split": None}
        return self.settings.but(**whole, **WITHOUT_OVERRIDES)

    def simulate_on_stand_in(self) -> Simulation:
        """Simulate everything on one loopback device."""
        if not self.simulate:
            raise UnsupportedArchitecture(
                f"{self.model.name} ({self.model.architecture}) has no closed form for its KV cache, and "
                f"{self.no_simulation}. Plan where llama.cpp is installed."
            )
        try:
            require_simulation()
            from inferlab.engine import dry_run

            return dry_run.simulate_stand_in(self.model, self.fully_offloaded, self.n_outputs_max)
        except (DeviceUnavailable, EngineUnavailable) as error:
            raise UnsupportedArchitecture(
                f"{self.model.name} ({self.model.architecture}) has no closed form under these settings, its device "
                f"is not on this machine, and nothing can stand in for it. {error}"
            ) from error

    def compute_range_of(
        self, name: str, full_offload: dict[str, int], layers: Sequence[str], cache_bytes: Sequence[int]
    ) -> tuple[int, int]:
        """Least and most compute bytes of one card, see `compute_ranges`."""
        name = "gpu0" if self.shares_tensors else name  # to the layers the cards are one
        head = head_bytes(self.model, self.n_outputs) if layers[-1] == name else 0
        gated = self.model.architecture in DENSE and not self.model.number("expert_count") and not self.moved
        embedded = embedded_bytes(self.model, self.settings)
        feed_forward = 3 * self.model.n_ff * embedded // self.model.n_embd if gated and name in layers[:-2] else 0
        least = max(feed_forward, head)
        most = full_offload["gpu0"] * (COPIES_IN_FLIGHT if len(self.gpus) > 1 and not self.shares_tensors else 1)
        moved = self.staged_bytes(layers, cache_bytes) + self.f16_copy_bytes() + self.carried_bytes()
        return least, most + moved + self.sums_bytes

    def staged_bytes(self, layers: Sequence[str], cache_bytes: Sequence[int]) -> int:
        """Bytes of host weights and cache that a card copies in for a batch: the largest block, and the output.

        Of a cache on the host two layers: one that is in use, and the next.
        """
        weights = self.weights_of_layers[1]
        blocks = zip(layers[:-1], weights, cache_bytes, strict=False)
        most = max((w + cache for device, w, cache in blocks if device == HOST), default=0)
        most = max([most, *(moved[HOST] for moved in self.bytes_moved.values())])
        most += weights[-1] + tied_output_bytes(self.model) if layers[-1] == HOST else 0
        return most if self.settings.offload_kqv else most + 2 * max(cache_bytes, default=0)

    def f16_copy_bytes(self) -> int:
        """Bytes of one layer's keys and values as f16: CUDA's flash attention converts a quantized cache to f16."""
        if not self.cache_is_quantized:
            return 0
        as_f16 = self.settings.but(type_k="f16", type_v="f16")
        return max(layer_bytes(layer, as_f16) for layer in cache_layers(self.model))

    def carried_bytes(self) -> int | None:
        """Bytes of one batch that go to moved tensors and come back: queries, keys, values, and results of experts.

        (2 (D + q + kv) + used experts * D) ub * 4; no load with moved tensors needed more. None where the header does
        not have one number for all layers.
        """
        if not self.moved:
            return 0
        model, used = self.model, self.model.number("expert_used_count") or 0
        if None in (model.n_embd, model.n_head, model.n_head_kv, model.head_dim_k):
            return None
        width = (2 + used) * model.n_embd + 2 * (model.n_head + model.n_head_kv) * model.head_dim_k
        return width * embedded_bytes(model, self.settings) // model.n_embd

    def layer_devices(self) -> tuple[str, ...]:
        return placed_layers(self.model.n_layer, self.settings, self.shares)

    @property
    def shares(self) -> list[float]:
        """Share of the layers for each device: tensor_split, or its free memory in bytes.

        Devices that share every matrix are one device to the layers.
        """
        if self.shares_tensors:
            return [1.0]
        if self.settings.tensor_split is not None:
            return list(self.settings.tensor_split) if len(self.gpus) > 1 else [1.0]
        free = [device.free_bytes or device.memory_bytes for device in self.gpus]
        if len(free) > 1 and None in free:
            raise InvalidSettings("Several devices share a model by their free memory, but one does not report it. "
                                  "Give the shares with tensor_split.")  # fmt: skip
        return [float(n or 1) for n in free]

    @property
    def offloads_all(self) -> bool:
        """Whether every layer is on a device, the output included."""
        return self.settings.n_gpu_layers < 0 or self.settings.n_gpu_layers > self.model.n_layer

    @property
    def copies_in_flight(self) -> int:
        """Copies of each input that several devices keep, so that one computes while another still reads.

        GGML_SCHED_MAX_COPIES with whole layers on several devices, everything on them, and no overrides; else 1
        (llama-context.cpp:430-455). A backend without events has 1, too; CUDA and RPC have them.
        """
        pipeline = len(self.gpus) > 1 and self.settings.split_mode == "layer" and self.offloads_all
        return COPIES_IN_FLIGHT if pipeline and self.settings.offload_kqv and not self.settings.tensor_overrides else 1

    @property
    def shares_tensors(self) -> bool:
        """Whether the devices share every matrix, instead of having layers of their own."""
        return bool(self.gpus) and self.settings.split_mode == "tensor"

    @cached_property
    def tensor_split(self) -> TensorSplit:
        return TensorSplit(self.model, len(self.gpus), self.settings.tensor_split)

    @property
    def sums_note(self) -> tuple[str, ...]:
        """A note on the buffers that are allocated with the first batch, where devices share every matrix."""
        return (SUMS_NOTE.format(n_bytes=bytes_text(self.sums_bytes)),) if self.sums_bytes else ()

    @property
    def sums_bytes(self) -> int:
        """Bytes of each device's buffers for partial sums of the others; 0 where devices have layers of their own.

        Experts of the last block count for nothing: it computes only the tokens whose logits are wanted.
        """
        layers = self.layer_devices()
        if not self.shares_tensors or all(layer == HOST for layer in layers):
            return 0
        on_devices = {i for i, layer in enumerate(layers[:-2]) if layer != HOST}
        experts = any(
            tensor.name not in self.moved and layer_of(tensor, self.model) in on_devices
            for tensor in self.model.tensors
            if EXPERT_SUMS.fullmatch(tensor.name)
        )
        return self.tensor_split.sum_buffer_bytes(tokens_reserved(self.settings), experts)

    @cached_property
    def moved(self) -> dict[str, str]:
        """The device of each tensor that an override puts elsewhere than its layer, by the tensor's name."""
        return moved_tensors(self.model, self.layer_devices(), device_overrides(self.settings, self.gpus))

    @cached_property
    def bytes_moved(self) -> dict[int, Counter[str]]:
        return bytes_moved(self.model, self.moved)

    @cached_property
    def weights_of_layers(self) -> tuple[int, tuple[int, ...], int]:
        return weights_of_layers(self.model)

    @cached_property
    def cache_bytes(self) -> tuple[int, ...] | None:
        """Bytes of each block's cache; None where only the simulation knows them."""
        try:
            return tuple(layer_bytes(layer, self.settings) for layer in cache_layers(self.model))
        except UnsupportedArchitecture:
            return None

    @property
    def rounded_settings(self) -> Settings:
        """The settings with n_ctx and batch sizes as llama.cpp rounds them."""
        streams, n_cells = cells(self.settings)
        n_batch, n_ubatch = batches(self.settings)
        sequences = self.settings.n_seq_max if streams > 1 else 1
        return self.settings.but(n_ctx=sequences * n_cells, n_batch=n_batch, n_ubatch=n_ubatch)

    @property
    def device_names(self) -> tuple[str, ...]:
        return (HOST, *(f"gpu{i}" for i in range(len(self.gpus))))

    @property
    def n_outputs(self) -> int:
        return outputs_reserved(self.settings, self.per_sequence)

    @property
    def n_outputs_max(self) -> int:
        return self.settings.n_seq_max if self.per_sequence else 0

    @property
    def cache_is_quantized(self) -> bool:
        return not {self.settings.type_k, self.settings.type_v} <= set(UNQUANTIZED)

    @property
    def all_on_one_device(self) -> bool:
        return len(self.gpus) == 1 and self.offloads_all and self.settings.offload_kqv and not self.moved

    @property
    def can_simulate(self) -> bool:
        return self.simulate and can_simulate()

    @property
    def no_simulation(self) -> str:
        """Why nothing was simulated, in a clause."""
        why = "is not installed here" if self.simulate else "was not asked"
        return f"llama.cpp's simulation, which could tell, {why}"

    @property
    def backends(self) -> frozenset[str | None]:
        """The backends of all devices, as they are planned."""
        return frozenset("CUDA" if self.as_cuda and d.backend != "RPC" else d.backend for d in self.gpus)

    @property
    def is_taken_for_cuda(self) -> bool:
        """Whether a card is planned as CUDA's although its backend is another."""
        return self.backends != {device.backend for device in self.gpus}

    @property
    def is_verified(self) -> bool:
        """Whether plans were compared with real loads for the backends of all devices and for this size of heads."""
        heads = self.model.head_dim_k, self.model.head_dim_v
        cuda = "CUDA" in self.backends
        flash = not cuda or not uses_flash_attention(self.settings) or None in heads or heads in CUDA_HEADS
        return flash and self.backends <= VERIFIED_BACKENDS

    @property
    def devices_are_on_this_machine(self) -> bool:
        """Whether llama.cpp can simulate on these devices themselves; it is asked only where it has their backend."""
        own = {device.name: device.backend for device in self.gpus if device.backend != "RPC"}
        if not own:
            return True
        if not {LIBRARIES.get(backend) for backend in own.values()} <= set(libraries.backends()):
            return False
        from inferlab.engine import dry_run

        return own.keys() <= {device.name for device in dry_run.machine().gpus}

    @property
    def host_attends_for_devices(self) -> bool:
        """Whether the host computes attention for layers on a device, which llama.cpp's simulation does not count.

        Without flash attention the graph assigns attention to the host (llama-graph.cpp:2746);
        ggml_backend_sched_reserve_size resets that assignment before it counts (ggml-backend.cpp:1982).
        """
        cache_only_on_host = not self.settings.offload_kqv and not uses_flash_attention(self.settings)
        return cache_only_on_host and any(layer != HOST for layer in self.layer_devices()[:-1])

    @property
    def moves_neighbouring_stages(self) -> bool:
        """Whether overrides move two stages that follow each other, or the first of all, beside the host's input.

        A stage is the attention or the feed-forward network of a block. The simulation then assigns the operations
        between the two otherwise than a load does (ggml_backend_sched_reserve_size); else it agreed with every load.
        """
        found = (STAGE.match(name) for name in self.moved)
        moved = {2 * int(match[1]) + (match[2] == "ffn") for match in found if match}
        return 0 in moved or any(stage + 1 in moved for stage in moved)

    @property
    def settings_with_devices_named(self) -> Settings:
        """The settings with their devices named, so that no other device of this machine is used.

        RPC devices stay unnamed, because devices of different servers have the same name.
        """
        if any(device.backend == "RPC" for device in self.gpus):
            return self.settings
        return self.settings.but(devices=tuple(device.name for device in self.gpus), main_gpu=0)

    @property
    def bound_reason(self) -> str:
        """Why only a bound can be given."""
        if self.host_attends_for_devices:
            return (
                "With offload_kqv=False and without flash attention the host computes attention for layers that lie on "
                "a device. llama.cpp's simulation forgets that, so compute lies between the two ends given."
            )
        if self.moves_neighbouring_stages:
            return (
                "Overrides move stages that follow each other, such as a block's attention and its feed-forward "
                "network. llama.cpp's simulation miscounts that, so compute lies between the two ends given."
            )
        cards = ", ".join(device.name for device in self.gpus)
        if not self.gpus or (self.all_on_one_device and not self.cache_is_quantized):
            return (
                f"{self.model.name} ({self.model.architecture}) has no closed form for its compute buffer under these "
                f"settings, and {self.no_simulation}: it lies between the two ends given."
            )
        cause = "a quantized cache" if self.all_on_one_device else "work shared with the host or another card"
        why = "is not on this machine" if self.simulate else "was not asked"
        return (
            f"With {cause} the compute buffer depends on the card's backend, and {cards} {why}: "
            "the buffer is at least the smaller and at most the larger size shown."
        )

    def unknown_reason(self, devices: Sequence[str]) -> str:
        """Why the compute buffers of some devices are unknown."""
        return (
            f"{self.model.name} ({self.model.architecture}) has no closed form for the compute buffer of "
            f"{', '.join(devices)} under these settings, and {self.no_simulation}. Weights and KV cache are exact."
        )
