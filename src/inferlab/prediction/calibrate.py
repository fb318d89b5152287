"""Measures a machine's rates for a `Calibration`, with llama.cpp itself, in about four minutes.

Single operations give the rates of arithmetic and memory, small models the rest, and other models the error:

products   a matrix of each type, in the buffer that llama.cpp would choose and in the file's own layout: one token for
           matrices that no cache holds, and batches of tokens, for several shapes (`rate_fits` has the fit)
attention  keys and values of each type, with heads of several sizes, shared and not
overhead   a tiny model with two blocks and with eighteen; a model of narrow matrices for norms, additions, rotations
link       the connection alone, and a run that sends every block to the device as a split of its own; also with relays
disk       a model's file, after its pages were dropped from the page cache
checks     models of other shapes and mixed types, which took no part in the rates: run in rounds, and predicted

Operations are measured in rounds, so that a disturbance of some seconds affects one round of each; a rate comes from
the median of the rounds. The factors by which the checks took longer than their operations alone correct a plan, and
what remains, each check corrected by the others alone, sets its band.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import product
from pathlib import Path
from typing import Any

from inferlab.engine import libraries
from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.engine.session import default_engine
from inferlab.errors import DeviceUnavailable
from inferlab.machine import HOST_DEVICE, Ceiling, Link, physical_cores
from inferlab.measurement import ceilings
from inferlab.measurement.ceilings import LinkCeiling
from inferlab.measurement.memory import context_bytes
from inferlab.measurement.operations import Attention, Product, timed
from inferlab.model.ggml_types import CELL_STEP, tensor_type
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.kernels import KERNEL_OF_BUFFER
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.calibration import Calibration, Check, Timing
from inferlab.prediction.memory.placement import placed_layers
from inferlab.prediction.rate_fits import attention_rates, matrix_rates
from inferlab.prediction.rates import LOOPBACK, DeviceKey, DeviceRates, LinkRates, host_rates
from inferlab.prediction.speed import PlacedModel, for_last_token, matrices
from inferlab.settings import Settings
from inferlab.units import MIB

ROUNDS = 3
TYPES = (
    "F16",
    "BF16",
    "Q8_0",
    "Q6_K",
    "Q5_K",
    "Q5_1",
    "Q5_0",
    "Q4_K",
    "Q4_1",
    "Q4_0",
    "IQ4_NL",
    "IQ4_XS",
    "Q3_K",
    "Q2_K",
)
BATCHES = (
    (1536, 1536, 32),
    (1536, 1536, 128),
    (1536, 1536, 512),
    (3072, 768, 32),
    (3072, 768, 512),
    (768, 3072, 32),
    (768, 3072, 512),
    (512, 512, 32),
    (512, 512, 512),
)
ONE_TOKEN = ((512, 512), (2048, 2048), (4096, 1024))
STREAMED_BYTES = 128 * MIB  # of the matrices that one token is multiplied with
CACHES = (("F16", True), ("Q8_0", True), ("Q4_0", True), ("F16", False))
HEADS = (64, 128, 256)
CACHED_BYTES = 64 * MIB  # of keys and values that one token attends to
CELLS, BATCH_DEPTH, BATCH = 1024, 256, 256

BASE_SHAPE = "llama-3.2-1b"
UBATCH = 512
N_GEN, N_GEN_LARGE_SHAPE, N_GEN_HANDOVER = 24, 8, 12
DELAY, SLOW_GIGABYTES_PER_SECOND, FAST_GIGABYTES_PER_SECOND = 1e-3, 0.05, 5.0
TINY_SHAPE = {"n_embd": 128, "n_head": 2, "n_head_kv": 1, "head_dim": 64, "n_ff": 256, "n_vocab": 512}
NARROW_SHAPE = {"n_layer": 8, "n_embd": 512, "n_head": 8, "n_head_kv": 2, "head_dim": 64, "n_ff": 1536, "n_vocab": 2048}
HANDOVER_SHAPE = {
    "n_layer": 4,
    "n_embd": 1024,
    "n_head": 16,
    "n_head_kv": 4,
    "head_dim": 64,
    "n_ff": 2048,
    "n_vocab": 2048,
}
ACTIVATIONS = 4 * (2 * 1024 + 2 * 4 * 64)  # bytes of a token's queries, keys, values and result in HANDOVER_SHAPE
CEILINGS = ("F16", "Q4_K")
CHECK_ROUNDS = 3
MOST_MATRICES = 1000

CHECKS = {
    "wide": ("Q4_K_M", {"n_layer": 4, "n_embd": 3072, "n_head": 24, "n_head_kv": 8, "head_dim": 128, "n_ff": 8192}),
    "deep": ("Q5_K_M", {"n_layer": 20, "n_embd": 1024, "n_head": 16, "n_head_kv": 2, "head_dim": 64, "n_ff": 3584}),
    "unshared": ("Q8_0", {"n_layer": 6, "n_embd": 2048, "n_head": 16, "n_head_kv": 16, "head_dim": 128, "n_ff": 5504}),
    "fallback": ("Q4_K_M", {"n_layer": 12, "n_embd": 1600, "n_head": 25, "n_head_kv": 5, "head_dim": 64, "n_ff": 4320}),
}
"""Mix and dimensions of each check. In "fallback" no row fills blocks of 256, so that other types replace Q4_K."""
CHECK_VOCABULARY = 8192


@dataclass(frozen=True)
class CheckRequest:
    """A check: the model, the prompt, and the settings that it changes."""

    shape: str
    n_prompt: int
    changes: dict[str, Any] = field(default_factory=dict)


HOST_REQUESTS = (
    CheckRequest("wide", 96),
    CheckRequest("deep", 300, {"flash_attn": "off"}),
    CheckRequest("unshared", 600, {"type_k": "q8_0", "type_v": "q8_0"}),
    CheckRequest("fallback", 200),
)
DEVICE_REQUESTS = (
    CheckRequest("wide", 200, {"n_gpu_layers": 2}),
    CheckRequest("deep", 96),
    CheckRequest("unshared", 400, {"offload_kqv": False, "flash_attn": "off"}),
)


def calibrate(save: bool = True, engine: LlamaEngine | None = None) -> Calibration:
    """Measure this machine: the host with one thread and with all its cores, each device, and the links to them.

    Includes a loopback device where llama.cpp has the RPC backend. Takes about four minutes on two cores; `save`
    writes the result to the cache folder. Raises EngineError.
    """
    engine = engine or default_engine()
    began = time.perf_counter()
    runs = _CalibrationRuns(engine)
    machine, cores = engine.machine(), physical_cores()
    runs.measure_host(sorted({1, cores}))
    for gpu in machine.gpus:
        if gpu.backend != "RPC":
            runs.measure_card(gpu.name, DeviceKey.from_parts(HOST_DEVICE, cores))
    if "rpc" in libraries.backends():
        runs.measure_loopback()
    disk = ceilings.disk(check_path("wide"))
    seconds = time.perf_counter() - began
    result = Calibration(
        machine,
        date.today().isoformat(),
        runs.devices,
        runs.links,
        runs.ceilings,
        tuple(runs.checks),
        tuple(runs.timings),
        tuple(runs.products),
        tuple(runs.attentions),
        seconds,
        disk,
        runs.contexts,
    ).with_bands()
    if save:
        result.save()
    return result


class _CalibrationRuns:
    """The measurements of one calibration, and the rates computed from them."""

    def __init__(self, engine: LlamaEngine) -> None:
        self.engine = engine
        self.timings: list[Timing] = []
        self.checks: list[Check] = []
        self.products: list[Product] = []
        self.attentions: list[Attention] = []
        self.devices: dict[str, DeviceRates] = {}
        self.contexts: dict[str, int] = {}
        self.links: dict[str, LinkRates] = {}
        self.ceilings: dict[str, Ceiling] = {}
        self.handovers: dict[str, tuple[float, float]] = {}

    # --- devices ------------------------------------------------------------------------------

    def measure_host(self, threads: list[int]) -> None:
        """Measure the host with each number of threads, and its ceilings with the most."""
        repacked = self.repacked_types()
        operations = [operation for n in threads for operation in operations_of(n, repacked)]
        products, attentions = self.time_operations(operations, "CPU")
        for n in threads:
            settings = Settings(n_gpu_layers=0, n_threads=n, devices=())
            rates = DeviceRates(
                HOST_DEVICE,
                n,
                True,
                ceilings.host_bandwidth(n, 0.1),
                matrix_rates(p for p in products if p.n_threads == n),
                attention_rates((a for a in attentions if a.n_threads == n), on_cpu=True),
            )
            self.devices[DeviceKey.from_parts(HOST_DEVICE, n)] = self.with_overhead(rates, settings)
        self.ceilings[DeviceKey.from_parts(HOST_DEVICE, n)] = ceilings.ceiling(
            HOST_DEVICE, n, CEILINGS, 0.1, self.engine
        )
        self.check(
            [
                (DeviceKey.from_parts(HOST_DEVICE, n), settings_of(request, n), request)
                for n in threads
                for request in HOST_REQUESTS
            ]
        )

    def measure_card(self, name: str, host: str) -> None:
        """Measure a card of this machine: memory of its context, rates, ceilings, link."""
        self.measure_context_bytes(name)
        settings = Settings(devices=(name,))
        products, attentions = self.time_operations(operations_of(None), name)
        rates = DeviceRates(
            name,
            None,
            False,
            ceilings.device_bandwidth(name, 0.1, self.engine),
            matrix_rates(products),
            attention_rates(attentions, on_cpu=False),
        )
        self.devices[name] = self.with_overhead(rates, settings)
        self.ceilings[name] = ceilings.ceiling(name, None, CEILINGS, 0.1, self.engine)
        self.links[name] = self.link(name, settings, self.devices[name], self.devices[host])
        self.check([(name, settings.but(**request.changes), request) for request in DEVICE_REQUESTS], host)

    def measure_context_bytes(self, name: str) -> None:
        """Measure the bytes of a card's context, where its driver counts memory."""
        with suppress(DeviceUnavailable):
            self.contexts[name] = context_bytes(name, self.engine)

    def measure_loopback(self) -> None:
        """Measure a loopback device, its link, and the same link through slowed relays.

        The device is ggml's CPU backend in another process: its operations take what the host's do with as many
        threads and nothing repacked.
        """
        with loopback_device() as device:
            name, settings = DeviceKey.from_parts(LOOPBACK, device.n_threads), device.settings()
            like_host = host_rates(self.devices, device.n_threads)
            own_layout = {key: rates for key, rates in like_host.matrices.items() if not key.buffer}
            rates = replace(
                like_host, name=name, matrices=own_layout, step_seconds=0.0, block_seconds=0.0, value_seconds=0.0
            )
            self.devices[name] = self.with_overhead(rates, settings)
            one_thread = DeviceKey.from_parts(HOST_DEVICE, 1)
            device_and_host = self.devices[name], self.devices[one_thread]
            self.links[name] = self.link(name, settings, *device_and_host, device.endpoint)
            self.check([(name, settings.but(**request.changes), request) for request in DEVICE_REQUESTS], one_thread)
        self.links[name] = self.relayed_link(name, self.links[name], *device_and_host)

    # --- operations -----------------------------------------------------------------------------

    def repacked_types(self) -> list[str]:
        """The types whose matrices llama.cpp keeps in an extra buffer on this processor."""
        tried = {"n_rows": 64, "n_cols": 256, "n_tokens": 1, "n_matrices": 1, "seconds": 0.0, "least_passes": 1}
        buffers = {type: self.engine.multiply("CPU", 1, type=type, **tried)[1] for type in TYPES}
        return [type for type, buffer in buffers.items() if buffer in KERNEL_OF_BUFFER]

    def time_operations(self, operations: list[Product | Attention], device: str) -> tuple[list, list]:
        """Time the operations in rounds and keep them; (products, attentions)."""
        results = timed(operations, device, ROUNDS, self.engine)
        products = [result for result in results if isinstance(result, Product)]
        attentions = [result for result in results if isinstance(result, Attention)]
        self.products += products
        self.attentions += attentions
        return products, attentions

    def with_overhead(self, rates: DeviceRates, settings: Settings) -> DeviceRates:
        """The rates of operations with those of steps, blocks and values, from runs of small models."""
        step, block = self.overhead(rates, settings)
        rates = replace(rates, step_seconds=step, block_seconds=block)
        return replace(rates, value_seconds=self.value_seconds(rates, settings))

    def overhead(self, rates: DeviceRates, settings: Settings) -> tuple[float, float]:
        """Seconds of a step and of a block, from two models whose operations take little."""
        # seconds(n blocks) - operations = step + n * block, at two n.
        few, many = 2, 18
        rest = []
        for n in (few, many):
            path = small_model("F16", TINY_SHAPE | {"n_layer": n})
            took = self.run(rates.name, path, settings, 16)
            rest.append(took.decode - operation_seconds(read_gguf(path), settings, rates, 1, took.depth))
        block = max(0.0, (rest[1] - rest[0]) / (many - few))
        return max(0.0, rest[0] - few * block), block

    def value_seconds(self, rates: DeviceRates, settings: Settings) -> float:
        """Seconds of a value that enters or leaves a matrix: what narrow matrices take beside their operations."""
        path = small_model("Q8_0", NARROW_SHAPE)
        took, model = self.run(rates.name, path, settings, UBATCH, 3, 2), read_gguf(path)
        rest = took.prefill - operation_seconds(model, settings, rates, UBATCH, 0)
        n_values = sum(sum(t.shape[:2]) for t, _ in matrices(model) if not for_last_token(t, model))
        return max(0.0, rest) / (UBATCH * n_values)

    # --- links ----------------------------------------------------------------------------------

    def link(
        self, name: str, settings: Settings, far: DeviceRates, host: DeviceRates, endpoint: str | None = None
    ) -> LinkRates:
        """Rates of the link, and the time added for each block whose attention returns to the host.

        seconds for each block = split_seconds + activations / bytes_per_second
        """
        ceiling: LinkCeiling = ceilings.link(endpoint or name, 0.3, self.engine)
        _, each = self.handover_seconds(name, settings, far, host)
        each -= ACTIVATIONS / ceiling.to_device_bytes_per_second
        return LinkRates(ceiling.to_device_bytes_per_second, ceiling.round_trip_seconds, max(0.0, each))

    def relayed_link(self, name: str, direct: LinkRates, far: DeviceRates, host: DeviceRates) -> LinkRates:
        """The link with the time that a relay adds, the waits of each split, and the bytes of each split.

        `name` is the device without a relay, which was run before. A delayed and a slow relay are compared with a fast
        one, for each block:

        delayed - fast = split_waits * (round trip when delayed - round trip of the fast relay)
        slow - fast    = split_waits * (round trip when slow - round trip of the fast relay)
                         + (split_bytes + activations) / slow rate
        """
        direct_step, direct_block = self.handovers[name]

        def through(
            name: str, gigabytes_per_second: float | None, delay: float | None = None
        ) -> tuple[float, float, Link]:
            with loopback_device(gigabytes_per_second, delay) as device:
                if device.link is None:
                    raise DeviceUnavailable("The loopback device started without a relay, so its link has no rate.")
                return *self.handover_seconds(name, device.settings(), far, host), device.link

        fast_step, fast, fast_link = through("fast", FAST_GIGABYTES_PER_SECOND)
        trip = fast_link.round_trip_seconds
        _, delayed, delayed_link = through("delayed", None, DELAY)
        waits = (delayed - fast) / max(delayed_link.round_trip_seconds - trip, 1e-6)
        _, slow, slow_link = through("slow", SLOW_GIGABYTES_PER_SECOND)
        extra = max(0.0, slow_link.round_trip_seconds - trip)
        n_bytes = (slow - fast - waits * extra) * 1e9 * slow_link.achieved_gigabytes_per_second - ACTIVATIONS
        return replace(
            direct,
            split_waits=max(0.0, waits),
            split_bytes=max(0.0, n_bytes),
            relay_round_trip_seconds=trip,
            relay_step_seconds=max(0.0, fast_step - direct_step),
            relay_split_seconds=max(0.0, fast - direct_block),
        )

    def handover_seconds(
        self, name: str, settings: Settings, far: DeviceRates, host: DeviceRates
    ) -> tuple[float, float]:
        """Seconds of a token, and seconds added for each block whose cache is on the host, without attention."""
        # decode with the cache on the host - decode with all on the device
        #   = blocks * seconds added for each + attention on the host - attention on the device
        path = small_model("Q4_K_M", HANDOVER_SHAPE)
        off = settings.but(flash_attn="off")
        on_device, on_host = (
            self.run(name, path, off.but(offload_kqv=offload), 32, n_gen=N_GEN_HANDOVER) for offload in (True, False)
        )
        model, attends = read_gguf(path), off.but(n_ctx=512)
        host_attention, device_attention = (
            attention_seconds(model, attends, rates, on_device.depth) for rates in (host, far)
        )
        added = on_host.decode - on_device.decode - (host_attention - device_attention)
        self.handovers[name] = on_device.decode, added / HANDOVER_SHAPE["n_layer"]
        return self.handovers[name]

    # --- runs of models -------------------------------------------------------------------------

    def run(
        self, device: str, path: Path, settings: Settings, n_prompt: int, passes: int = 2, n_gen: int = N_GEN
    ) -> Timing:
        """One short warm-up, then the timed passes."""
        settings = settings.but(n_ctx=n_prompt + CELL_STEP, n_ubatch=UBATCH, load_mode="none")
        self.engine.open(path, settings)
        prompt = self.engine.random_prompt(n_prompt)
        self.engine.generate(prompt[:8], 2)
        generations = [self.engine.generate(prompt, n_gen) for _ in range(passes)]
        changed = {k: v for k, v in settings.to_dict().items() if v != getattr(Settings(), k)}
        seconds = tuple(s for generation in generations for s in generation.decode_seconds)
        prefill = tuple(g.prefill_seconds for g in generations if g.prefill_seconds is not None)
        self.timings.append(Timing(device, path.stem, n_prompt, changed, prefill, seconds, n_gen))
        return self.timings[-1]

    def check(self, requests: list[tuple[str, Settings, CheckRequest]], host: str | None = None) -> None:
        """Predict other models from operations, run them in rounds, and keep both."""
        timings_of: list[list[Timing]] = [[] for _ in requests]
        for _ in range(CHECK_ROUNDS):
            for timings, (name, settings, request) in zip(timings_of, requests, strict=True):
                path = check_path(request.shape)
                timings.append(self.run(f"check {name}", path, settings, request.n_prompt, 1, N_GEN_LARGE_SHAPE))
        for timings, (name, settings, request) in zip(timings_of, requests, strict=True):
            placed = self.placed(settings, request, name, host or name)
            depth = timings[0].depth
            prefill = sum(t.seconds for t in placed.prefill(request.n_prompt)) - placed.overlap(request.n_prompt)
            predicted = {"prefill": prefill, "decode": sum(t.seconds for t in placed.decode(depth))}
            taken = {"prefill": tuple(t.prefill for t in timings), "decode": tuple(t.decode for t in timings)}
            self.checks.append(Check(name, request.shape, settings, request.n_prompt, predicted, taken))

    def placed(self, settings: Settings, request: CheckRequest, name: str, host: str) -> PlacedModel:
        """The model of a check on its devices, with the rates measured so far."""
        path = check_path(request.shape)
        model, far = read_gguf(path), name if name != host else None
        settings = settings.but(n_ctx=request.n_prompt + CELL_STEP, n_ubatch=UBATCH)
        rates = {HOST_DEVICE: self.devices[host]} | ({"gpu0": self.devices[far]} if far else {})
        layers = placed_layers(model.n_layer, settings, [1.0] if far else [])
        return PlacedModel(model, settings, layers, rates, {"gpu0": self.links[far]} if far else {})


