"""Three ways to a memory plan: closed form, llama.cpp's own dry run, or a bound between two ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from inferlab.engine import libraries
from inferlab.engine.devices import used_devices
from inferlab.errors import DeviceUnavailable, EngineUnavailable, InvalidSettings, UnsupportedArchitecture
from inferlab.machine import Device, Machine
from inferlab.model.gguf import Model
from inferlab.prediction.memory.cache import batches, cache_layers, cells, layer_bytes
from inferlab.prediction.memory.compute import (
    DENSE,
    compute_bytes,
    embedded_bytes,
    head_bytes,
    output_bytes,
    outputs_reserved,
    uses_flash_attention,
)
from inferlab.prediction.memory.placement import HOST, placed_layers, tied_output_bytes, weights_of_layers
from inferlab.prediction.memory.plan import BOUND, CLOSED_FORM, ORACLE, DeviceBytes, LayerBytes, MemoryPlan
from inferlab.settings import UNQUANTIZED, Settings

if TYPE_CHECKING:
    from inferlab.engine.dry_run import Simulation

COPIES_IN_FLIGHT = 4  # GGML_SCHED_MAX_COPIES, ggml-backend.cpp: batches on their way through several cards
PROVEN = frozenset(["CUDA", "RPC"])  # backends whose buffers the closed form and the stand-in were held against
# (head_dim_k, head_dim_v) that CUDA's flash attention takes; with others llama.cpp turns it off (fattn.cu:576-620).
CUDA_HEADS = {(n, n) for n in (40, 64, 72, 80, 96, 112, 128, 256, 512)} | {(192, 128), (320, 256), (576, 512)}
SECOND_COPIES = (
    "Host weights are the bytes of their tensors. llama.cpp may keep a second, repacked copy of some beside the mapped "
    "file (its buffers AMX and CPU_REPACK), depending on the processor; those copies are not in this plan."
)
STOOD_IN = "The card is not on this machine: a loopback device stood in for it in llama.cpp's simulation."


def planned_devices(settings: Settings, machine: Machine | None) -> tuple[Device, ...]:
    """The devices that a plan calls gpu0, gpu1, ...: those of `settings.rpc_servers`, then the machine's own.

    Raises InvalidSettings for what `used_devices` refuses.
    """
    far = [Device(f"RPC{i}", endpoint, "gpu", backend="RPC") for i, endpoint in enumerate(settings.rpc_servers)]
    near = [device for device in (machine.devices if machine else ()) if device.backend != "RPC"]
    found = tuple(device for device in used_devices(settings, [*far, *near]) if device.kind in ("gpu", "igpu"))
    if found and settings.split_mode not in ("layer", "none"):
        raise InvalidSettings(f"split_mode={settings.split_mode!r} cannot be planned; use 'layer' or 'none'.")
    return found


def require_simulation() -> None:
    """Raise EngineUnavailable where llama.cpp cannot be asked: it is not installed, or there are no processes."""
    try:
        libraries.folder()
        import inferlab.engine.dry_run  # noqa: F401
    except ImportError as error:
        raise EngineUnavailable(f"llama.cpp cannot run here: {error}. Its simulation needs a process.") from error


def can_simulate() -> bool:
    """Whether llama.cpp can be asked for a simulation here."""
    try:
        require_simulation()
    except EngineUnavailable:
        return False
    return True


@dataclass(frozen=True)
class MemoryPlanner:
    """One model under one request on certain devices, and the three ways to an answer."""

    model: Model
    settings: Settings
    gpus: tuple[Device, ...]
    per_sequence: bool

    # --- the three ways -----------------------------------------------------------------------

    def closed_form(self) -> MemoryPlan | None:
        """Where every part of it is exact: the host alone, or everything on one device."""
        if self.caches is None or (self.gpus and not (self.all_on_one and self.proven)):
            return None
        compute = compute_bytes(self.model, self.settings, self.n_outputs, bool(self.gpus))
        return compute and self.plan(CLOSED_FORM, self.placed(), self.caches, compute)

    def from_oracle(self) -> MemoryPlan | None:
        """From llama.cpp's simulation, on the very devices, or on a stand-in where that is known to agree.

        A loopback device serves one client at a time, and the engine may be it: another one answers for it.
        """
        if self.attends_apart or not can_simulate():
            return None
        from inferlab.engine import dry_run
        from inferlab.engine.loopback import is_loopback

        if len(self.gpus) == 1 and is_loopback(self.gpus[0].description):
            return self.simulated(dry_run.simulate_stand_in(self.model, self.settings, self.n_outputs_max))
        if self.devices_are_here:
            return self.simulated(dry_run.simulate(self.model, self.settings_here, self.n_outputs_max))
        if self.all_on_one and not self.quantized:
            self.require_proven()
            return self.simulated(self.on_stand_in(), STOOD_IN)
        return None

    def bound(self) -> MemoryPlan:
        """Compute between two ends: what any card must hold at once, and full offload plus all that can be staged.

        The compute bytes of full offload and of the host alone are simulated, or, where llama.cpp is not installed,
        in closed form.
        """
        self.require_proven()
        whole = self.compute_of_full_offload()
        layers, caches = self.placed(), self.caches or self.told_caches(self.on_stand_in())
        ranges = {f"gpu{i}": self.range_on(f"gpu{i}", whole, layers, caches) for i in range(len(self.gpus))}
        most = self.compute_of_host_alone()[HOST] + whole.get(HOST, 0)
        ranges = {HOST: (embedded_bytes(self.model, self.settings), most), **ranges}
        return self.plan(BOUND, layers, caches, dict.fromkeys(ranges), (self.reason,), ranges)

    def require_proven(self) -> None:
        """Refuse an absent card of whose buffers nothing is known here."""
        if not self.proven:
            cards = ", ".join(f"{device.name} ({device.backend}, {device.description})" for device in self.gpus)
            raise UnsupportedArchitecture(
                f"{cards} is not on this machine, and how its backend allocates for {self.model.name} is not known "
                "here. Plan on the machine that has it, or for a CUDA card; weights and cache are the same."
            )

    # --- what they share ----------------------------------------------------------------------

    def plan(
        self,
        method: str,
        layers: Sequence[str],
        caches: Sequence[int],
        compute: dict[str, int | None],
        notes: tuple[str, ...] = (),
        ranges: dict[str, tuple[int, int]] | None = None,
    ) -> MemoryPlan:
        rows = self.rows(layers, caches)
        devices = {name: self.held(name, rows, compute.get(name, 0)) for name in self.names}
        notes += (SECOND_COPIES,) if HOST in layers else ()
        return MemoryPlan(self.model.card(), self.rounded, method, devices, rows, notes, ranges or {})

    def held(self, name: str, rows: Sequence[LayerBytes], compute: int | None) -> DeviceBytes:
        return DeviceBytes(
            sum(row.weights_bytes for row in rows if row.device == name),
            sum(row.kv_cache_bytes for row in rows if row.kv_cache_device == name),
            compute,
            output_bytes(self.model, self.settings) if name == HOST else 0,
        )

    def rows(self, layers: Sequence[str], caches: Sequence[int]) -> tuple[LayerBytes, ...]:
        """The input, each block, the output; what every device with blocks copies stands with its first one."""
        above, weights, shared = weights_of_layers(self.model)
        tied = tied_output_bytes(self.model) if layers[-1] != HOST else 0
        rows = [LayerBytes("input", HOST, above, HOST, 0)]
        for i, (device, cache) in enumerate(zip(layers[:-1], caches, strict=True)):
            copied = shared if device not in layers[:i] else 0
            far = device if self.settings.offload_kqv else HOST
            rows.append(LayerBytes(f"block {i}", device, weights[i] + copied, far, cache, i))
        return (*rows, LayerBytes("output", layers[-1], weights[-1] + tied, layers[-1], 0))

    def simulated(self, told: Simulation, *notes: str) -> MemoryPlan:
        caches = self.caches
        if caches is None:
            caches = self.told_caches(told)
            notes += ("The KV cache is llama.cpp's own figure, exact to the 0.01 MiB that it prints.",)
        return self.plan(ORACLE, told.layers, caches, told.compute_bytes, notes)

    def told_caches(self, told: Simulation) -> tuple[int, ...]:
        """Each layer's cache as simulated; the layers of one cache are equal but for rounding."""
        sizes = [0] * self.model.n_layer
        for cache in told.caches:
            for nth, layer in enumerate(cache.devices):
                share = cache.n_bytes * (nth + 1) // len(cache.devices) - cache.n_bytes * nth // len(cache.devices)
                sizes[layer] += share
        return tuple(sizes)

    def compute_of_full_offload(self) -> dict[str, int]:
        """Compute bytes with everything on one device."""
        if can_simulate():
            return self.on_stand_in().compute_bytes
        return self.compute_by_formula(self.fully_offloaded, on_device=True)

    def compute_of_host_alone(self) -> dict[str, int]:
        """Compute bytes with everything on the host."""
        alone = self.settings.but(devices=(), rpc_servers=())
        if not can_simulate():
            return self.compute_by_formula(alone, on_device=False)
        from inferlab.engine import dry_run

        return dry_run.simulate(self.model, alone, self.n_outputs_max).compute_bytes

    def compute_by_formula(self, settings: Settings, on_device: bool) -> dict[str, int]:
        """Compute bytes in closed form. Raises UnsupportedArchitecture where there is none."""
        found = compute_bytes(self.model, settings, self.n_outputs, on_device)
        if found is None:
            raise UnsupportedArchitecture(
                f"{self.model.name} ({self.model.architecture}) has no closed form under these settings, and "
                "llama.cpp, whose simulation could tell, is not installed here. Plan where it is."
            )
        return found

    @property
    def fully_offloaded(self) -> Settings:
        return self.settings.but(n_gpu_layers=-1, offload_kqv=True, split_mode="layer", tensor_split=None)

    def on_stand_in(self) -> Simulation:
        """Everything on one loopback device."""
        try:
            require_simulation()
            from inferlab.engine import dry_run

            return dry_run.simulate_stand_in(self.model, self.fully_offloaded, self.n_outputs_max)
        except (DeviceUnavailable, EngineUnavailable) as error:
            raise UnsupportedArchitecture(
                f"{self.model.name} ({self.model.architecture}) has no closed form under these settings, its device "
                f"is not on this machine, and nothing can stand in for it. {error}"
            ) from error

    def range_on(
        self, name: str, whole: dict[str, int], layers: Sequence[str], caches: Sequence[int]
    ) -> tuple[int, int]:
        """Least and most compute bytes of one card: see `bound`."""
        head = head_bytes(self.model, self.n_outputs) if layers[-1] == name else 0
        gated = self.model.architecture in DENSE and not self.model.number("expert_count")
        embedded = embedded_bytes(self.model, self.settings)
        inner = 3 * self.model.n_ff * embedded // self.model.n_embd if gated and name in layers[:-2] else 0
        least = max(inner, head)
        most = whole["gpu0"] * (COPIES_IN_FLIGHT if len(self.gpus) > 1 else 1)
        return least, most + self.staged(layers, caches) + self.scratch()

    def staged(self, layers: Sequence[str], caches: Sequence[int]) -> int:
        """Host weights and cache that a card copies in to work on a batch: a block's at a time, and the output's."""
        weights = weights_of_layers(self.model)[1]
        blocks = zip(layers[:-1], weights, caches, strict=False)
        most = max((w + cache for device, w, cache in blocks if device == HOST), default=0)
        most += weights[-1] + tied_output_bytes(self.model) if layers[-1] == HOST else 0
        return most if self.settings.offload_kqv else most + max(caches, default=0)

    def scratch(self) -> int:
        """One layer's keys and values as f16, which CUDA's flash attention makes of a quantized cache."""
        if not self.quantized:
            return 0
        as_f16 = self.settings.but(type_k="f16", type_v="f16")
        return max(layer_bytes(layer, as_f16) for layer in cache_layers(self.model))

    def placed(self) -> tuple[str, ...]:
        return placed_layers(self.model.n_layer, self.settings, self.shares)

    @property
    def shares(self) -> list[float]:
        """What each device gets in proportion to: tensor_split, or its free memory."""
        if self.settings.tensor_split is not None:
            return list(self.settings.tensor_split) if len(self.gpus) > 1 else [1.0]
        free = [device.free_bytes or device.memory_bytes for device in self.gpus]
        if len(free) > 1 and None in free:
            raise InvalidSettings("Several devices share a model by their free memory, and one does not tell it. "
                                  "Say the shares with tensor_split.")  # fmt: skip
        return [float(n or 1) for n in free]

    @cached_property
    def caches(self) -> tuple[int, ...] | None:
        """Bytes of each block's cache; None where only the simulation knows them."""
        try:
            return tuple(layer_bytes(layer, self.settings) for layer in cache_layers(self.model))
        except UnsupportedArchitecture:
            return None

    @property
    def rounded(self) -> Settings:
        """The settings with n_ctx and batches as llama.cpp cuts them."""
        streams, n_cells = cells(self.settings)
        n_batch, n_ubatch = batches(self.settings)
        sequences = self.settings.n_seq_max if streams > 1 else 1
        return self.settings.but(n_ctx=sequences * n_cells, n_batch=n_batch, n_ubatch=n_ubatch)

    @property
    def names(self) -> tuple[str, ...]:
        return (HOST, *(f"gpu{i}" for i in range(len(self.gpus))))

    @property
    def n_outputs(self) -> int:
        return outputs_reserved(self.settings, self.per_sequence)

    @property
    def n_outputs_max(self) -> int:
        return self.settings.n_seq_max if self.per_sequence else 0

    @property
    def quantized(self) -> bool:
        return not {self.settings.type_k, self.settings.type_v} <= set(UNQUANTIZED)

    @property
    def all_on_one(self) -> bool:
        everything = self.settings.n_gpu_layers < 0 or self.settings.n_gpu_layers > self.model.n_layer
        return len(self.gpus) == 1 and everything and self.settings.offload_kqv

    @property
    def proven(self) -> bool:
        """Whether all devices are of backends, and heads of sizes, that were held against real loads."""
        heads = self.model.head_dim_k, self.model.head_dim_v
        cuda = any(device.backend == "CUDA" for device in self.gpus)
        flash = not cuda or not uses_flash_attention(self.settings) or None in heads or heads in CUDA_HEADS
        return flash and {device.backend for device in self.gpus} <= PROVEN

    @property
    def devices_are_here(self) -> bool:
        """Whether llama.cpp can be asked about these very devices."""
        from inferlab.engine import dry_run

        own = {device.name for device in self.gpus if device.backend != "RPC"}
        return not own or own <= {device.name for device in dry_run.machine().gpus}

    @property
    def attends_apart(self) -> bool:
        """Whether layers on a device leave attention to the host, which llama.cpp's simulation forgets.

        Without flash attention the graph pins it to the host (llama-graph.cpp:2746); ggml_backend_sched_reserve_size
        resets that before it counts (ggml-backend.cpp:1982).
        """
        apart = not self.settings.offload_kqv and not uses_flash_attention(self.settings)
        return apart and any(layer != HOST for layer in self.placed()[:-1])

    @property
    def settings_here(self) -> Settings:
        """The request with its devices named, so that no other device of this machine takes part.

        RPC devices are not: the devices of several servers bear one name.
        """
        if any(device.backend == "RPC" for device in self.gpus):
            return self.settings
        return self.settings.but(devices=tuple(device.name for device in self.gpus), main_gpu=0)

    @property
    def reason(self) -> str:
        """Why only a bound can be given."""
        if self.attends_apart:
            return (
                "With offload_kqv=False and without flash attention the host computes attention for layers that lie on "
                "a device. llama.cpp's simulation forgets that, so compute lies between the two ends given."
            )
        cards = ", ".join(device.name for device in self.gpus)
        why = "a quantized cache" if self.all_on_one else "work shared with the host or another card"
        return (
            f"{cards} is not on this machine, and with {why} its compute buffer depends on what its backend does: "
            "it lies between the two ends given, which are no guess and no average."
        )
