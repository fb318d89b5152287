"""Measures a machine's rates for a `Calibration`, with llama.cpp itself, in about a minute.

Every rate comes from runs of small shapes (of no published model) through the engine, so that it includes llama.cpp's
choice of kernels and its repacking; `speed` predicts any model from these rates. Each type has about 250 MB of weights,
and the attention shapes have weights too, because data that stays in a processor's cache is read several times faster
than a model. Weights are loaded into allocated memory (load_mode "none"), because the speed of a mapped file depends on
its pages in memory: one file may be a third faster than another.

types      a shape in each mix: the time of one token and of 128 tokens, minus attention and overhead
values     a narrow and a wide shape: the time per value that enters or leaves a matrix in a batch, where activations
           are rounded to the type that the weights are multiplied with
attention  a shape with few weights, at two depths, for each type of cache, with and without flash attention; with heads
           of 64 values, and of 128 where ggml's half-precision sums are faster (vec.h:556, simd-mappings.h:497)
overhead   a tiny shape, with two blocks and with eighteen
link       the connection alone, and a run that sends every block to the device as a split of its own; also with relays
disk       a shape's file, after its pages were dropped from the page cache
check      another shape, of mixed types, predicted and then run; its errors set the width of the band
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from datetime import date
from math import prod
from pathlib import Path

from inferlab.engine import libraries
from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.engine.session import default_engine
from inferlab.errors import DeviceUnavailable
from inferlab.machine import Ceiling, physical_cores
from inferlab.measurement import ceilings
from inferlab.measurement.ceilings import LinkCeiling
from inferlab.measurement.memory import context_bytes
from inferlab.model.ggml_types import CELL_STEP
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.calibration import LEAST_BAND, Calibration, Timing
from inferlab.prediction.memory.placement import placed_layers
from inferlab.prediction.speed import (
    WIDE_HEAD,
    AttentionRates,
    DeviceRates,
    LinkRates,
    PlacedModel,
    TypeRates,
    for_last_token,
    matrices,
)
from inferlab.settings import Settings

BASE_SHAPE = "llama-3.2-1b"
LONG_PROMPT, UBATCH = 768, 256
N_GEN, N_GEN_LARGE_SHAPE, N_GEN_HANDOVER = 24, 8, 12
DELAY, SLOW_GIGABYTES_PER_SECOND, FAST_GIGABYTES_PER_SECOND = 1e-3, 0.05, 5.0
MARGIN = 1.5  # a band is MARGIN times the largest error of the check, and at least LEAST_BAND
WEIGHT_SHAPE = {"n_embd": 1536, "n_head": 12, "n_head_kv": 4, "head_dim": 128, "n_ff": 4096, "n_vocab": 2048}
ATTENTION_SHAPE = {
    "n_layer": 4,
    "n_embd": 1024,
    "n_head": 16,
    "n_head_kv": 4,
    "head_dim": 64,
    "n_ff": 2048,
    "n_vocab": 2048,
}
NARROW_SHAPE = {"n_layer": 8, "n_embd": 512, "n_head": 8, "n_head_kv": 2, "head_dim": 64, "n_ff": 1536, "n_vocab": 2048}
LAYERS_OF_MIX = {"F16": 5, "Q8_0": 9, "Q6_K": 12, "Q5_0": 14, "Q4_K_S": 18, "Q4_0": 18}  # about 250 MB of weights
MIX_OF_TYPE = {"F16": "F16", "Q8_0": "Q8_0", "Q6_K": "Q6_K", "Q5_0": "Q5_0", "Q4_K": "Q4_K_S", "Q4_0": "Q4_0"}
ACTIVATIONS = 4 * (2 * 1024 + 2 * 4 * 64)  # bytes of a token's queries, keys, values and result in ATTENTION_SHAPE
VALUE_RATES_FROM = {
    "F16": "F16",
    "Q8_0": "Q8_0",
    "Q6_K": "Q4_K",
    "Q5_0": "Q8_0",
    "Q4_K": "Q4_K",
    "Q4_0": "Q8_0",
}  # same rounding of activations
WIDE_HEADS = {"n_head": 8, "n_head_kv": 2, "head_dim": 128}  # the same matrices, in wider heads
CACHES = (("f16", "on"), ("q8_0", "on"), ("q4_0", "on"), ("f16", "off"))
BATCH = 128
CEILINGS = ("F16", "Q4_K")
CHECK_SHAPE = {
    "n_layer": 24,
    "n_embd": 1024,
    "n_head": 8,
    "n_head_kv": 2,
    "head_dim": 128,
    "n_ff": 3072,
    "n_vocab": 8192,
}
CHECK_PROMPT = 256


def calibrate(save: bool = True, engine: LlamaEngine | None = None) -> Calibration:
    """Measure this machine: the host with one thread and with all its cores, each device, and the links to them.

    Includes a loopback device where llama.cpp has the RPC backend. Takes about a minute; `save` writes the result to
    the cache folder. Raises EngineError.
    """
    engine = engine or default_engine()
    began = time.perf_counter()
    machine, runs = engine.machine(), _CalibrationRuns(engine)
    cores = physical_cores()
    runs.measure_host(sorted({1, cores}))
    for gpu in machine.gpus:
        if gpu.backend != "RPC":
            runs.measure_card(gpu.name, f"host/{cores}")
    if "rpc" in libraries.backends():
        runs.measure_loopback()
    disk = ceilings.disk(make_shape(BASE_SHAPE, "F16", progress=False, **weight_shape("F16")))
    seconds = time.perf_counter() - began
    result = Calibration(machine, date.today().isoformat(), runs.devices, runs.links, runs.ceilings, runs.bands,
                        tuple(runs.timings), seconds, disk, context_bytes=runs.contexts)  # fmt: skip
    if save:
        result.save()
    return result


class _CalibrationRuns:
    """The runs of one calibration, and the rates computed from them."""

    def __init__(self, engine: LlamaEngine) -> None:
        self.engine = engine
        self.timings: list[Timing] = []
        self.known: dict[tuple, Timing] = {}
        self.devices: dict[str, DeviceRates] = {}
        self.contexts: dict[str, int] = {}
        self.links: dict[str, LinkRates] = {}
        self.ceilings: dict[str, Ceiling] = {}
        self.handovers: dict[str, tuple[float, float]] = {}
        self.bandwidths: dict[int, float] = {}
        self.errors: dict[str, list[float]] = {"prefill": [], "decode": []}

    @property
    def bands(self) -> dict[str, float]:
        return {phase: max(LEAST_BAND, *(MARGIN * error for error in errors)) for phase, errors in self.errors.items()}

    # --- devices ------------------------------------------------------------------------------

    def measure_host(self, threads: list[int]) -> None:
        """Measure the host with each number of threads, and its ceilings with the most."""
        for n in threads:
            settings = Settings(n_gpu_layers=0, n_threads=n, devices=())
            self.devices[f"host/{n}"] = self.rates("host", settings, n)
            self.check(settings, f"host/{n}")
        rates = {type: ceilings.matrix_rate("host", type, n, 0.1, self.engine) for type in CEILINGS}
        self.ceilings[f"host/{n}"] = Ceiling("host", n, self.bandwidth(n), rates)

    def measure_card(self, name: str, host: str) -> None:
        """Measure a card of this machine: memory of its context, rates, ceilings, link."""
        self.measure_context_bytes(name)
        settings = Settings(devices=(name,))
        self.devices[name] = self.rates(name, settings, None)
        self.ceilings[name] = ceilings.ceiling(name, None, CEILINGS, 0.1, self.engine)
        self.links[name] = self.link(name, settings, self.devices[name], self.devices[host])
        for n_gpu_layers in (12, -1):
            self.check(settings.but(n_gpu_layers=n_gpu_layers), host, name)

    def measure_context_bytes(self, name: str) -> None:
        """Measure the bytes of a card's context, where its driver counts memory."""
        with suppress(DeviceUnavailable):
            self.contexts[name] = context_bytes(name, self.engine)

    def measure_loopback(self) -> None:
        """Measure a loopback device, its link, and the same link through slowed relays."""
        with loopback_device() as device:
            name, settings = f"loopback/{device.n_threads}", device.settings()
            self.devices[name] = self.rates(name, settings, device.n_threads, device.endpoint)
            device_and_host = self.devices[name], self.devices["host/1"]
            self.links[name] = self.link(name, settings, *device_and_host, device.endpoint)
            for n_gpu_layers in (12, -1):
                self.check(settings.but(n_gpu_layers=n_gpu_layers), "host/1", name)
        self.links[name] = self.relayed_link(name, self.links[name], *device_and_host)

    def check(self, settings: Settings, host: str, name: str | None = None) -> None:
        """Predict another shape, run it, and keep the relative error of each phase."""
        path = make_shape(BASE_SHAPE, "Q4_K_M", progress=False, **CHECK_SHAPE)
        timing = self.run(f"check {name or host}", path, settings, CHECK_PROMPT, 1, N_GEN_LARGE_SHAPE)
        model, settings = read_gguf(path), settings.but(n_ctx=CHECK_PROMPT + CELL_STEP, n_ubatch=UBATCH)
        layers = placed_layers(model.n_layer, settings, [1.0] if name else [])
        rates = {"host": self.devices[host]} | ({"gpu0": self.devices[name]} if name else {})
        placed = PlacedModel(model, settings, layers, rates, {"gpu0": self.links[name]} if name else {})
        for phase, terms, measured in (
            ("prefill", placed.prefill(CHECK_PROMPT), timing.prefill),
            ("decode", placed.decode(timing.depth), timing.decode),
        ):
            seconds = sum(term.seconds for term in terms)
            self.errors[phase].append(max(seconds / measured, measured / seconds) - 1)

    # --- runs ---------------------------------------------------------------------------------

    def run(
        self, device: str, path: Path, settings: Settings, n_prompt: int, passes: int = 2, n_gen: int = N_GEN
    ) -> Timing:
        """One short warm-up, then the timed passes; a run made before is returned again."""
        settings = settings.but(n_ctx=n_prompt + CELL_STEP, n_ubatch=UBATCH, load_mode="none")
        if (key := (device, path, settings, passes)) in self.known:
            return self.known[key]
        self.engine.open(path, settings)
        prompt = self.engine.random_prompt(n_prompt)
        self.engine.generate(prompt[:8], 2)
        generations = [self.engine.generate(prompt, n_gen) for _ in range(passes)]
        changed = {k: v for k, v in settings.to_dict().items() if v != getattr(Settings(), k)}
        seconds = tuple(s for generation in generations for s in generation.decode_seconds)
        prefill = tuple(generation.prefill_seconds for generation in generations)
        self.timings.append(Timing(device, path.stem, n_prompt, changed, prefill, seconds, n_gen))
        self.known[key] = self.timings[-1]
        return self.timings[-1]

    def rates(self, name: str, settings: Settings, n_threads: int | None, endpoint: str | None = None) -> DeviceRates:
        """All rates of one device."""
        on_cpu = name == "host" or endpoint is not None
        has_own_memory = not on_cpu  # a loopback device reads the host's memory
        bandwidth = ceilings.device_bandwidth(name, 0.1, self.engine) if has_own_memory else self.bandwidth(n_threads)
        step, block = self.overhead(name, settings)
        attention = {f"{type}/{attention_path(flash)}": self.attention(name, settings, type, flash, on_cpu)
                     for type, flash in CACHES}  # fmt: skip
        attention[f"f16/flash/{WIDE_HEAD}"] = self.attention(
            name, settings, "f16", "on", on_cpu, {**ATTENTION_SHAPE, **WIDE_HEADS}
        )
        known = DeviceRates(name, n_threads, on_cpu, bandwidth, {}, attention, block, step)
        values = {
            type: self.value_seconds(name, settings, MIX_OF_TYPE[type], known)
            for type in set(VALUE_RATES_FROM.values())
        }
        types = {
            type: self.weights(name, settings, mix, known, values[VALUE_RATES_FROM[type]])
            for type, mix in MIX_OF_TYPE.items()
        }
        bandwidth = max(bandwidth, *(1 / rates.seconds_per_byte for rates in types.values() if rates.seconds_per_byte))
        return replace(known, bandwidth_bytes_per_second=bandwidth, types=types)

    def bandwidth(self, n_threads: int) -> float:
        """Bytes per second at which the host's memory is read with n_threads; measured once."""
        if n_threads not in self.bandwidths:
            self.bandwidths[n_threads] = ceilings.host_bandwidth(n_threads, 0.1)
        return self.bandwidths[n_threads]

    def value_seconds(self, name: str, settings: Settings, mix: str, known: DeviceRates) -> float:
        """Seconds per value that enters or leaves a matrix; a narrow shape has more values for each weight."""
        # Of each shape: seconds = weights * seconds_per_weight + values * seconds_per_value. Dividing by the weights
        # and subtracting the wide shape from the narrow one eliminates seconds_per_weight:
        #   seconds_n / weights_n - seconds_w / weights_w
        #       = seconds_per_value * (values_n / weights_n - values_w / weights_w)
        wide, narrow = (self.batch(name, settings, mix, size, known) for size in (weight_shape(mix), NARROW_SHAPE))
        result = (narrow[0] / narrow[1] - wide[0] / wide[1]) / (narrow[2] / narrow[1] - wide[2] / wide[1])
        return max(0.0, result)

    def batch(self, name: str, settings: Settings, mix: str, size: dict, known: DeviceRates) -> tuple[float, int, int]:
        """(seconds per token of a batch without attention and overhead, weights, values at matrices) of a shape."""
        # prefill = BATCH * seconds of a token + attention and overhead + seconds of the last token's matrices,
        # and the last term is their share of a decoded token's bytes: share * decode.
        path = make_shape(BASE_SHAPE, mix, progress=False, **size)
        took = self.run(name, path, settings, BATCH, 1 if size != NARROW_SHAPE else 3, N_GEN_LARGE_SHAPE)
        model = read_gguf(path)
        remaining = took.prefill - TimeBesideWeights(model, settings.but(n_ctx=512), known).seconds(BATCH, 0)
        remaining -= took.decode * _last_token_share(model)
        return max(0.0, remaining) / BATCH, *_weights_and_values(model)

    def overhead(self, name: str, settings: Settings) -> tuple[float, float]:
        """(seconds per step, seconds per block) of a shape whose other times are negligible."""
        # seconds(n blocks) = step + n * block, at two n.
        few, many = 2, 18
        size = {"n_embd": 128, "n_head": 2, "n_head_kv": 1, "head_dim": 64, "n_ff": 256, "n_vocab": 512}
        times = [self.run(name, make_shape(BASE_SHAPE, "F16", progress=False, n_layer=n, **size), settings, 16).decode
                 for n in (few, many)]  # fmt: skip
        block = max(0.0, (times[1] - times[0]) / (many - few))
        return max(0.0, times[0] - few * block), block

    def attention(
        self, name: str, settings: Settings, type: str, flash: str, on_cpu: bool, size: dict = ATTENTION_SHAPE
    ) -> AttentionRates:
        """Seconds per value of keys and values, from two depths that differ in nothing else.

        decode   far - near = heads * (cells_far - cells_near) * seconds_per_value
        prefill  far - steps * near = heads * (cells of all ubatches - steps * cells of the first)
                 * seconds_per_batch_value; ubatch i reads UBATCH * (i + 1) cells for each of its tokens,
                 or, where masked cells are skipped, UBATCH * (i + 1/2) on average
        heads = (query heads on a processor, KV heads on a card) * 2 head_dim * blocks
        """
        path = make_shape(BASE_SHAPE, "Q4_K_M", progress=False, **size)
        settings = settings.but(type_k=type, type_v=type, flash_attn=flash)
        near, far = (self.run(name, path, settings, n, passes) for n, passes in ((UBATCH, 2), (LONG_PROMPT, 1)))
        heads = size["n_head" if on_cpu else "n_head_kv"] * 2 * size["head_dim"] * size["n_layer"]
        skips_masked = on_cpu and flash == "on"
        cells = LONG_PROMPT - UBATCH
        steps = LONG_PROMPT // UBATCH
        cells_of_ubatches = [
            UBATCH * (UBATCH * i + UBATCH / 2 if skips_masked else UBATCH * (i + 1)) for i in range(steps)
        ]
        batch_value = (
            (far.prefill - steps * near.prefill) / (sum(cells_of_ubatches) - steps * cells_of_ubatches[0]) / heads
        )
        value = (far.decode - near.decode) / cells / heads
        return AttentionRates(max(0.0, value), max(0.0, batch_value))

    def weights(self, name: str, settings: Settings, mix: str, known: DeviceRates, value_seconds: float) -> TypeRates:
        """Rates of the matrices alone: the attention and overhead of `known` are subtracted.

        decode   = bytes * seconds_per_byte + attention and overhead
        prefill  = BATCH * (weights * seconds_per_weight_token + values * seconds_per_value_token)
                   + attention and overhead + share of the last token's matrices * (decode - its attention and overhead)
        """
        path = make_shape(BASE_SHAPE, mix, progress=False, **weight_shape(mix))
        took = self.run(name, path, settings, BATCH, 1, N_GEN_LARGE_SHAPE)
        model = read_gguf(path)
        beside_weights = TimeBesideWeights(model, settings.but(n_ctx=512), known)
        n_bytes = sum(tensor.n_bytes for tensor, _ in matrices(model))
        n_weights, n_values = _weights_and_values(model)
        decode = took.decode - beside_weights.seconds(1, took.depth)
        batch = took.prefill - beside_weights.seconds(BATCH, 0) - decode * _last_token_share(model)
        prefill = batch / BATCH - n_values * value_seconds
        return TypeRates(max(0.0, decode) / n_bytes, max(0.0, prefill) / n_weights, value_seconds)

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
        with loopback_device(FAST_GIGABYTES_PER_SECOND) as device:
            fast_step, fast = self.handover_seconds("fast", device.settings(), far, host)
            trip = device.link.round_trip_seconds
        with loopback_device(latency_seconds=DELAY) as device:
            delayed = self.handover_seconds("delayed", device.settings(), far, host)[1] - fast
            waits = delayed / max(device.link.round_trip_seconds - trip, 1e-6)
        with loopback_device(SLOW_GIGABYTES_PER_SECOND) as device:
            slow = self.handover_seconds("slow", device.settings(), far, host)[1] - fast
            extra = max(0.0, device.link.round_trip_seconds - trip)
            rate = 1e9 * device.link.achieved_gigabytes_per_second
        n_bytes = (slow - waits * extra) * rate - ACTIVATIONS
        return replace(direct, split_waits=max(0.0, waits), split_bytes=max(0.0, n_bytes),
                       relay_round_trip_seconds=trip, relay_step_seconds=max(0.0, fast_step - direct_step),
                       relay_split_seconds=max(0.0, fast - direct_block))  # fmt: skip

    def handover_seconds(
        self, name: str, settings: Settings, far: DeviceRates, host: DeviceRates
    ) -> tuple[float, float]:
        """Seconds of a token, and seconds added for each block whose cache is on the host, without attention."""
        # decode with the cache on the host - decode with all on the device
        #   = blocks * seconds added for each + attention on the host - attention on the device
        path = make_shape(BASE_SHAPE, "Q4_K_M", progress=False, **ATTENTION_SHAPE)
        off = settings.but(flash_attn="off")
        on_device, on_host = (
            self.run(name, path, off.but(offload_kqv=offload), 32, n_gen=N_GEN_HANDOVER) for offload in (True, False)
        )
        model, attends = read_gguf(path), off.but(n_ctx=512)
        host_attention, device_attention = (
            sum(TimeBesideWeights(model, attends, rates).attention(1, on_device.depth)) for rates in (host, far)
        )
        added = on_host.decode - on_device.decode - (host_attention - device_attention)
        self.handovers[name] = on_device.decode, added / ATTENTION_SHAPE["n_layer"]
        return self.handovers[name]


