"""Measure what a `Calibration` holds, with llama.cpp itself, in under a minute.

Every number comes from runs of small shapes (of no published model) through the engine, so that llama.cpp's own choice
of kernels, repacking included, is in it; `speed` adds the numbers up for any model.  Each type has about 250 MB of
weights, and attention has weights beside it, because what stays in a cache is read several times faster than a model.
They are loaded into memory of their own: how fast a mapped file is read depends on the pages that the system happens to
have for it, and one file may be a third faster than another.

types      a shape in each mix: the time of a token and of 128, less that of attention and overhead
values     a narrow shape beside a wide one: what a batch costs between its matrices, where activations are rounded to
           the kind of numbers that the weights' type is multiplied with
attention  a shape with little weight, at two depths, for each type of cache and both ways to attend; with heads of 64
           values, and of 128 where ggml's half-precision sums are faster for them (vec.h:556, simd-mappings.h:497)
overhead   a shape of next to nothing, with two blocks and with eighteen
link       through the connection itself, and a run that hands every block to the device by itself; behind relays too
disk       a shape's file, after the system was asked to forget it
check      another shape, of mixed types, predicted and then run; its misses are the width of the band
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

BASE = "llama-3.2-1b"
LONG, UBATCH = 768, 256
N_GEN, N_GEN_HEAVY, N_GEN_HANDED = 24, 8, 12
DELAY, SLOW_GIGABYTES_PER_SECOND, FAST_GIGABYTES_PER_SECOND = 1e-3, 0.05, 5.0
MARGIN = 1.5  # a band is MARGIN times the largest miss of the check, and never less than LEAST_BAND
WEIGHTY = {"n_embd": 1536, "n_head": 12, "n_head_kv": 4, "head_dim": 128, "n_ff": 4096, "n_vocab": 2048}
ATTENTIVE = {"n_layer": 4, "n_embd": 1024, "n_head": 16, "n_head_kv": 4, "head_dim": 64, "n_ff": 2048, "n_vocab": 2048}
NARROW = {"n_layer": 8, "n_embd": 512, "n_head": 8, "n_head_kv": 2, "head_dim": 64, "n_ff": 1536, "n_vocab": 2048}
LAYERS = {"F16": 5, "Q8_0": 9, "Q6_K": 12, "Q5_0": 14, "Q4_K_S": 18, "Q4_0": 18}  # about 250 MB of weights
MIXES = {"F16": "F16", "Q8_0": "Q8_0", "Q6_K": "Q6_K", "Q5_0": "Q5_0", "Q4_K": "Q4_K_S", "Q4_0": "Q4_0"}
ACTIVATIONS = 4 * (2 * 1024 + 2 * 4 * 64)  # bytes of a token's queries, keys, values and result in ATTENTIVE
VALUES = {"F16": "F16", "Q8_0": "Q8_0", "Q6_K": "Q4_K", "Q5_0": "Q8_0", "Q4_K": "Q4_K", "Q4_0": "Q8_0"}  # rounded alike
WIDE = {"n_head": 8, "n_head_kv": 2, "head_dim": 128}  # the same matrices in wider heads
CACHES = (("f16", "on"), ("q8_0", "on"), ("q4_0", "on"), ("f16", "off"))
BATCH = 128
CEILINGS = ("F16", "Q4_K")
CHECK = {"n_layer": 24, "n_embd": 1024, "n_head": 8, "n_head_kv": 2, "head_dim": 128, "n_ff": 3072, "n_vocab": 8192}
CHECK_PROMPT = 256


def calibrate(save: bool = True, engine: LlamaEngine | None = None) -> Calibration:
    """Measure this machine: the host with all its threads, and each device with one host thread beside it.

    A loopback device is one of them where llama.cpp has the RPC backend. At most about a minute; kept in the cache
    folder. Raises EngineError.
    """
    engine = engine or default_engine()
    began = time.perf_counter()
    machine, work = engine.machine(), _Work(engine)
    cores = physical_cores()
    work.host(sorted({1, cores}))
    for gpu in machine.gpus:
        if gpu.backend != "RPC":
            work.card(gpu.name, f"host/{cores}")
    if "rpc" in libraries.backends():
        work.loopback()
    disk = ceilings.disk(make_shape(BASE, "F16", progress=False, **weighty("F16")))
    seconds = time.perf_counter() - began
    found = Calibration(machine, date.today().isoformat(), work.devices, work.links, work.ceilings, work.bands,
                        tuple(work.timings), seconds, disk, context_bytes=work.contexts)  # fmt: skip
    if save:
        found.save()
    return found


class _Work:
    """The runs of one calibration, in the order they are needed."""

    def __init__(self, engine: LlamaEngine) -> None:
        self.engine = engine
        self.timings: list[Timing] = []
        self.known: dict[tuple, Timing] = {}
        self.devices: dict[str, DeviceRates] = {}
        self.contexts: dict[str, int] = {}
        self.links: dict[str, LinkRates] = {}
        self.ceilings: dict[str, Ceiling] = {}
        self.handed: dict[str, tuple[float, float]] = {}
        self.bandwidths: dict[int, float] = {}
        self.misses: dict[str, list[float]] = {"prefill": [], "decode": []}

    @property
    def bands(self) -> dict[str, float]:
        return {phase: max(LEAST_BAND, *(MARGIN * miss for miss in missed)) for phase, missed in self.misses.items()}

    # --- devices ------------------------------------------------------------------------------

    def host(self, threads: list[int]) -> None:
        """The host with each number of threads; the ceilings with the most."""
        for n in threads:
            settings = Settings(n_gpu_layers=0, n_threads=n, devices=())
            self.devices[f"host/{n}"] = self.rates("host", settings, n)
            self.check(settings, f"host/{n}")
        rates = {type: ceilings.matrix_rate("host", type, n, 0.1, self.engine) for type in CEILINGS}
        self.ceilings[f"host/{n}"] = Ceiling("host", n, self.bandwidth(n), rates)

    def card(self, name: str, host: str) -> None:
        """A card of this machine."""
        self.context(name)
        settings = Settings(devices=(name,))
        self.devices[name] = self.rates(name, settings, None)
        self.ceilings[name] = ceilings.ceiling(name, None, CEILINGS, 0.1, self.engine)
        self.links[name] = self.link(name, settings, self.devices[name], self.devices[host])
        for n_gpu_layers in (12, -1):
            self.check(settings.but(n_gpu_layers=n_gpu_layers), host, name)

    def context(self, name: str) -> None:
        """The card's constant, where its driver counts its memory."""
        with suppress(DeviceUnavailable):
            self.contexts[name] = context_bytes(name, self.engine)

    def loopback(self) -> None:
        """A loopback device, and what two slowed links to it tell."""
        with loopback_device() as device:
            name, settings = f"loopback/{device.n_threads}", device.settings()
            self.devices[name] = self.rates(name, settings, device.n_threads, device.endpoint)
            pair = self.devices[name], self.devices["host/1"]
            self.links[name] = self.link(name, settings, *pair, device.endpoint)
            for n_gpu_layers in (12, -1):
                self.check(settings.but(n_gpu_layers=n_gpu_layers), "host/1", name)
        self.links[name] = self.behind_relay(name, self.links[name], *pair)

    def check(self, settings: Settings, host: str, name: str | None = None) -> None:
        """Predict another shape, run it, and keep by how much each was off."""
        path = make_shape(BASE, "Q4_K_M", progress=False, **CHECK)
        took = self.run(f"check {name or host}", path, settings, CHECK_PROMPT, 1, N_GEN_HEAVY)
        model, asked = read_gguf(path), settings.but(n_ctx=CHECK_PROMPT + CELL_STEP, n_ubatch=UBATCH)
        layers = placed_layers(model.n_layer, asked, [1.0] if name else [])
        rates = {"host": self.devices[host]} | ({"gpu0": self.devices[name]} if name else {})
        placed = PlacedModel(model, asked, layers, rates, {"gpu0": self.links[name]} if name else {})
        for phase, terms, measured in (
            ("prefill", placed.prefill(CHECK_PROMPT), took.prefill),
            ("decode", placed.decode(took.depth), took.decode),
        ):
            seconds = sum(term.seconds for term in terms)
            self.misses[phase].append(max(seconds / measured, measured / seconds) - 1)

    # --- runs ---------------------------------------------------------------------------------

    def run(
        self, device: str, path: Path, settings: Settings, n_prompt: int, passes: int = 2, n_gen: int = N_GEN
    ) -> Timing:
        """One short warm-up and the counted passes."""
        settings = settings.but(n_ctx=n_prompt + CELL_STEP, n_ubatch=UBATCH, load_mode="none")
        if (key := (device, path, settings, passes)) in self.known:
            return self.known[key]
        self.engine.open(path, settings)
        prompt = self.engine.random_prompt(n_prompt)
        self.engine.generate(prompt[:8], 2)
        made = [self.engine.generate(prompt, n_gen) for _ in range(passes)]
        changed = {k: v for k, v in settings.to_dict().items() if v != getattr(Settings(), k)}
        seconds = tuple(s for one in made for s in one.decode_seconds)
        prefill = tuple(one.prefill_seconds for one in made)
        self.timings.append(Timing(device, path.stem, n_prompt, changed, prefill, seconds, n_gen))
        self.known[key] = self.timings[-1]
        return self.timings[-1]

    def rates(self, name: str, settings: Settings, n_threads: int | None, endpoint: str | None = None) -> DeviceRates:
        """All that `speed` asks of one device."""
        on_cpu = name == "host" or endpoint is not None
        own = not on_cpu  # a loopback device reads the host's memory
        bandwidth = ceilings.device_bandwidth(name, 0.1, self.engine) if own else self.bandwidth(n_threads)
        step, block = self.overhead(name, settings)
        attention = {f"{type}/{attending(flash)}": self.attention(name, settings, type, flash, on_cpu)
                     for type, flash in CACHES}  # fmt: skip
        attention[f"f16/flash/{WIDE_HEAD}"] = self.attention(name, settings, "f16", "on", on_cpu, {**ATTENTIVE, **WIDE})
        known = DeviceRates(name, n_threads, on_cpu, bandwidth, {}, attention, block, step)
        values = {type: self.value_seconds(name, settings, MIXES[type], known) for type in set(VALUES.values())}
        types = {type: self.weights(name, settings, mix, known, values[VALUES[type]]) for type, mix in MIXES.items()}
        bandwidth = max(bandwidth, *(1 / rates.seconds_per_byte for rates in types.values() if rates.seconds_per_byte))
        return replace(known, bandwidth_bytes_per_second=bandwidth, types=types)

    def bandwidth(self, n_threads: int) -> float:
        """The host's memory as so many threads read it, measured once."""
        if n_threads not in self.bandwidths:
            self.bandwidths[n_threads] = ceilings.host_bandwidth(n_threads, 0.1)
        return self.bandwidths[n_threads]

    def value_seconds(self, name: str, settings: Settings, mix: str, known: DeviceRates) -> float:
        """For each value that enters or leaves a matrix; a narrow shape has more of them for each weight."""
        # Of each shape: seconds = weights * seconds_per_weight + values * seconds_per_value. Divided by its weights and
        # taken one from the other, seconds_per_weight is gone:
        #   seconds_n / weights_n - seconds_w / weights_w
        #       = seconds_per_value * (values_n / weights_n - values_w / weights_w)
        wide, narrow = (self.batch(name, settings, mix, size, known) for size in (weighty(mix), NARROW))
        found = (narrow[0] / narrow[1] - wide[0] / wide[1]) / (narrow[2] / narrow[1] - wide[2] / wide[1])
        return max(0.0, found)

    def batch(self, name: str, settings: Settings, mix: str, size: dict, known: DeviceRates) -> tuple[float, int, int]:
        """(seconds of a batch's token without attention, weights, values at matrices) of a shape."""
        # prefill = BATCH * seconds of a token + attention and overhead + what the last token alone passes,
        # and the last is its share of the bytes that a decoded token reads: share * decode.
        path = make_shape(BASE, mix, progress=False, **size)
        took = self.run(name, path, settings, BATCH, 1 if size != NARROW else 3, N_GEN_HEAVY)
        model = read_gguf(path)
        left = took.prefill - Rest(model, settings.but(n_ctx=512), known).seconds(BATCH, 0)
        left -= took.decode * _share_for_last(model)
        return max(0.0, left) / BATCH, *_passed(model)

    def overhead(self, name: str, settings: Settings) -> tuple[float, float]:
        """(seconds a step, seconds a block) of a shape so small that little else is left."""
        # seconds(n blocks) = step + n * block, at two n.
        few, many = 2, 18
        size = {"n_embd": 128, "n_head": 2, "n_head_kv": 1, "head_dim": 64, "n_ff": 256, "n_vocab": 512}
        times = [self.run(name, make_shape(BASE, "F16", progress=False, n_layer=n, **size), settings, 16).decode
                 for n in (few, many)]  # fmt: skip
        block = max(0.0, (times[1] - times[0]) / (many - few))
        return max(0.0, times[0] - few * block), block

    def attention(
        self, name: str, settings: Settings, type: str, flash: str, on_cpu: bool, size: dict = ATTENTIVE
    ) -> AttentionRates:
        """From two depths: all else is the same for both.

        decode   far - near = heads * (cells_far - cells_near) * seconds_per_value
        prefill  far - steps * near = heads * (cells of all ubatches - steps * cells of the first)
                 * seconds_per_batch_value; ubatch i looks at UBATCH * (i + 1) cells for each of its tokens,
                 or, where masked cells are skipped, at UBATCH * (i + 1/2) in the mean
        heads = (query heads on a processor, KV heads on a card) * 2 head_dim * blocks
        """
        path = make_shape(BASE, "Q4_K_M", progress=False, **size)
        settings = settings.but(type_k=type, type_v=type, flash_attn=flash)
        near, far = (self.run(name, path, settings, n, passes) for n, passes in ((UBATCH, 2), (LONG, 1)))
        heads = size["n_head" if on_cpu else "n_head_kv"] * 2 * size["head_dim"] * size["n_layer"]
        exact = on_cpu and flash == "on"
        cells = LONG - UBATCH
        steps = LONG // UBATCH
        looked = [UBATCH * (UBATCH * i + UBATCH / 2 if exact else UBATCH * (i + 1)) for i in range(steps)]
        many = (far.prefill - steps * near.prefill) / (sum(looked) - steps * looked[0]) / heads
        one = (far.decode - near.decode) / cells / heads
        return AttentionRates(max(0.0, one), max(0.0, many))

    def weights(self, name: str, settings: Settings, mix: str, known: DeviceRates, value_seconds: float) -> TypeRates:
        """Of the matrices alone: what `known` explains is taken off.

        decode   = bytes * seconds_per_byte + attention and overhead
        prefill  = BATCH * (weights * seconds_per_weight_token + values * seconds_per_value_token)
                   + attention and overhead + share of the last token * (decode - its attention and overhead)
        """
        path = make_shape(BASE, mix, progress=False, **weighty(mix))
        took = self.run(name, path, settings, BATCH, 1, N_GEN_HEAVY)
        model = read_gguf(path)
        left = Rest(model, settings.but(n_ctx=512), known)
        n_bytes = sum(tensor.n_bytes for tensor, _ in matrices(model))
        n_weights, n_values = _passed(model)
        decode = took.decode - left.seconds(1, took.depth)
        batch = took.prefill - left.seconds(BATCH, 0) - decode * _share_for_last(model)
        prefill = batch / BATCH - n_values * value_seconds
        return TypeRates(max(0.0, decode) / n_bytes, max(0.0, prefill) / n_weights, value_seconds)

    def link(
        self, name: str, settings: Settings, far: DeviceRates, host: DeviceRates, endpoint: str | None = None
    ) -> LinkRates:
        """The way itself, and what is added when each block's attention is handed back to the host.

        seconds for each block handed over = split_seconds + activations / bytes_per_second
        """
        told: LinkCeiling = ceilings.link(endpoint or name, 0.3, self.engine)
        _, each = self.handed_over(name, settings, far, host)
        each -= ACTIVATIONS / told.there_bytes_per_second
        return LinkRates(told.there_bytes_per_second, told.round_trip_seconds, max(0.0, each))

    def behind_relay(self, name: str, direct: LinkRates, far: DeviceRates, host: DeviceRates) -> LinkRates:
        """What a relay adds; how often each part waits for an answer, from a delay, and what it sends, from a slow one.

        `name` is the device without a relay, whose runs are known already. Beside a fast relay, for each block:

        delayed - fast = split_waits * (round trip when delayed - round trip of the fast relay)
        slow - fast    = split_waits * (round trip when slow - round trip of the fast relay)
                         + (split_bytes + activations) / slow rate
        """
        step, part = self.handed[name]
        with loopback_device(FAST_GIGABYTES_PER_SECOND) as device:
            fast_step, fast = self.handed_over("fast", device.settings(), far, host)
            trip = device.link.round_trip_seconds
        with loopback_device(latency_seconds=DELAY) as device:
            late = self.handed_over("delayed", device.settings(), far, host)[1] - fast
            waits = late / max(device.link.round_trip_seconds - trip, 1e-6)
        with loopback_device(SLOW_GIGABYTES_PER_SECOND) as device:
            slow = self.handed_over("slow", device.settings(), far, host)[1] - fast
            extra = max(0.0, device.link.round_trip_seconds - trip)
            rate = 1e9 * device.link.achieved_gigabytes_per_second
        n_bytes = (slow - waits * extra) * rate - ACTIVATIONS
        return replace(direct, split_waits=max(0.0, waits), split_bytes=max(0.0, n_bytes),
                       relay_round_trip_seconds=trip, relay_step_seconds=max(0.0, fast_step - step),
                       relay_split_seconds=max(0.0, fast - part))  # fmt: skip

    def handed_over(self, name: str, settings: Settings, far: DeviceRates, host: DeviceRates) -> tuple[float, float]:
        """Seconds of a token, and what it takes longer for each block whose cache is the host's, attention aside."""
        # decode with the cache on the host - decode with all on the device
        #   = blocks * seconds for each + attention on the host - attention on the device
        path = make_shape(BASE, "Q4_K_M", progress=False, **ATTENTIVE)
        off = settings.but(flash_attn="off")
        whole, apart = (
            self.run(name, path, off.but(offload_kqv=there), 32, n_gen=N_GEN_HANDED) for there in (True, False)
        )
        model, attends = read_gguf(path), off.but(n_ctx=512)
        here, there = (sum(Rest(model, attends, one).attention(1, whole.depth)) for one in (host, far))
        self.handed[name] = whole.decode, (apart.decode - whole.decode - (here - there)) / ATTENTIVE["n_layer"]
        return self.handed[name]


