"""Measures a machine's rates for a `Calibration`, with llama.cpp itself, in about a minute.

Single operations give the rates of arithmetic and memory, small models the rest, and other models the error:

products   a matrix of each type, in the buffer that llama.cpp would choose and in the file's own layout: one token for
           matrices that no cache holds, and batches of tokens, for several shapes (`rate_fits` has the fit)
attention  keys and values of each type, with heads of several sizes, shared and not
overhead   a tiny model with two blocks and with eighteen; a model of narrow matrices for norms, additions, rotations
link       the connection alone, and a run that sends every block to the device as a split of its own; also with relays
disk       a model's file, after its pages were dropped from the page cache
checks     models of other shapes and mixed types, which took no part in the rates: run in every round, and predicted

Everything is measured in rounds, operations, small models and checks in turn, and counts with the median of its rounds.
So a disturbance of some seconds affects one round, and a slow minute the checks as much as the operations: compared
with operations of a faster minute, checks would make every plan of their device too slow. The factors by which the
checks took longer than their operations alone correct a plan, and what remains, each check corrected by the others
alone, sets its band.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.engine import libraries
from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.engine.session import default_engine
from inferlab.errors import DeviceUnavailable
from inferlab.machine import HOST_DEVICE, Ceiling, Link, physical_cores
from inferlab.measurement import ceilings
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
    (512, 8192, 192),
    (3072, 768, 128),
    (768, 3072, 128),
    (512, 512, 128),
)
ONE_TOKEN = {(512, 512): 16 * MIB, (2048, 2048): 64 * MIB, (4096, 1024): 64 * MIB}
"""Rows and columns of the matrices that one token is multiplied with, and the bytes of as many as are read in turn.

The small ones show what a product costs by itself, so that it matters little whether a cache holds them.
"""
CACHES = (
    ("F16", True, (64, 128, 256)),
    ("Q8_0", True, (128,)),
    ("Q4_0", True, (128,)),
    ("F16", False, (64, 128)),
)
"""Types of keys and values, whether with flash attention, and the sizes of heads; others are between or beyond them."""
CACHED_BYTES = 32 * MIB  # of keys and values that one token attends to
CELLS, BATCH_DEPTH, BATCH = 1024, 256, 256

BASE_SHAPE = "llama-3.2-1b"
UBATCH = 512
N_GEN, N_GEN_LARGE_SHAPE, N_GEN_HANDOVER = 24, 12, 20
TINY_LAYERS = (2, 18)
LINK_SECONDS = 0.1
SENT_BYTES = 1 * MIB
"""Of a block that is copied to a device: about what one layer's cache sends for a token (ggml-backend.cpp:1808).

