"""The request that a memory plan answers: its devices, where its layers and moved tensors lie, what is reserved."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from inferlab.engine import libraries
from inferlab.errors import EngineUnavailable, InvalidSettings, UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE, Device, Machine, server_name
from inferlab.model.dimensions import has_latent_cache, layers_counted
from inferlab.model.gguf import Model
from inferlab.model.repacking import processor_kind
from inferlab.options.devices import require_buffers, used_devices
from inferlab.prediction.memory.cache import batches, cache_layers, cells, layer_bytes
from inferlab.prediction.memory.compute import is_exact, outputs_reserved, tokens_reserved, uses_flash_attention
from inferlab.prediction.memory.nodes import too_many_note
from inferlab.prediction.memory.placement import (
    bytes_moved,
    device_overrides,
    layer_of,
    moved_tensors,
    placed_layers,
    weights_of_layers,
)
from inferlab.prediction.memory.refused import refused_tensors, too_large_cache
from inferlab.prediction.memory.tensor_split import TensorSplit
from inferlab.settings import UNQUANTIZED, Settings

COPIES_IN_FLIGHT = 4  # GGML_SCHED_MAX_COPIES, ggml-backend.cpp: batches in the pipeline of several cards
EXPERT_SUMS = re.compile(r"blk\.\d+\.ffn_down_exps\.weight")
VERIFIED_BACKENDS = frozenset(["CUDA", "RPC"])  # backends whose real loads agreed with the plans
# (head_dim_k, head_dim_v) that CUDA's flash attention takes; with others llama.cpp turns it off (fattn.cu:576-620).
CUDA_HEADS = {(n, n) for n in (40, 64, 72, 80, 96, 112, 128, 256, 512)} | {(192, 128), (320, 256), (576, 512)}


def planned_devices(settings: Settings, machine: Machine | None) -> tuple[Device, ...]:
    """The devices that a plan calls gpu0, gpu1, ...: those of `settings.rpc_servers`, then the machine's own.

    Raises InvalidSettings for what `used_devices` refuses.
    """
    far = [Device(f"RPC{i}", endpoint, "gpu", backend="RPC") for i, endpoint in enumerate(settings.rpc_servers)]
    near = [device for device in (machine.devices if machine else ()) if device.backend != "RPC"]
    found = tuple(device for device in used_devices(settings, [*near, *far]) if device.kind in ("gpu", "igpu"))
    if settings.split_mode == "row":
        raise InvalidSettings(
            "split_mode='row' cannot be planned: its plan was never compared with a load. Use 'layer'."
        )
    require_buffers(settings, found)
    return found


def request_for(
    model: Model,
    settings: Settings,
    machine: Machine | None,
    per_sequence: bool = False,
    simulate: bool = True,
    as_cuda: bool = False,
) -> MemoryRequest:
    """The request for a machine's devices and processor; without a machine for those of `settings.rpc_servers`.

    Raises InvalidSettings for settings that the devices or the model cannot take.
    """
    gpus = planned_devices(settings, machine)
    processor = processor_kind(machine.instruction_sets) if machine else None
    request = MemoryRequest(model, settings, gpus, per_sequence, processor, simulate, as_cuda)
    return replace(request, planned_for=planned_for(machine, gpus))


def planned_for(machine: Machine | None, gpus: Sequence[Device]) -> str:
    """The devices that a plan has, and whose processor it knows, in words."""
    cards = ", ".join(
        f"{gpu.name} ({server_name(gpu.description) if gpu.backend == 'RPC' else gpu.title})" for gpu in gpus
    )
    processor = machine.cpu if machine and machine.instruction_sets is not None else "any processor"
    other = "" if machine else "; machine= names another place"
    return f"{cards} beside {processor}{other}" if cards else f"{processor}, no GPU{other}"


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


@dataclass(frozen=True)
class MemoryRequest:
    """What is planned: a model with settings on given devices; and what follows of them alone.

    per_sequence  whether logits are reserved for one token of each sequence, not for each token of a batch
    processor     the kind of the host's processor by `model.repacking`; None where it is not known
    simulate      whether llama.cpp may be asked
    as_cuda       whether cards of backends that were never compared are planned as CUDA's, with a note
    planned_for   the devices, and the processor where it is known, in words
    lost_flash_attention  whether the settings have it off since the cards cannot compute it
    follow        whether llama.cpp's scheduler is followed where it can be; else ranges are wider, and quickly found
    Raises InvalidSettings for settings that do not fit the model.
    """

    model: Model
    settings: Settings
    gpus: tuple[Device, ...]
    per_sequence: bool
    processor: str | None = None
    simulate: bool = True
    as_cuda: bool = False
    planned_for: str = ""
    lost_flash_attention: bool = False
    follow: bool = True

    def __post_init__(self) -> None:
        self.settings.require_model(self.model)

    @property
    def n_outputs(self) -> int:
        return outputs_reserved(self.settings, self.per_sequence)

    @property
    def n_outputs_max(self) -> int:
        return self.settings.n_seq_max if self.per_sequence else 0

    def layer_devices(self) -> tuple[str, ...]:
        return placed_layers(layers_counted(self.model), self.settings, self.shares)

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
            raise InvalidSettings(
                "Several devices share a model by their free memory, but one does not report it. "
                "Give the shares with tensor_split."
            )
        return [float(n or 1) for n in free]

    @property
    def offloads_all(self) -> bool:
        """Whether every layer is on a device, the output included."""
        return self.settings.n_gpu_layers < 0 or self.settings.n_gpu_layers > layers_counted(self.model)

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

    @cached_property
    def refused(self) -> dict[str, str]:
        """Tensors that their layer's device refuses, by name, with "host", where llama.cpp leaves them."""
        return {} if self.shares_tensors else refused_tensors(self.model, self.layer_devices(), self.gpus)

    @cached_property
    def moved(self) -> dict[str, str]:
        """The device of each tensor that is elsewhere than its layer, by an override or since it is refused."""
        layers, overrides = self.layer_devices(), device_overrides(self.settings, self.gpus)
        return self.refused | moved_tensors(self.model, layers, overrides)

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
        return (HOST_DEVICE, *(f"gpu{i}" for i in range(len(self.gpus))))

    @property
    def cache_is_quantized(self) -> bool:
        return not {self.settings.type_k, self.settings.type_v} <= set(UNQUANTIZED)

    @property
    def all_on_one_device(self) -> bool:
        return len(self.gpus) == 1 and self.offloads_all and self.settings.offload_kqv and not self.moved

    @property
    def has_closed_form(self) -> bool:
        """Whether formulas are exact: for the host alone, and for everything on one device.

        CUDA's backend adds to the graph, see `adds_operands`.
        """
        one_card = self.all_on_one_device and self.is_verified and not self.shares_tensors and not self.adds_operands
        return (one_card or not self.gpus) and self.cache_bytes is not None and is_exact(self.model, self.settings)

    @property
    def adds_operands(self) -> bool:
        """Whether the backend needs more than the graph says: CUDA's keeps operands of a mixture (`fused_bytes`).

        All but the loopback device's copy what they read of a quantized cache, as f16.
        """
        keeps = "CUDA" in self.backends and bool(self.model.number("expert_used_count"))
        return keeps or (self.cache_is_quantized and self.backends != {"RPC"})

    @property
    def backends(self) -> frozenset[str | None]:
        """The backends of all devices, as they are planned."""
        return frozenset("CUDA" if self.as_cuda and d.backend != "RPC" else d.backend for d in self.gpus)

    @property
    def is_taken_for_cuda(self) -> bool:
        """Whether a card is planned as CUDA's although its backend is another."""
        return self.backends != {device.backend for device in self.gpus}

    @cached_property
    def heads(self) -> tuple[int | None, int | None]:
        """Width of a key and of a value as attention reads them; latent ones have the values in their keys."""
        k, v = self.model.head_dim_k, self.model.head_dim_v
        return k, self.model.number("attention.kv_lora_rank", v) if has_latent_cache(self.model) else v

    @property
    def takes_heads(self) -> bool:
        """Whether the cards compute attention of this size of heads as it is asked for."""
        asked = "CUDA" in self.backends and uses_flash_attention(self.settings)
        if not asked or None in self.heads or self.heads in CUDA_HEADS:
            return True
        return all(device == HOST_DEVICE for device in self.layer_devices()[:-1])

    def settled(self) -> MemoryRequest:
        """With what llama.cpp makes of flash_attn="auto": off, where a card that has layers has no kernel for them.

        Quantized values turn it on (llama-context.cpp:557, 3840).
        """
        is_open = self.settings.flash_attn == "auto" and self.settings.type_v in UNQUANTIZED
        if not is_open or self.takes_heads or self.shares_tensors:
            return self
        return replace(self, settings=self.settings.but(flash_attn="off"), lost_flash_attention=True)

    @property
    def is_verified(self) -> bool:
        """Whether plans were compared with real loads for the backends of all devices and for this size of heads."""
        return self.takes_heads and self.backends <= VERIFIED_BACKENDS

    def require_verified(self) -> None:
        """Raise UnsupportedArchitecture for a card whose backend was never compared with a plan, or lacks a kernel."""
        if not self.takes_heads:
            raise UnsupportedArchitecture(
                f"CUDA's flash attention has no kernel for the heads of {self.model.name}, with keys of "
                f"{self.heads[0]} and values of {self.heads[1]} numbers. Plan with flash_attn='off' or 'auto', and "
                "type_v='f16'."
            )
        if not self.is_verified:
            cards = ", ".join(f"{device.name} ({device.backend}, {device.description})" for device in self.gpus)
            raise UnsupportedArchitecture(
                f"{cards} is not on this machine, and how its backend allocates for {self.model.name} is not known "
                "here. Plan on the machine that has it, or for a CUDA card; weights and cache are the same."
            )

    @cached_property
    def too_many(self) -> tuple[str, ...]:
        """A note on a load that llama.cpp aborts since its graph has too many tensors; none where it has not."""
        return too_many_note(self.model, self.settings, self.layer_devices())

    @cached_property
    def aborts(self) -> tuple[str, ...]:
        """Notes on why llama.cpp aborts the load, however much memory is free; none where it does not."""
        too_large = self.cache_bytes is not None and not self.shares_tensors
        layers = self.layer_devices()
        return self.too_many + (too_large_cache(self.model, self.settings, layers, self.gpus) if too_large else ())

    @property
    def can_simulate(self) -> bool:
        return self.simulate and not self.model.encoder_bytes and not self.aborts and can_simulate()

    @property
    def no_simulation(self) -> str:
        """Why nothing was simulated, in a clause."""
        if self.model.encoder_bytes:
            return "llama.cpp, whose simulation could tell, refuses a file with an encoder beside the language model"
        why = "aborts, too" if self.aborts else "is not installed here" if self.simulate else "was not asked"
        return f"llama.cpp's simulation, which could tell, {why}"

    @property
    def sums_bytes(self) -> int:
        """Bytes of each device's buffers for partial sums of the others; 0 where devices have layers of their own.

        Experts of the last block count for nothing: it computes only the tokens whose logits are wanted.
        """
        layers = self.layer_devices()
        if not self.shares_tensors or all(layer == HOST_DEVICE for layer in layers):
            return 0
        on_devices = {i for i, layer in enumerate(layers[:-2]) if layer != HOST_DEVICE}
        experts = any(
            tensor.name not in self.moved and layer_of(tensor, self.model) in on_devices
            for tensor in self.model.tensors
            if EXPERT_SUMS.fullmatch(tensor.name)
        )
        return self.tensor_split.sum_buffer_bytes(tokens_reserved(self.settings), experts)
