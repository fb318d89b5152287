"""Predicts the time of a step from the bytes, cells and copies that it needs and from a machine's measured rates.

One step is one llama_decode: a batch of n_tokens on top of `depth` cells in use. Its time is the sum of these terms
over all devices:

    weights    one token: bytes of the device's layers x seconds per byte of their types
               a batch: weights x tokens x seconds per weight and token
               + values that enter and leave a matrix x tokens x seconds per value;
               whichever of the two is more
    attention  heads x (key width + value width) x cells that are attended x seconds per value
    overhead   seconds per block, and seconds per step
    link       bytes transferred / bytes per second, and waits

The terms are added because llama.cpp uses devices one after another; only in a prompt of several ubatches may host and
loopback device compute different ubatches at the same time. Cells in use are counted in steps of 256, as llama.cpp
rounds them (llama-kv-cache.cpp, get_n_kv); a CPU with flash attention skips masked cells, including those before a
sliding window (ggml-cpu/ops.cpp:8969). `memory.cache` has the formulas for cells and their bytes.
`calibrate` measures the rates; this module only computes, and reads no file.
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
WIDE_HEAD = (
    128  # values that ggml's half-precision sums process at once; narrower heads may be summed singly (vec.h:556)
)
STREAMS_FROM = 32  # tokens from which a card multiplies host weights itself (ggml-cuda.cu, op_offload_min_batch_size)


@dataclass(frozen=True)
class TypeRates:
    """Seconds for weights of one type.

    seconds_per_byte          one token
    seconds_per_weight_token  for each weight and token of a large batch
    seconds_per_value_token   for each token of a large batch and each value that enters or leaves a matrix: rounding
                              to this type, norms, additions
    """

    seconds_per_byte: float
    seconds_per_weight_token: float
    seconds_per_value_token: float = 0.0


@dataclass(frozen=True)
class AttentionRates:
    """Seconds per value of keys or values, for one head and one query: of one token, and in a large batch."""

    seconds_per_value: float
    seconds_per_batch_value: float


@dataclass(frozen=True)
class DeviceRates:
    """Measured rates of one device.

    types          rates by ggml's names of types
    attention      rates by "<type of keys and values>/flash" or ".../plain"; followed by "/128" where heads of 128
                   values have their own
    block_seconds  for each block of a one-token step, beside its weights and attention
    step_seconds   once for each step
    on_cpu         whether masked cells are skipped, and each query head reads its KV head again
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
    """Measured rates of a link to a device. A split is a part of the graph that is sent to a device by itself.

    round_trip_seconds        when the other rates were measured; they include it
    extra_seconds             added to a round trip since then, or by a slowed relay over one that is not slowed
    split_seconds             for each split
    split_waits               round trips for each split
    split_bytes               bytes of a split's description and activations (RPC backend; 0 on a bus)
    relay_round_trip_seconds  round trip through a relay that is not slowed
    relay_step_seconds        added to each step by a relay before a loopback device: it shares the processor's cores
                              with the computation
    relay_split_seconds       added to each split by such a relay
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
    """One term of a step's time: kind is weights, attention, link or overhead; n_bytes where bytes are read or sent."""

    kind: str
    device: str
    seconds: float
    n_bytes: float = 0.0