class TimeBesideWeights:
    """Predicted seconds of attention and overhead, for a shape on one device."""

    def __init__(self, model: Model, settings: Settings, rates: DeviceRates) -> None:
        self.placed = PlacedModel(model, settings, ("host",) * (model.n_layer + 1), {"host": rates}, {})

    def attention(self, n_tokens: int, depth: int) -> list[float]:
        return [term.seconds for term in self.placed.attention(n_tokens, depth)]

    def seconds(self, n_tokens: int, depth: int) -> float:
        return sum(self.attention(n_tokens, depth)) + sum(term.seconds for term in self.placed.overhead())


def weight_shape(mix: str) -> dict[str, int]:
    """Dimensions of the shape that times a mix: about 250 MB of weights."""
    return {**WEIGHT_SHAPE, "n_layer": LAYERS_OF_MIX[mix]}


def attention_path(flash: str) -> str:
    return "flash" if flash == "on" else "plain"


def _weights_and_values(model: Model) -> tuple[int, int]:
    """(weights, values that enter and leave) of the matrices that every token of a batch is multiplied with."""
    result = [tensor for tensor, _ in matrices(model) if not for_last_token(tensor, model)]
    return sum(prod(tensor.shape) for tensor in result), sum(sum(tensor.shape) for tensor in result)


def _last_token_share(model: Model) -> float:
    """Bytes of the matrices that are used only for the last token, as a share of all matrices' bytes."""
    result = [(tensor.n_bytes, for_last_token(tensor, model)) for tensor, _ in matrices(model)]
    return sum(n for n, last in result if last) / sum(n for n, _ in result)