def operations_of(n_threads: int | None, repacked: Sequence[str] = ()) -> list[Product | Attention]:
    """Every operation that is timed with so many threads; the repacked types also in the file's own layout."""
    layouts = [(type, True) for type in TYPES] + [(type, False) for type in repacked]
    return [timed_product for layout in layouts for timed_product in _products(*layout, n_threads)] + _attentions(
        n_threads
    )


def _products(type: str, extra_bufts: bool, n_threads: int | None) -> list[Product]:
    batches = [Product(type, *shape, 1, n_threads, extra_bufts) for shape in BATCHES]
    sizes = {shape: tensor_type(type).bytes_of(shape[0] * shape[1]) for shape in ONE_TOKEN}
    return batches + [
        Product(type, *shape, 1, min(MOST_MATRICES, max(1, STREAMED_BYTES // n_bytes)), n_threads, extra_bufts)
        for shape, n_bytes in sizes.items()
    ]


def _attentions(n_threads: int | None) -> list[Attention]:
    """For each type, path and size of a head: one query over shared and over unshared heads, and a batch."""
    operations: list[Attention] = []
    for (type, flash), head_dim in product(CACHES, HEADS):
        values = type if flash else "F16"
        for n_head_kv in (2, 8):
            single = Attention(type, values, flash, head_dim, 8, n_head_kv, 1, CELLS, CELLS - 1, 1, n_threads)
            operations.append(replace(single, n_blocks=max(1, CACHED_BYTES // (single.cell_bytes * CELLS))))
        cells = BATCH_DEPTH + BATCH
        operations.append(Attention(type, values, flash, head_dim, 8, 2, BATCH, cells, BATCH_DEPTH, 1, n_threads))
    return operations


def placed_on_host(model: Model, settings: Settings, rates: DeviceRates) -> PlacedModel:
    """All of a model on one device, whose link is not counted."""
    settings = settings if settings.n_ctx else settings.but(n_ctx=UBATCH + CELL_STEP)
    return PlacedModel(model, settings, (HOST_DEVICE,) * (model.n_layer + 1), {HOST_DEVICE: rates}, {})


def attention_seconds(model: Model, settings: Settings, rates: DeviceRates, depth: int) -> float:
    """Predicted seconds of one token's attention in all blocks."""
    return sum(term.seconds for term in placed_on_host(model, settings, rates).attention(1, depth))


def operation_seconds(model: Model, settings: Settings, rates: DeviceRates, n_tokens: int, depth: int) -> float:
    """Predicted seconds of a step's operations, and of the overhead that is known."""
    placed = placed_on_host(model, settings, rates)
    terms = *placed.weights(n_tokens, True), *placed.attention(n_tokens, depth), *placed.overhead(n_tokens)
    return sum(term.seconds for term in terms)


def check_path(name: str) -> Path:
    """The file of a check's model."""
    mix, size = CHECKS[name]
    return small_model(mix, size | {"n_vocab": CHECK_VOCABULARY})


def small_model(mix: str, dimensions: dict[str, int]) -> Path:
    """The file of a model of the base's architecture with other dimensions."""
    return make_shape(BASE_SHAPE, mix, None, header_only=False, progress=False, **dimensions)


def settings_of(request: CheckRequest, n_threads: int) -> Settings:
    """Settings of a check on the host alone."""
    return Settings(n_gpu_layers=0, n_threads=n_threads, devices=()).but(**request.changes)