On a loopback device, larger blocks leave the processor's caches, so that each byte takes longer.
"""
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
MOST_MATRICES = 1000

CHECKS = {
    "wide": ("Q3_K_M", {"n_layer": 2, "n_embd": 3072, "n_head": 24, "n_head_kv": 8, "head_dim": 128, "n_ff": 8192}),
    "wider": ("Q2_K", {"n_layer": 2, "n_embd": 4096, "n_head": 32, "n_head_kv": 8, "head_dim": 128, "n_ff": 12288}),
    "deep": ("Q5_K_M", {"n_layer": 12, "n_embd": 1024, "n_head": 16, "n_head_kv": 2, "head_dim": 64, "n_ff": 3584}),
    "unshared": ("Q8_0", {"n_layer": 2, "n_embd": 2048, "n_head": 16, "n_head_kv": 16, "head_dim": 128, "n_ff": 5504}),
    "fallback": ("Q4_K_M", {"n_layer": 6, "n_embd": 1600, "n_head": 25, "n_head_kv": 5, "head_dim": 64, "n_ff": 4320}),
    "whole": ("BF16", {"n_layer": 2, "n_embd": 1536, "n_head": 12, "n_head_kv": 2, "head_dim": 128, "n_ff": 6144}),
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
    CheckRequest("wider", 80),
    CheckRequest("deep", 160, {"flash_attn": "off"}),
    CheckRequest("unshared", 290, {"type_k": "q8_0", "type_v": "q8_0"}),
    CheckRequest("fallback", 120),
    CheckRequest("whole", 110),
)
DEVICE_REQUESTS = (
    CheckRequest("wide", 96, {"n_gpu_layers": 2}),
    CheckRequest("wider", 120, {"offload_kqv": False, "flash_attn": "off"}),
    CheckRequest("deep", 80),
    CheckRequest("unshared", 160, {"offload_kqv": False, "flash_attn": "off"}),
    CheckRequest("fallback", 100, {"offload_kqv": False, "flash_attn": "on"}),
    CheckRequest("whole", 110),
)


def calibrate(save: bool = True, engine: LlamaEngine | None = None) -> Calibration:
    """Measure this machine: the host with one thread and with all its cores, each device, and the links to them.

    Includes a loopback device where llama.cpp has the RPC backend. Takes about a minute on two cores, and longer the
    first time, when it makes the files of its models; `save` writes the result to the cache folder. Raises EngineError.
    """
    engine = engine or default_engine()
    began = time.perf_counter()
    runs = _CalibrationRuns(engine)
    machine, cores = engine.machine(), physical_cores()
    runs.measure(
        sorted({1, cores}), [gpu.name for gpu in machine.gpus if gpu.backend != "RPC"], "rpc" in libraries.backends()
    )
    disk = ceilings.disk(check_path("wide"))
    seconds = time.perf_counter() - began
    result = Calibration(
        machine,
        date.today().isoformat(),
        runs.devices,
        runs.links,
        runs.ceilings,
        tuple(runs.checks),
        tuple(map(_merged, runs.timings.values())),
        tuple(runs.timed_of(Product)),
        tuple(runs.timed_of(Attention)),
        seconds,
        disk,
        runs.contexts,
    ).with_bands()
    if save:
        result.save()
    return result


@dataclass(frozen=True)
class _Run:
    """A short run of a model, once in every round; `device` names it in the record."""

    device: str
    path: Path
    settings: Settings
    n_prompt: int
    n_gen: int = N_GEN


@dataclass(frozen=True)
class _Place:
    """A device as its rounds measure it.

    key         its name in the calibration
    device      ggml's name, or the endpoint of an RPC server
    operations  those that are timed on it; none on a loopback device, which computes as the host does
    checks      models that are predicted and run there
    linked      whether it is behind a link
    """

    key: str
    device: str
    settings: Settings
    operations: Sequence[Product | Attention]
    checks: Sequence[CheckRequest]
    linked: bool

    @property
    def n_threads(self) -> int | None:
        return DeviceKey(self.key).n_threads

    @property
    def runs(self) -> list[_Run]:
        """All its runs, in the order in which a round takes them."""
        beside = [*self.tiny(), self.narrow(), *(handover_runs(self.key, self.settings) if self.linked else ())]
        return [*beside, *map(self.check, self.checks)]

    def tiny(self) -> list[_Run]:
        """Two models whose operations take little."""
        paths = (small_model("F16", TINY_SHAPE | {"n_layer": n}) for n in TINY_LAYERS)
        return [_Run(self.key, path, self.settings, 16) for path in paths]

    def narrow(self) -> _Run:
        """A model of narrow matrices, with a prompt that fills a ubatch."""
        return _Run(self.key, small_model("Q8_0", NARROW_SHAPE), self.settings, UBATCH, 2)

    def check(self, request: CheckRequest) -> _Run:
        settings = self.settings.but(**request.changes)
        return _Run(f"check {self.key}", check_path(request.shape), settings, request.n_prompt, N_GEN_LARGE_SHAPE)


class _CalibrationRuns:
    """The measurements of one calibration, and the rates computed from them."""

    def __init__(self, engine: LlamaEngine) -> None:
        self.engine = engine
        self.timings: dict[_Run, list[Timing]] = {}
        self.operations: dict[str, list[Product | Attention]] = {}
        self.transfers: dict[str, list[tuple[float, float]]] = {}
        self.checks: list[Check] = []
        self.devices: dict[str, DeviceRates] = {}
        self.contexts: dict[str, int] = {}
        self.links: dict[str, LinkRates] = {}
        self.ceilings: dict[str, Ceiling] = {}

    def measure(self, threads: list[int], cards: Sequence[str], with_loopback: bool) -> None:
        """Measure everything in rounds, and then compute the rates of each device and its checks."""
        for card in cards:
            self.measure_context_bytes(card)
        places = [*self.host_places(threads), *map(card_place, cards)]
        with loopback_device() if with_loopback else nullcontext() as device:
            if device:
                places.append(loopback_place(device))
            for _ in range(ROUNDS):
                for place in places:
                    self.take_round(place)
            for place in places:
                self.compute(place, threads)
        if device:
            self.measure_relays(places[-1])

    # --- rounds -------------------------------------------------------------------------------

    def take_round(self, place: _Place) -> None:
        """Each operation, run and transfer of a place once."""
        timed_before = self.operations.get(place.key)
        now = timed(place.operations, place.device, 1, self.engine) if place.operations else []
        self.operations[place.key] = (
            [replace(new, seconds=old.seconds + new.seconds) for old, new in zip(timed_before, now, strict=True)]
            if timed_before
            else now
        )
        for run in place.runs:
            self.take(run)
        if place.linked:
            self.transfers.setdefault(place.key, []).append(self.transfer(place.device))

    def transfer(self, device: str) -> tuple[float, float]:
        """Bytes per second to a device in blocks of SENT_BYTES, and the seconds of a round trip."""
        there, _ = self.engine.transfer(device, SENT_BYTES, LINK_SECONDS)
        trips = self.engine.transfer(device, 4, LINK_SECONDS / 4)
        return SENT_BYTES / median(there), min(map(median, trips))

    def take(self, run: _Run) -> None:
        """One short warm-up, then the timed pass."""
        settings = run.settings.but(n_ctx=run.n_prompt + CELL_STEP, n_ubatch=UBATCH, load_mode="none")
        self.engine.open(run.path, settings)
        prompt = self.engine.random_prompt(run.n_prompt)
        self.engine.generate(prompt[:8], 2)
        taken = self.engine.generate(prompt, run.n_gen)
        changed = {k: v for k, v in settings.to_dict().items() if v != getattr(Settings(), k)}
        prefill = tuple(filter(None, [taken.prefill_seconds]))
        timing = Timing(run.device, run.path.stem, run.n_prompt, changed, prefill, taken.decode_seconds, run.n_gen)
        self.timings.setdefault(run, []).append(timing)

    def taken(self, run: _Run) -> Timing:
        """The rounds of a run as one timing."""
        return _merged(self.timings[run])

    def timed_of(self, kind: type) -> list:
        """The timed products or attentions of all devices."""
        return [timed for operations in self.operations.values() for timed in operations if isinstance(timed, kind)]

    def repacked_types(self) -> list[str]:
        """The types whose matrices llama.cpp keeps in an extra buffer on this processor."""
        tried = {"n_rows": 64, "n_cols": 256, "n_tokens": 1, "n_matrices": 1, "seconds": 0.0, "least_passes": 1}
        buffers = {type: self.engine.multiply("CPU", 1, type=type, **tried)[1] for type in TYPES}
        return [type for type, buffer in buffers.items() if buffer in KERNEL_OF_BUFFER]

    # --- devices ------------------------------------------------------------------------------

    def host_places(self, threads: list[int]) -> list[_Place]:
        """The host with each number of threads."""
        repacked = self.repacked_types()
        return [
            _Place(
                DeviceKey.from_parts(HOST_DEVICE, n),
                "CPU",
                Settings(n_gpu_layers=0, n_threads=n, devices=()),
                operations_of(n, repacked),
                HOST_REQUESTS,
                False,
            )
            for n in threads
        ]

    def measure_context_bytes(self, name: str) -> None:
        """Measure the bytes of a card's context, where its driver counts memory."""
        with suppress(DeviceUnavailable):
            self.contexts[name] = context_bytes(name, self.engine)

    def compute(self, place: _Place, threads: list[int]) -> None:
        """The rates of a device from its rounds, its ceiling, its link, and its checks' predictions."""
        host = DeviceKey.from_parts(HOST_DEVICE, 1 if DeviceKey(place.key).place == LOOPBACK else threads[-1])
        self.devices[place.key] = self.with_overhead(self.operation_rates(place), place)
        self.measure_ceiling(place, threads[-1])
        if place.linked:
            self.links[place.key] = self.link(place, self.devices[host])
        for request in place.checks:
            self.check(place, request, host if place.linked else place.key)

    def operation_rates(self, place: _Place) -> DeviceRates:
        """The rates of a device's operations.

        A loopback device is ggml's CPU backend in another process: its operations take what the host's do with as many
        threads and nothing repacked.
        """
        if not place.operations:
            like_host = host_rates(self.devices, place.n_threads)
            own_layout = {key: rates for key, rates in like_host.matrices.items() if not key.buffer}
            alone = replace(like_host, step_seconds=0.0, block_seconds=0.0, value_seconds=0.0)
            return replace(alone, name=place.key, matrices=own_layout)
        on_cpu, timed = not place.linked, self.operations[place.key]
        return DeviceRates(
            HOST_DEVICE if on_cpu else place.key,
            place.n_threads,
            on_cpu,
            ceilings.host_bandwidth(place.n_threads, 0.1)
            if on_cpu and place.n_threads
            else ceilings.device_bandwidth(place.device, 0.1, self.engine),
            matrix_rates(one for one in timed if isinstance(one, Product)),
            attention_rates((one for one in timed if isinstance(one, Attention)), on_cpu),
        )

    def measure_ceiling(self, place: _Place, most_threads: int) -> None:
        """The ceilings of a card, and of the host with the most threads."""
        if place.linked and place.operations:
            self.ceilings[place.key] = ceilings.ceiling(place.device, None, CEILINGS, 0.1, self.engine)
        elif place.n_threads == most_threads and not place.linked:
            self.ceilings[place.key] = ceilings.ceiling(HOST_DEVICE, most_threads, CEILINGS, 0.1, self.engine)

    def with_overhead(self, rates: DeviceRates, place: _Place) -> DeviceRates:
        """The rates of operations with those of steps, blocks and values, from runs of small models."""
        step, block = self.overhead(rates, place)
        rates = replace(rates, step_seconds=step, block_seconds=block)
        return replace(rates, value_seconds=self.value_seconds(rates, place.narrow()))

    def overhead(self, rates: DeviceRates, place: _Place) -> tuple[float, float]:
        """Seconds of a step and of a block, from two models whose operations take little."""
        # seconds(n blocks) - operations = step + n * block, at two n.
        few, many = TINY_LAYERS
        rest = []
        for run in place.tiny():
            took = self.taken(run)
            rest.append(took.decode - operation_seconds(read_gguf(run.path), run.settings, rates, 1, took.depth))
        block = max(0.0, (rest[1] - rest[0]) / (many - few))
        return max(0.0, rest[0] - few * block), block

    def value_seconds(self, rates: DeviceRates, narrow: _Run) -> float:
        """Seconds of a value that enters or leaves a matrix: what narrow matrices take beside their operations."""
        took, model = self.taken(narrow), read_gguf(narrow.path)
        rest = took.prefill - operation_seconds(model, narrow.settings, rates, UBATCH, 0)
        n_values = sum(sum(t.shape[:2]) for t, _ in matrices(model) if not for_last_token(t, model))
        return max(0.0, rest) / (UBATCH * n_values)

    # --- links ----------------------------------------------------------------------------------

    def link(self, place: _Place, host: DeviceRates) -> LinkRates:
        """Rates of the link, and the time added for each block whose attention returns to the host.

        seconds for each block = split_seconds + activations / bytes_per_second
        """
        rate, trip = map(median, zip(*self.transfers[place.key], strict=True))
        _, each = self.handover_seconds(handover_runs(place.key, place.settings), self.devices[place.key], host)
        return LinkRates(rate, trip, max(0.0, each - ACTIVATIONS / rate))

    def measure_relays(self, place: _Place) -> None:
        """Add to a link the time that a relay takes, the waits of each split, and the bytes of each split.

        The device without a relay, a delayed and a slow one are compared with a fast one, for each block:

        delayed - fast = split_waits * (round trip when delayed - round trip of the fast relay)
        slow - fast    = split_waits * (round trip when slow - round trip of the fast relay)
                         + (split_bytes + activations) / slow rate
        """
        far, host = self.devices[place.key], self.devices[DeviceKey.from_parts(HOST_DEVICE, 1)]

        def through(
            name: str, gigabytes_per_second: float | None, delay: float | None = None
        ) -> tuple[float, float, Link]:
            with loopback_device(gigabytes_per_second, delay) as device:
                if device.link is None:
                    raise DeviceUnavailable("The loopback device started without a relay, so its link has no rate.")
                return *self.handover_on(name, device, far, host), device.link

        with loopback_device() as device:
            direct_step, direct_block = self.handover_on("direct", device, far, host)
        fast_step, fast, fast_link = through("fast", FAST_GIGABYTES_PER_SECOND)
        trip = fast_link.round_trip_seconds
        _, delayed, delayed_link = through("delayed", None, DELAY)
        waits = (delayed - fast) / max(delayed_link.round_trip_seconds - trip, 1e-6)
        _, slow, slow_link = through("slow", SLOW_GIGABYTES_PER_SECOND)
        extra = max(0.0, slow_link.round_trip_seconds - trip)
        n_bytes = (slow - fast - waits * extra) * 1e9 * slow_link.achieved_gigabytes_per_second - ACTIVATIONS
        self.links[place.key] = replace(
            self.links[place.key],
            split_waits=max(0.0, waits),
            split_bytes=max(0.0, n_bytes),
            relay_round_trip_seconds=trip,
            relay_step_seconds=max(0.0, fast_step - direct_step),
            relay_split_seconds=max(0.0, fast - direct_block),
        )

    def handover_on(
        self, name: str, device: LoopbackDevice, far: DeviceRates, host: DeviceRates
    ) -> tuple[float, float]:
        """`handover_seconds` on a device that takes no part in the rounds."""
        runs = handover_runs(name, device.settings())
        for run in runs:
            self.take(run)
        return self.handover_seconds(runs, far, host)

    def handover_seconds(self, runs: Sequence[_Run], far: DeviceRates, host: DeviceRates) -> tuple[float, float]:
        """Seconds of a token, and seconds added for each block whose cache is on the host, without attention."""
        # decode with the cache on the host - decode with all on the device
        #   = blocks * seconds added for each + attention on the host - attention on the device
        on_device, on_host = (self.timings[run] for run in runs)
        model, attends = read_gguf(runs[0].path), runs[0].settings.but(n_ctx=512)
        host_attention, device_attention = (
            attention_seconds(model, attends, rates, on_device[0].depth) for rates in (host, far)
        )
        longer = median(there.decode - here.decode for here, there in zip(on_device, on_host, strict=True))
        added = longer - (host_attention - device_attention)
        return self.taken(runs[0]).decode, added / HANDOVER_SHAPE["n_layer"]

    # --- checks -------------------------------------------------------------------------------

    def check(self, place: _Place, request: CheckRequest, host: str) -> None:
        """Predict another model from operations, and keep it beside its runs."""
        run = place.check(request)
        rounds, placed = self.timings[run], self.placed(run.settings, request, place.key, host)
        prefill = sum(t.seconds for t in placed.prefill(request.n_prompt)) - placed.overlap(request.n_prompt)
        predicted = {"prefill": prefill, "decode": sum(t.seconds for t in placed.decode(rounds[0].depth))}
        taken = {"prefill": tuple(t.prefill for t in rounds), "decode": tuple(t.decode for t in rounds)}
        self.checks.append(Check(place.key, request.shape, run.settings, request.n_prompt, predicted, taken))

    def placed(self, settings: Settings, request: CheckRequest, name: str, host: str) -> PlacedModel:
        """The model of a check on its devices, with the rates measured so far."""
        path = check_path(request.shape)
        model, far = read_gguf(path), name if name != host else None
        settings = settings.but(n_ctx=request.n_prompt + CELL_STEP, n_ubatch=UBATCH)
        rates = {HOST_DEVICE: self.devices[host]} | ({"gpu0": self.devices[far]} if far else {})
        layers = placed_layers(model.n_layer, settings, [1.0] if far else [])
        return PlacedModel(model, settings, layers, rates, {"gpu0": self.links[far]} if far else {})


