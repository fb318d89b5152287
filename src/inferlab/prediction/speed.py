"""How long a step takes, from bytes, cells and copies, and from what a machine was measured to need for each.

One step is one llama_decode: a batch of n_tokens on top of `depth` cells in use.  On each device

    weights    bytes of its layers x seconds a byte for their types (one token), or
               weights x tokens x seconds for each, and values that enter and leave a matrix (a batch);
               whichever is more
    attention  heads x (key + value width) x cells that are looked at x seconds for each
    overhead   seconds a block, and once a step
    link       bytes that cross it / its rate, and its waits

are added up, because llama.cpp works through devices one after another; only in a prompt of several ubatches may host
and loopback device work on different ones at the same time.  Cells in use are counted in steps of 256,
as llama.cpp rounds them (llama-kv-cache.cpp, get_n_kv); a CPU with flash attention skips the masked ones, and so those
before a sliding window (ggml-cpu/ops.cpp:8969).  What a layer keeps and reads is `memory.cache`'s formula.
`calibration` measures the seconds; nothing here measures, and no file is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from inferlab.errors import InvalidSettings
from inferlab.model.ggml_types import row_bytes
from inferlab.model.gguf import Model, ModelCard, Tensor
from inferlab.prediction.memory.cache import CacheLayer, batches, cache_layers, cell_bytes, cells_read
from inferlab.prediction.memory.compute import uses_flash_attention
from inferlab.prediction.memory.placement import EMBEDDING, OUTPUT_MATRIX, layer_of
from inferlab.settings import Settings

HOST = "host"
ACTIVATION = 4  # bytes of one value between layers
FLASH, PLAIN = "flash", "plain"
WIDE_HEAD = 128  # values that ggml's half-precision sums take at once; narrower heads may go one by one (vec.h:556)
STREAMS_FROM = 32  # tokens from which a card works on host weights itself (ggml-cuda.cu, op_offload_min_batch_size)


@dataclass(frozen=True)
class TypeRates:
    """Seconds for weights of one type.

    seconds_per_byte          with one token
    seconds_per_weight_token  for each weight and token of a large batch
    seconds_per_value_token   in such a batch, for each value that enters or leaves a matrix: rounded for this type,
                              normed, added
    """

    seconds_per_byte: float
    seconds_per_weight_token: float
    seconds_per_value_token: float = 0.0


@dataclass(frozen=True)
class AttentionRates:
    """Seconds for one value of keys or values, for one head and one query: with one token, and in a large batch."""

    seconds_per_value: float
    seconds_per_batch_value: float


@dataclass(frozen=True)
class DeviceRates:
    """What one device was measured to need.

    types          by ggml's names
    attention      by "<type of keys and values>/flash" or ".../plain"; "/128" after it where heads of 128 differ
    block_seconds  for each block of a one-token step beside its weights and attention
    step_seconds   once for each step
    on_cpu         masked cells are skipped, and each query head reads its KV head anew
    """

    name: str
    n_threads: int | None
    on_cpu: bool
    bandwidth_bytes_per_second: float
    types: dict[str, TypeRates]
    attention: dict[str, AttentionRates]
    block_seconds: float = 0.0
    step_seconds: float = 0.0


@dataclass(frozen=True)
class LinkRates:
    """A way to a device: bytes per second, and what llama.cpp adds where blocks are handed over one by one.

    round_trip_seconds  as it was when the other numbers were measured; in them already
    extra_seconds       that a round trip takes longer than then, or than through a relay that does not slow it
    split_seconds       for each part of the graph that is handed over by itself
    split_waits         round trips in it
    split_bytes         bytes of its description and its activations (the RPC backend's; 0 on a bus)
    relay_step_seconds  that a relay before a loopback device adds to each step, and relay_split_seconds to each part
                        that is handed over: it takes turns on the cores with those who compute;
                        relay_round_trip_seconds is the way through it and back
    """

    bytes_per_second: float
    round_trip_seconds: float
    split_seconds: float = 0.0
    split_waits: float = 0.0
    split_bytes: float = 0.0
    extra_seconds: float = 0.0
    relay_round_trip_seconds: float = 0.0
    relay_step_seconds: float = 0.0
    relay_split_seconds: float = 0.0


@dataclass(frozen=True)
class Term:
    """One summand: kind is weights, attention, link or overhead; amount in bytes where it has any."""

    kind: str
    device: str
    seconds: float
    n_bytes: float = 0.0


@dataclass(frozen=True)
class StepPlan:
    """What n_tokens take, term by term; `band` is the share by which the truth may be off either way.

    overlap_seconds  in which two devices work at the same time, so that their terms are more than the whole
    """

    n_tokens: int
    terms: tuple[Term, ...]
    band: float
    overlap_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(term.seconds for term in self.terms) - self.overlap_seconds

    @property
    def tokens_per_second(self) -> float:
        return self.n_tokens / self.seconds

    @property
    def rate_range(self) -> tuple[float, float]:
        """Least and most tokens per second inside the band."""
        return self.tokens_per_second / (1 + self.band), self.tokens_per_second * (1 + self.band)

    def seconds_of(self, kind: str, device: str | None = None) -> float:
        """Seconds of all terms of one kind, on one device or on all."""
        return sum(term.seconds for term in self.terms if term.kind == kind and device in (None, term.device))

    @property
    def bound_by(self) -> str:
        """The kind and device of the largest part, such as "weights on gpu0"."""
        parts = {(t.kind, t.device): self.seconds_of(t.kind, t.device) for t in self.terms}
        kind, device = max(parts, key=parts.get)
        return kind if kind == "link" else f"{kind} on {device}"


@dataclass(frozen=True)
class SpeedPlan:
    """Predicted speed of a workload: the prompt as a whole, and one generated token at the middle of the decode.

    limits  for each device what limits its one-token work on weights: "bandwidth" when it runs at more than 60 % of
            the memory's rate, else "compute"
    notes   what the reader should know, such as a type that was not calibrated
    """

    model: ModelCard
    settings: Settings
    n_prompt: int
    n_gen: int
    prefill: StepPlan
    decode: StepPlan
    limits: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Placed:
    """A model's layers on devices: the device of each block and, last, of the output; and whose the cache is."""

    model: Model
    settings: Settings
    layers: Sequence[str]
    rates: dict[str, DeviceRates]
    links: dict[str, LinkRates]

    def __post_init__(self) -> None:
        missing = set(self.layers) - set(self.rates)
        if missing:
            raise InvalidSettings(f"Nothing was calibrated for {', '.join(sorted(missing))}; run lab.calibrate().")

    # --- steps ------------------------------------------------------------------------------

    def decode(self, depth: int) -> tuple[Term, ...]:
        """One token on top of `depth` cells in use."""
        return self.step(1, depth)

    def prefill(self, n_prompt: int) -> tuple[Term, ...]:
        """All batches of a prompt into an empty cache."""
        return merged(term for step in self.steps(n_prompt) for term in self.step(*step))

    def overlap(self, n_prompt: int) -> float:
        """Seconds in which the host works on a ubatch of a prompt and a loopback device still on the one before.

        The host need not wait, because nothing comes back before the end of a llama_decode.
        """
        shared = HOST in self.layers[:-1]
        if not shared or not self.settings.offload_kqv or not all(self.rates[at].on_cpu for at in self.layers):
            return 0.0
        here = there = spent = 0.0
        for n_tokens, start, last in self.steps(n_prompt):
            terms = self.step(n_tokens, start, last)
            near = sum(term.seconds for term in terms if term.device == HOST)
            far = sum(term.seconds for term in terms) - near
            here, spent = here + near, spent + near + far
            there = max(there, here) + far
            here = there if last else here
        return spent - there

    def steps(self, n_prompt: int) -> list[tuple[int, int, bool]]:
        """Every ubatch of a prompt: its tokens, the cells in use before it, and whether it ends a llama_decode."""
        n_batch, n_ubatch = batches(self.settings)
        ends = {min(start + n_batch, n_prompt) for start in range(0, n_prompt, n_batch)}
        steps = [(min(n_ubatch, n_prompt - start), start) for start in range(0, n_prompt, n_ubatch)]
        return [(n, start, start + n in ends) for n, start in steps]

    def step(self, n_tokens: int, depth: int, wanted: bool = True) -> tuple[Term, ...]:
        """Every term of one step; what works for the last token of a llama_decode alone does so if `wanted`."""
        work = *self.weights(n_tokens, wanted), *self.attention(n_tokens, depth)
        return merged([*work, *self.overhead(), *self.link(n_tokens, depth)])

    # --- terms ------------------------------------------------------------------------------

    def weights(self, n_tokens: int, wanted: bool) -> Iterable[Term]:
        for tensor, device in self.tensors():
            rates = self.rates[device].types.get(tensor.type) or self.nearest(device, tensor)
            last = for_last_token(tensor, self.model)
            if last and not wanted:
                continue
            share = self.used_share(tensor)
            one = share * tensor.n_bytes * rates.seconds_per_byte
            many = share * prod(tensor.shape) * rates.seconds_per_weight_token
            many += self.n_values(tensor) * rates.seconds_per_value_token
            yield Term("weights", device, one if last else max(one, n_tokens * many), share * tensor.n_bytes)

    def n_values(self, tensor: Tensor) -> int:
        """Values that a token brings to a matrix and takes from it."""
        n_used = self.model.number("expert_used_count") or 1 if "_exps" in tensor.name else 1
        return n_used * sum(tensor.shape[:2])

    def tensors(self) -> Iterable[tuple[Tensor, str]]:
        """The matrices that a step multiplies with, each with its device; norms are part of the overhead."""
        return ((tensor, self.layers[layer]) for tensor, layer in matrices(self.model))

    def used_share(self, tensor: Tensor) -> float:
        """Experts that are used, of all; 1 for other tensors."""
        n_expert = self.model.number("expert_count") or 0
        return (self.model.number("expert_used_count") or n_expert) / n_expert if "_exps" in tensor.name else 1.0

    def nearest(self, device: str, tensor: Tensor) -> TypeRates:
        """The rates of the calibrated type whose weights are nearest in size."""
        bits = tensor.n_bytes / prod(tensor.shape)
        known = self.rates[device].types
        return known[min(known, key=lambda type: abs(row_bytes(type, 256) / 256 - bits))]

    def attention(self, n_tokens: int, depth: int) -> Iterable[Term]:
        for device, layer in zip(self.layers[:-1], self.cache, strict=True):
            where = HOST if self.attends_on_host else device
            seen = self.seen_cells(where, layer.window, n_tokens, depth)
            rates = self.attention_rates(where)
            each = rates.seconds_per_value if n_tokens == 1 else rates.seconds_per_batch_value
            yield Term("attention", where, self.widths(where) * seen * each, self.cache_bytes(layer, n_tokens + depth))

    def seen_cells(self, device: str, window: int, n_tokens: int, depth: int) -> float:
        """Cells that all queries of a step look at, together: every unmasked one, or every one that is read."""
        if self.rates[device].on_cpu and uses_flash_attention(self.settings):
            return unmasked_cells(n_tokens, depth, window)
        return n_tokens * cells_read(self.settings, window, depth + n_tokens)

    def widths(self, device: str) -> int:
        """Values of keys and values that one cell shows to one query: once for each head, or for each KV head."""
        n_head = self.model.n_head if self.rates[device].on_cpu else self.model.n_head_kv
        return n_head * (self.model.head_dim_k + self.model.head_dim_v)

    def attention_rates(self, device: str) -> AttentionRates:
        """Of the types of keys and values: their own, or the slower of both where they differ."""
        path = FLASH if uses_flash_attention(self.settings) else PLAIN
        known = self.rates[device].attention
        wide = f"/{WIDE_HEAD}" if self.model.head_dim_v % WIDE_HEAD == 0 else ""
        keys = [f"{type}/{path}" for type in (self.settings.type_k, self.settings.type_v)]
        keys = [key + wide if key + wide in known else key for key in keys]
        found = [known[key] for key in keys if key in known] or [known[f"f16/{path}"]]
        return max(found, key=lambda rates: rates.seconds_per_value)

    def overhead(self) -> Iterable[Term]:
        first = next((device for device in self.layers if device != HOST), HOST)
        yield Term("overhead", HOST, self.rates[first].step_seconds)  # a device's has the host's in it
        for device in self.layers[:-1]:
            yield Term("overhead", device, self.rates[device].block_seconds)

    # --- what crosses ---------------------------------------------------------------------------

    def link(self, n_tokens: int, depth: int) -> Iterable[Term]:
        """Entering a device, the results back, and what a cache on the other side costs."""
        for device in sorted(set(self.layers) - {HOST}):
            yield self.crossing(device, n_tokens * self.model.n_embd * ACTIVATION + self.mask_bytes(n_tokens, depth))
            yield Term("link", device, self.links[device].extra_seconds + self.links[device].relay_step_seconds)
            if self.layers[-1] == device:
                yield self.crossing(device, self.n_logits * ACTIVATION)
            if not self.settings.offload_kqv:
                yield from self.far_cache(device, n_tokens, depth)
            yield from self.streamed(device, n_tokens)

    def far_cache(self, device: str, n_tokens: int, depth: int) -> Iterable[Term]:
        """The cache stays with the host: what crosses, and what handing over each block costs."""
        way = self.links[device]
        layers = [layer for at, layer in zip(self.layers[:-1], self.cache, strict=True) if at == device]
        waits = way.split_seconds + way.relay_split_seconds + way.split_waits * way.extra_seconds
        yield self.crossing(device, sum(self.far_bytes(layer, n_tokens, depth) + way.split_bytes for layer in layers))
        yield Term("link", device, len(layers) * waits)

    def far_bytes(self, layer: CacheLayer, n_tokens: int, depth: int) -> int:
        """Bytes of one block: with flash attention its cache is copied over, without it the queries go to the host."""
        kv = n_tokens * (layer.key_width + layer.value_width) * ACTIVATION
        if uses_flash_attention(self.settings):
            return self.cache_bytes(layer, depth + n_tokens) + kv
        return 2 * n_tokens * self.model.n_head * self.model.head_dim_k * ACTIVATION + kv

    def streamed(self, device: str, n_tokens: int) -> Iterable[Term]:
        """A card copies host weights in for large batches (op_offload); the RPC backend does not."""
        on_cpu = self.rates[device].on_cpu
        if on_cpu or not self.settings.op_offload or n_tokens < STREAMS_FROM:
            return
        n_bytes = sum(tensor.n_bytes for tensor, at in self.tensors() if at == HOST)
        yield self.crossing(device, n_bytes)

    def crossing(self, device: str, n_bytes: float) -> Term:
        return Term("link", device, n_bytes / self.links[device].bytes_per_second, n_bytes)

    def mask_bytes(self, n_tokens: int, depth: int) -> int:
        """Bytes of the masks: a value for each token and each cell that is read, one mask for each kind of layer."""
        windows = {layer.window for layer in self.cache}
        n_cells = sum(cells_read(self.settings, window, depth + n_tokens) for window in windows)
        return n_tokens * n_cells * (2 if uses_flash_attention(self.settings) else 4)

    @cached_property
    def cache(self) -> tuple[CacheLayer, ...]:
        """What each block keeps. Raises UnsupportedArchitecture for a cache that has no formula."""
        return cache_layers(self.model)

    def cache_bytes(self, layer: CacheLayer, n_tokens: int) -> int:
        """Bytes of the cells that one block reads with so many tokens in the cache."""
        each = cell_bytes(layer, self.settings.type_k, self.settings.type_v)
        return cells_read(self.settings, layer.window, n_tokens) * each

    @property
    def n_logits(self) -> int:
        return next(t.shape[1] for t in self.model.tensors if t.name == EMBEDDING)

    @property
    def attends_on_host(self) -> bool:
        """Without flash attention the work follows the cache (llama-graph.cpp:2746-2749); with it, it does not."""
        return not self.settings.offload_kqv and not uses_flash_attention(self.settings)


def unmasked_cells(n_tokens: int, depth: int, window: int) -> float:
    """Cells that `n_tokens` queries on top of `depth` cells may look at, together: causal, and within a window.

    Query i sees min(depth + i, window) cells; over all queries that is k (depth + (k + 1) / 2) + (n - k) window,
    where k of n queries still see everything: k = max(0, window - depth), at most n; k = n without a window.
    """
    whole = min(n_tokens, max(0, window - depth)) if window else n_tokens
    return whole * (depth + (whole + 1) / 2) + (n_tokens - whole) * window


def merged(terms: Iterable[Term]) -> tuple[Term, ...]:
    """One term for each kind on each device."""
    totals: dict[tuple[str, str], Term] = {}
    for term in terms:
        before = totals.get((term.kind, term.device), Term(term.kind, term.device, 0.0))
        totals[term.kind, term.device] = Term(
            term.kind, term.device, before.seconds + term.seconds, before.n_bytes + term.n_bytes
        )
    return tuple(term for term in totals.values() if term.seconds)


def matrices(model: Model) -> Iterable[tuple[Tensor, int]]:
    """Every matrix that a token passes and its layer; an embedding counts where it is the output matrix, too."""
    tied = all(tensor.name != OUTPUT_MATRIX for tensor in model.tensors)
    for tensor in model.tensors:
        layer = model.n_layer if tied and tensor.name == EMBEDDING else layer_of(tensor, model)
        if len(tensor.shape) > 1 and layer is not None and layer >= 0:
            yield tensor, layer


def for_last_token(tensor: Tensor, model: Model) -> bool:
    """Whether a matrix sees only tokens whose logits are wanted: the output, and the last block behind its attention.

    Source: src/models/llama.cpp:174, and the same line of the other models.
    """
    return tensor.name in (OUTPUT_MATRIX, EMBEDDING) or tensor.name.startswith(f"blk.{model.n_layer - 1}.ffn")


def intensity(model: Model, n_tokens: int) -> float:
    """FLOP for each byte of weights read, when n_tokens pass together: 2 x weights x tokens / bytes.

    What works for the last token only counts so; attention is left out.
    """
    passed = [tensor for tensor, _ in matrices(model)]
    flops = sum(2 * prod(t.shape) * (1 if for_last_token(t, model) else n_tokens) for t in passed)
    return flops / sum(tensor.n_bytes for tensor in passed)


def limits_of(rates: dict[str, DeviceRates], decode: StepPlan) -> dict[str, str]:
    """What limits each device's work on weights: see SpeedPlan."""
    found = {}
    for term in decode.terms:
        if term.kind == "weights":
            share = term.n_bytes / term.seconds / rates[term.device].bandwidth_bytes_per_second
            found[term.device] = "bandwidth" if share > 0.6 else "compute"
    return found