@dataclass(frozen=True)
class StepPlan:
    """Predicted seconds of n_tokens, term by term; a measurement may differ by the share `band` in either direction.

    overlap_seconds  time in which two devices compute at once; subtracted from the sum of the terms
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
        """The kind and device of the largest term, such as "weights on gpu0"."""
        parts = {(t.kind, t.device): self.seconds_of(t.kind, t.device) for t in self.terms}
        kind, device = max(parts, key=parts.get)
        return kind if kind == "link" else f"{kind} on {device}"


@dataclass(frozen=True)
class SpeedPlan:
    """Predicted speed of a workload: the prompt as a whole, and one generated token at the middle of the decode.

    limits  for each device what limits a one-token step's weights: "bandwidth" when they are read at more than 60 %
            of the memory's rate, else "compute"
    notes   sentences for the reader, such as that a type was not calibrated
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
class PlacedModel:
    """A model placed on devices: `layers` has the device of each block and, last, of the output layer."""

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
        return merged_terms(term for step in self.steps(n_prompt) for term in self.step(*step))

    def overlap(self, n_prompt: int) -> float:
        """Seconds in which the host computes a ubatch of a prompt while a loopback device computes the one before.

        The host need not wait, because no result is sent back before the end of a llama_decode.
        overlap = sum of all steps - time at which the device has finished the last
        """
        host_has_blocks = HOST in self.layers[:-1]
        if (
            not host_has_blocks
            or not self.settings.offload_kqv
            or not all(self.rates[device].on_cpu for device in self.layers)
        ):
            return 0.0
        host_free_at = device_free_at = sequential = 0.0
        for n_tokens, start, last in self.steps(n_prompt):
            terms = self.step(n_tokens, start, last)
            host_seconds = sum(term.seconds for term in terms if term.device == HOST)
            device_seconds = sum(term.seconds for term in terms) - host_seconds
            host_free_at, sequential = host_free_at + host_seconds, sequential + host_seconds + device_seconds
            device_free_at = max(device_free_at, host_free_at) + device_seconds
            host_free_at = device_free_at if last else host_free_at
        return sequential - device_free_at

    def steps(self, n_prompt: int) -> list[tuple[int, int, bool]]:
        """Each ubatch of a prompt: its tokens, the cells in use before it, and whether a llama_decode ends with it."""
        n_batch, n_ubatch = batches(self.settings)
        ends = {min(start + n_batch, n_prompt) for start in range(0, n_prompt, n_batch)}
        steps = [(min(n_ubatch, n_prompt - start), start) for start in range(0, n_prompt, n_ubatch)]
        return [(n, start, start + n in ends) for n, start in steps]

    def step(self, n_tokens: int, depth: int, computes_logits: bool = True) -> tuple[Term, ...]:
        """Every term of one step; matrices for the last token count only if `computes_logits`."""
        work = *self.weights(n_tokens, computes_logits), *self.attention(n_tokens, depth)
        return merged_terms([*work, *self.overhead(), *self.link(n_tokens, depth)])

    # --- terms ------------------------------------------------------------------------------

    def weights(self, n_tokens: int, computes_logits: bool) -> Iterable[Term]:
        for tensor, device in self.tensors():
            rates = self.rates[device].types.get(tensor.type) or self.nearest_type_rates(device, tensor)
            last = for_last_token(tensor, self.model)
            if last and not computes_logits:
                continue
            share = self.active_share(tensor)
            one_token = share * tensor.n_bytes * rates.seconds_per_byte
            per_token = share * prod(tensor.shape) * rates.seconds_per_weight_token
            per_token += self.n_values(tensor) * rates.seconds_per_value_token
            yield Term(
                "weights", device, one_token if last else max(one_token, n_tokens * per_token), share * tensor.n_bytes
            )

    def n_values(self, tensor: Tensor) -> int:
        """Values that enter and leave a matrix for each token."""
        n_used = self.model.number("expert_used_count") or 1 if "_exps" in tensor.name else 1
        return n_used * sum(tensor.shape[:2])

    def tensors(self) -> Iterable[tuple[Tensor, str]]:
        """The matrices that a step multiplies with, and the device of each; norms are part of the overhead."""
        return ((tensor, self.layers[layer]) for tensor, layer in matrices(self.model))

    def active_share(self, tensor: Tensor) -> float:
        """Experts used for a token, as a share of all; 1 for tensors without experts."""
        n_expert = self.model.number("expert_count") or 0
        return (self.model.number("expert_used_count") or n_expert) / n_expert if "_exps" in tensor.name else 1.0

    def nearest_type_rates(self, device: str, tensor: Tensor) -> TypeRates:
        """The rates of the calibrated type whose weights are nearest in size."""
        bits = tensor.n_bytes / prod(tensor.shape)
        known = self.rates[device].types
        return known[min(known, key=lambda type: abs(row_bytes(type, 256) / 256 - bits))]

    def attention(self, n_tokens: int, depth: int) -> Iterable[Term]:
        for device, layer in zip(self.layers[:-1], self.cache, strict=True):
            processor = HOST if self.attends_on_host else device
            attended = self.attended_cells(processor, layer.window, n_tokens, depth)
            rates = self.attention_rates(processor)
            each = rates.seconds_per_value if n_tokens == 1 else rates.seconds_per_batch_value
            yield Term(
                "attention",
                processor,
                self.values_per_cell(processor) * attended * each,
                self.cache_bytes(layer, n_tokens + depth),
            )

    def attended_cells(self, device: str, window: int, n_tokens: int, depth: int) -> float:
        """Cells that a step's queries attend to, summed over them: the unmasked cells, or all that are read."""
        if self.rates[device].on_cpu and uses_flash_attention(self.settings):
            return unmasked_cells(n_tokens, depth, window)
        return n_tokens * cells_read(self.settings, window, depth + n_tokens)

    def values_per_cell(self, device: str) -> int:
        """Key and value numbers that one query reads from one cell: per query head on a CPU, per KV head elsewhere."""
        n_head = self.model.n_head if self.rates[device].on_cpu else self.model.n_head_kv
        return n_head * (self.model.head_dim_k + self.model.head_dim_v)

    def attention_rates(self, device: str) -> AttentionRates:
        """Rates for the types of keys and values; the slower where the two types differ."""
        path = FLASH if uses_flash_attention(self.settings) else PLAIN
        known = self.rates[device].attention
        wide = f"/{WIDE_HEAD}" if self.model.head_dim_v % WIDE_HEAD == 0 else ""
        keys = [f"{type}/{path}" for type in (self.settings.type_k, self.settings.type_v)]
        keys = [key + wide if key + wide in known else key for key in keys]
        found = [known[key] for key in keys if key in known] or [known[f"f16/{path}"]]
        return max(found, key=lambda rates: rates.seconds_per_value)

    def overhead(self) -> Iterable[Term]:
        first = next((device for device in self.layers if device != HOST), HOST)
        yield Term("overhead", HOST, self.rates[first].step_seconds)  # a device's includes the host's
        for device in self.layers[:-1]:
            yield Term("overhead", device, self.rates[device].block_seconds)

    # --- transfers ----------------------------------------------------------------------------

    def link(self, n_tokens: int, depth: int) -> Iterable[Term]:
        """Sending activations to each device, results back, and the transfers for a cache on the host."""
        for device in sorted(set(self.layers) - {HOST}):
            yield self.transfer(device, n_tokens * self.model.n_embd * ACTIVATION + self.mask_bytes(n_tokens, depth))
            yield Term("link", device, self.links[device].extra_seconds + self.links[device].relay_step_seconds)
            if self.layers[-1] == device:
                yield self.transfer(device, self.n_logits * ACTIVATION)
            if not self.settings.offload_kqv:
                yield from self.host_cache_transfers(device, n_tokens, depth)
            yield from self.weight_uploads(device, n_tokens)

    def host_cache_transfers(self, device: str, n_tokens: int, depth: int) -> Iterable[Term]:
        """Transfers and waits for each block of a device whose cache is on the host."""
        link_rates = self.links[device]
        layers = [
            layer for layer_device, layer in zip(self.layers[:-1], self.cache, strict=True) if layer_device == device
        ]
        waits = (
            link_rates.split_seconds
            + link_rates.relay_split_seconds
            + link_rates.split_waits * link_rates.extra_seconds
        )
        yield self.transfer(
            device, sum(self.host_cache_bytes(layer, n_tokens, depth) + link_rates.split_bytes for layer in layers)
        )
        yield Term("link", device, len(layers) * waits)

    def host_cache_bytes(self, layer: CacheLayer, n_tokens: int, depth: int) -> int:
        """Bytes moved for one block: its cache with flash attention, else queries and results; and new keys."""
        kv = n_tokens * (layer.key_width + layer.value_width) * ACTIVATION
        if uses_flash_attention(self.settings):
            return self.cache_bytes(layer, depth + n_tokens) + kv
        return 2 * n_tokens * self.model.n_head * self.model.head_dim_k * ACTIVATION + kv

    def weight_uploads(self, device: str, n_tokens: int) -> Iterable[Term]:
        """Host weights copied to a card for large batches (op_offload); the RPC backend does not copy them."""
        on_cpu = self.rates[device].on_cpu
        if on_cpu or not self.settings.op_offload or n_tokens < STREAMS_FROM:
            return
        n_bytes = sum(tensor.n_bytes for tensor, owner in self.tensors() if owner == HOST)
        yield self.transfer(device, n_bytes)

    def transfer(self, device: str, n_bytes: float) -> Term:
        return Term("link", device, n_bytes / self.links[device].bytes_per_second, n_bytes)

    def mask_bytes(self, n_tokens: int, depth: int) -> int:
        """Bytes of the masks: a value for each token and each cell that is read, one mask for each kind of layer."""
        windows = {layer.window for layer in self.cache}
        n_cells = sum(cells_read(self.settings, window, depth + n_tokens) for window in windows)
        return n_tokens * n_cells * (2 if uses_flash_attention(self.settings) else 4)

    @cached_property
    def cache(self) -> tuple[CacheLayer, ...]:
        """The cache of each block. Raises UnsupportedArchitecture for a cache that has no formula."""
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
        """Whether the host computes attention: for a host cache without flash attention (llama-graph.cpp:2746)."""
        return not self.settings.offload_kqv and not uses_flash_attention(self.settings)