def card_place(name: str) -> _Place:
    """A card of this machine."""
    return _Place(name, name, Settings(devices=(name,)), operations_of(None), DEVICE_REQUESTS, True)


def loopback_place(device: LoopbackDevice) -> _Place:
    """A running loopback device."""
    key = DeviceKey.from_parts(LOOPBACK, device.n_threads)
    return _Place(key, device.endpoint, device.settings(), (), DEVICE_REQUESTS, True)


def handover_runs(name: str, settings: Settings) -> list[_Run]:
    """The same model with its cache on the device and on the host, which computes attention then."""
    path, off = small_model("Q4_K_M", HANDOVER_SHAPE), settings.but(flash_attn="off")
    return [_Run(name, path, off.but(offload_kqv=there), 32, N_GEN_HANDOVER) for there in (True, False)]


def _merged(rounds: Sequence[Timing]) -> Timing:
    """One timing with the samples of all rounds."""
    prefill = tuple(seconds for timing in rounds for seconds in timing.prefill_seconds)
    return replace(
        rounds[0], prefill_seconds=prefill, decode_seconds=tuple(s for timing in rounds for s in timing.decode_seconds)
    )


def operations_of(n_threads: int | None, repacked: Sequence[str] = ()) -> list[Product | Attention]:
    """Every operation that is timed with so many threads; the repacked types also in the file's own layout."""
    layouts = [(type, True) for type in TYPES] + [(type, False) for type in repacked]
    return [timed_product for layout in layouts for timed_product in _products(*layout, n_threads)] + _attentions(
        n_threads
    )


def _products(type: str, extra_bufts: bool, n_threads: int | None) -> list[Product]:
    products = [Product(type, *shape, 1, n_threads, extra_bufts) for shape in BATCHES]
    for (n_rows, n_cols), streamed in ONE_TOKEN.items():
        n_matrices = max(1, streamed // tensor_type(type).bytes_of(n_rows * n_cols))
        products.append(Product(type, n_rows, n_cols, 1, min(MOST_MATRICES, n_matrices), n_threads, extra_bufts))
    return products


def _attentions(n_threads: int | None) -> list[Attention]:
    """For each type, path and size of a head: one query over shared and over unshared heads, and a batch."""
    operations: list[Attention] = []
    for type, flash, head_dim in ((type, flash, size) for type, flash, sizes in CACHES for size in sizes):
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