class Rest:
    """The part of a step that is not weights, for a shape that lies on one device."""

    def __init__(self, model: Model, settings: Settings, rates: DeviceRates) -> None:
        self.placed = PlacedModel(model, settings, ("host",) * (model.n_layer + 1), {"host": rates}, {})

    def attention(self, n_tokens: int, depth: int) -> list[float]:
        return [term.seconds for term in self.placed.attention(n_tokens, depth)]

    def seconds(self, n_tokens: int, depth: int) -> float:
        return sum(self.attention(n_tokens, depth)) + sum(term.seconds for term in self.placed.overhead())


def weighty(mix: str) -> dict[str, int]:
    """The shape whose weights are timed in a mix."""
    return {**WEIGHTY, "n_layer": LAYERS[mix]}


def attending(flash: str) -> str:
    return "flash" if flash == "on" else "plain"


def _passed(model: Model) -> tuple[int, int]:
    """(weights, values that enter and leave) of the matrices that every token of a batch passes."""
    found = [tensor for tensor, _ in matrices(model) if not for_last_token(tensor, model)]
    return sum(prod(tensor.shape) for tensor in found), sum(sum(tensor.shape) for tensor in found)


def _share_for_last(model: Model) -> float:
    """Of the bytes of all matrices, those that are read for one token of a batch alone."""
    found = [(tensor.n_bytes, for_last_token(tensor, model)) for tensor, _ in matrices(model)]
    return sum(n for n, last in found if last) / sum(n for n, _ in found)