def unmasked_cells(n_tokens: int, depth: int, window: int) -> float:
    """Cells that `n_tokens` queries on top of `depth` cells attend to, summed: causal, and within a window.

    Query i attends to min(depth + i, window) cells. The sum over n queries is
    k (depth + (k + 1) / 2) + (n - k) window, where k queries attend to every cell:
    k = max(0, window - depth), at most n; k = n without a window.
    """
    n_full = min(n_tokens, max(0, window - depth)) if window else n_tokens
    return n_full * (depth + (n_full + 1) / 2) + (n_tokens - n_full) * window


def merged_terms(terms: Iterable[Term]) -> tuple[Term, ...]:
    """One term for each kind on each device."""
    totals: dict[tuple[str, str], Term] = {}
    for term in terms:
        before = totals.get((term.kind, term.device), Term(term.kind, term.device, 0.0))
        totals[term.kind, term.device] = Term(
            term.kind, term.device, before.seconds + term.seconds, before.n_bytes + term.n_bytes
        )
    return tuple(term for term in totals.values() if term.seconds)


def matrices(model: Model) -> Iterable[tuple[Tensor, int]]:
    """Every matrix that a token is multiplied with, and its layer; a tied embedding counts as the output matrix."""
    tied = all(tensor.name != OUTPUT_MATRIX for tensor in model.tensors)
    for tensor in model.tensors:
        layer = model.n_layer if tied and tensor.name == EMBEDDING else layer_of(tensor, model)
        if len(tensor.shape) > 1 and layer is not None and layer >= 0:
            yield tensor, layer


def for_last_token(tensor: Tensor, model: Model) -> bool:
    """Whether a matrix is used only for tokens whose logits are needed: the output and the last feed-forward network.

    Source: src/models/llama.cpp:174, and the same line of the other models.
    """
    return tensor.name in (OUTPUT_MATRIX, EMBEDDING) or tensor.name.startswith(f"blk.{model.n_layer - 1}.ffn")


def intensity(model: Model, n_tokens: int) -> float:
    """FLOP per byte of weights read in a batch of n_tokens: 2 x weights x tokens / bytes.

    Matrices for the last token count one token; attention is left out.
    """
    used = [tensor for tensor, _ in matrices(model)]
    flops = sum(2 * prod(t.shape) * (1 if for_last_token(t, model) else n_tokens) for t in used)
    return flops / sum(tensor.n_bytes for tensor in used)


def weight_limits(rates: dict[str, DeviceRates], decode: StepPlan) -> dict[str, str]:
    """Bandwidth or compute for each device with weights, see SpeedPlan."""
    found = {}
    for term in decode.terms:
        if term.kind == "weights":
            share = term.n_bytes / term.seconds / rates[term.device].bandwidth_bytes_per_second
            found[term.device] = "bandwidth" if share > 0.6 else "compute"
    return found
