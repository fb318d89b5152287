"""Predicts the time of a step from the bytes, cells and copies that it needs and from a machine's measured rates.

One step is one llama_decode: a batch of n_tokens on top of `depth` cells in use. Its time is the sum of these terms
over all devices:

    weights    a product for each matrix, at the rates of its type in the buffer that holds it
    attention  cells that are attended x query heads x seconds, and for one token the bytes of keys and values x seconds
    overhead   seconds per block, per step, and per value that enters or leaves a matrix
    link       bytes transferred / bytes per second, and waits

`rates` has the equations of each. The terms are added because llama.cpp uses devices one after another; only in a
prompt of several ubatches may host and loopback device compute different ubatches at the same time. Cells in use are
counted in steps of 256, as llama.cpp rounds them (llama-kv-cache.cpp, get_n_kv). `memory.cache` has the formulas for
cells and their bytes. `calibrate` measures the rates; this module only computes, and reads no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE
from inferlab.model.dimensions import Dimensions, dimensions_of
from inferlab.model.ggml_types import row_bytes
from inferlab.model.gguf import Model, ModelCard, Tensor
from inferlab.model.kernels import KERNEL_OF_BUFFER, REPACKED
from inferlab.model.repacking import takes_rows
from inferlab.prediction.memory.cache import CacheLayer, batches, cache_layers, cell_bytes, cells_read
from inferlab.prediction.memory.compute import uses_flash_attention
from inferlab.prediction.memory.placement import EMBEDDING, OUTPUT_MATRIX, layer_of, loaded_tensors
from inferlab.prediction.rates import (
    ACTIVATION,
    REPACK_TOKENS,
    TILE,
    TILED_CACHES,
    AttentionRates,
    DeviceRates,
    LinkRates,
    MatrixRates,
    attended_cells,
)
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import number_text, rate_text

FLASH, PLAIN = "flash", "plain"
STREAMS_FROM = 32  # tokens from which a card multiplies host weights itself (ggml-cuda.cu, op_offload_min_batch_size)


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

    @property
    def text(self) -> str:
        """`12.3 tokens/s (10.1 to 15), mostly weights on host`: the rate, its band and its largest term."""
        low, high = map(number_text, self.rate_range)
        return f"{rate_text(self.tokens_per_second)} ({low} to {high}), mostly {self.bound_by}"

    def seconds_of(self, kind: str, device: str | None = None) -> float:
        """Seconds of all terms of one kind, on one device or on all."""
        return sum(term.seconds for term in self.terms if term.kind == kind and device in (None, term.device))

    @property
    def bound_by(self) -> str:
        """The kind and device of the largest term, such as "weights on gpu0"."""
        parts = {(t.kind, t.device): self.seconds_of(t.kind, t.device) for t in self.terms}
        kind, device = max(parts, key=parts.__getitem__)
        return kind if kind == "link" else f"{kind} on {device}"


@dataclass(frozen=True)
class SpeedPlan(Shown):
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

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """The rate of each phase with its band and its largest term, and the notes."""
        title = f"{self.model.name}: prompt of {self.n_prompt:,} tokens, answer of {self.n_gen:,}"
        steps = (("prefill", self.prefill), ("decode", self.decode))
        return title, [*((name, step.text) for name, step in steps), *(("note", note) for note in self.notes)]


@dataclass(frozen=True)
class PlacedModel:
    """A model placed on devices.

    layers  the device of each block and, last, of the output layer
    moved   the device of each tensor that an override puts elsewhere, by its name
    """

    model: Model
    settings: Settings
    layers: Sequence[str]
    rates: dict[str, DeviceRates]
    links: dict[str, LinkRates]
    moved: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = {*self.layers, *self.moved.values()} - set(self.rates)
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
        host_has_blocks = HOST_DEVICE in self.layers[:-1]
        if (
            not host_has_blocks
            or not self.settings.offload_kqv
            or not all(self.rates[device].on_cpu for device in self.layers)
        ):
            return 0.0
        host_free_at = device_free_at = sequential = 0.0
        for n_tokens, start, last in self.steps(n_prompt):
            terms = self.step(n_tokens, start, last)
            host_seconds = sum(term.seconds for term in terms if term.device == HOST_DEVICE)
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
        return merged_terms([*work, *self.overhead(n_tokens), *self.link(n_tokens, depth)])

    # --- terms ------------------------------------------------------------------------------

    def weights(self, n_tokens: int, computes_logits: bool) -> Iterable[Term]:
        for tensor, device in self.tensors():
            last = for_last_token(tensor, self.model)
            if not last or computes_logits:
                seconds = self.matrix_seconds(tensor, device, 1 if last else n_tokens)
                yield Term("weights", device, seconds, share_drawn(tensor, self.model, n_tokens) * tensor.n_bytes)

    def matrix_seconds(self, tensor: Tensor, device: str, n_tokens: int) -> float:
        """Seconds of one matrix: not less than one token's; a repacked one multiplies four tokens at a time.

        n_tokens   max(one token, batch); for AMX's buffer too, whose last block may be partial (amx/mmq.cpp:2497)
        repacked   tokens - tokens % 4 as a batch, and each of the rest as one token (repack.cpp:4638)
        experts    drawn experts * seconds of one matrix with n_tokens * used / drawn tokens, see `share_drawn`; a
                   repacked one is multiplied with one token at a time (repack.cpp:4895)
        """
        rates, repacked = self.matrix_rates(tensor, device), self.is_interleaved(tensor, device)
        n_columns, n_rows = tensor.shape[:2]
        single = rates.one_token(row_bytes(tensor.type, n_columns) * n_rows, n_rows)
        n_drawn = share_drawn(tensor, self.model, n_tokens) * n_matrices(tensor)
        n_each = n_tokens * n_used_experts(tensor, self.model) / n_drawn
        alone = (n_each if is_of_experts(tensor) else n_tokens % REPACK_TOKENS) if repacked else 0
        together = n_each - alone
        if n_tokens == 1 or not together:
            return n_drawn * n_each * single
        return n_drawn * (max(single, rates.batch(n_rows, n_columns, together)) + alone * single)

    def matrix_rates(self, tensor: Tensor, device: str) -> MatrixRates:
        return self.rates[device].matrix(tensor.type, self.is_repacked(tensor, device))

    def is_repacked(self, tensor: Tensor, device: str) -> bool:
        """Whether a host matrix is in an extra buffer: with a card, only if its host buffer is not used."""
        on_card = any(not rates.on_cpu for rates in self.rates.values())
        allowed = device == HOST_DEVICE and self.settings.use_extra_bufts and (self.settings.no_host or not on_card)
        rates = self.rates[device]
        return allowed and takes_rows(tensor, rates.extra_buffer(tensor.type), rates.repacked_types)

    def is_interleaved(self, tensor: Tensor, device: str) -> bool:
        """Whether a host matrix is in the buffer whose kernels multiply four tokens at a time; AMX's is another."""
        buffer = self.rates[device].extra_buffer(tensor.type)
        return KERNEL_OF_BUFFER.get(buffer) == REPACKED and self.is_repacked(tensor, device)

    def tensors(self) -> Iterable[tuple[Tensor, str]]:
        """The matrices that a step multiplies with, and the device of each; norms are part of the overhead."""
        return placed_matrices(self.model, self.layers, self.moved)

    def attention(self, n_tokens: int, depth: int) -> Iterable[Term]:
        for device, layer in zip(self.layers[:-1], self.cache, strict=True):
            processor = HOST_DEVICE if self.attends_on_host else device
            rates, n_bytes = self.attention_rates(processor), self.cache_bytes(layer, n_tokens + depth)
            cells = self.attended_cells(processor, layer.window, n_tokens, depth)
            if n_tokens == 1:
                read = n_bytes * cells / cells_read(self.settings, layer.window, depth + 1)
                seconds = self.size.n_head * cells * rates.seconds_per_head_cell + read * rates.seconds_per_byte
            else:
                seconds = self.size.n_head * cells * self.batch_cell_seconds(rates, n_tokens)
            yield Term("attention", processor, seconds, n_bytes)

    def batch_cell_seconds(self, rates: AttentionRates, n_tokens: int) -> float:
        """Seconds of a head and cell in a batch; a batch that fills no tile is computed like single tokens."""
        small = n_tokens < TILE and self.is_tiled and uses_flash_attention(self.settings)
        return rates.seconds_per_head_cell if small else rates.seconds_per_batch_cell

    def attended_cells(self, device: str, window: int, n_tokens: int, depth: int) -> float:
        rates = self.rates[device]
        return attended_cells(
            n_tokens,
            depth,
            cells_read(self.settings, window, depth + n_tokens),
            window=window,
            skips_masked=rates.on_cpu and uses_flash_attention(self.settings),
            tiled=self.is_tiled,
            n_threads=rates.n_threads or 1,
        )

    @property
    def is_tiled(self) -> bool:
        """Whether a CPU computes flash attention in tiles for this cache's types."""
        return self.settings.type_k == self.settings.type_v and self.settings.type_k in TILED_CACHES

    def attention_rates(self, device: str) -> AttentionRates:
        """Rates for the types of keys and values; the slower where the two types differ, F16's for an unknown one."""
        path, head_dim, measured = attention_path(self.settings), self.size.head_dim_v, self.rates[device].attention_of

        def known(*types: str) -> list[AttentionRates]:
            return [rates for type in types if (rates := measured(type, path, head_dim))]

        rates = known(self.settings.type_k, self.settings.type_v) or known("f16")
        return max(rates, key=lambda rates: rates.seconds_per_head_cell)

    def overhead(self, n_tokens: int = 1) -> Iterable[Term]:
        first = next((device for device in self.layers if device != HOST_DEVICE), HOST_DEVICE)
        yield Term("overhead", HOST_DEVICE, self.rates[first].step_seconds)  # a device's includes the host's
        for device in self.layers[:-1]:
            yield Term("overhead", device, self.rates[device].block_seconds)
        for tensor, device in self.tensors():
            if n_tokens > 1 and not for_last_token(tensor, self.model):
                n_values = n_tokens * n_used_experts(tensor, self.model) * sum(tensor.shape[:2])
                yield Term("overhead", device, n_values * self.rates[device].value_seconds)

    # --- transfers ----------------------------------------------------------------------------

    def link(self, n_tokens: int, depth: int) -> Iterable[Term]:
        """Sending activations to each device, results back, and the transfers for a cache on the host."""
        for device in sorted(set(self.layers) - {HOST_DEVICE}):
            yield self.transfer(device, n_tokens * self.size.n_embd * ACTIVATION + self.mask_bytes(n_tokens, depth))
            yield Term("link", device, self.links[device].extra_seconds + self.links[device].relay_step_seconds)
            if self.layers[-1] == device:
                yield self.transfer(device, self.n_logits * ACTIVATION)
            yield from self.moved_transfers(device, n_tokens)
            if not self.settings.offload_kqv:
                yield from self.host_cache_transfers(device, n_tokens, depth)
            yield from self.weight_uploads(device, n_tokens)

    def host_cache_transfers(self, device: str, n_tokens: int, depth: int) -> Iterable[Term]:
        """Transfers and waits for each block of a device whose cache is on the host."""
        link_rates = self.links[device]
        layers = [
            layer for layer_device, layer in zip(self.layers[:-1], self.cache, strict=True) if layer_device == device
        ]
        yield self.transfer(
            device, sum(self.host_cache_bytes(layer, n_tokens, depth) + link_rates.split_bytes for layer in layers)
        )
        yield Term("link", device, len(layers) * link_rates.crossing_seconds)

    def moved_transfers(self, device: str, n_tokens: int) -> Iterable[Term]:
        """Transfers and waits for each block of a device whose experts are on the host: there and back.

        2 n_embd values, and the number and the weight of each used expert, for every token
        """
        blocks = {layer for tensor, layer in matrices(self.model) if self.moved.get(tensor.name) == HOST_DEVICE}
        n = sum(self.layers[block] == device for block in blocks)
        if n:
            n_values = 2 * self.size.n_embd + 2 * (self.model.number("expert_used_count") or 0)
            yield self.transfer(device, n * n_tokens * n_values * ACTIVATION)
            yield Term("link", device, n * self.links[device].crossing_seconds)

    def host_cache_bytes(self, layer: CacheLayer, n_tokens: int, depth: int) -> int:
        """Bytes moved for one block: its cache with flash attention, else queries and results; and new keys."""
        kv = n_tokens * (layer.key_width + layer.value_width) * ACTIVATION
        if uses_flash_attention(self.settings):
            return self.cache_bytes(layer, depth + n_tokens) + kv
        return 2 * n_tokens * self.size.n_head * self.size.head_dim_k * ACTIVATION + kv

    def weight_uploads(self, device: str, n_tokens: int) -> Iterable[Term]:
        """Host weights copied to a card for large batches (op_offload); the RPC backend does not copy them."""
        on_cpu = self.rates[device].on_cpu
        if on_cpu or not self.settings.op_offload or n_tokens < STREAMS_FROM:
            return
        yield self.transfer(device, drawn_on_host(self.tensors(), self.model, n_tokens))

    def transfer(self, device: str, n_bytes: float) -> Term:
        return Term("link", device, n_bytes / self.links[device].bytes_per_second, n_bytes)

    def mask_bytes(self, n_tokens: int, depth: int) -> int:
        """Bytes of the masks: a value for each token and each cell that is read, one mask for each kind of layer."""
        windows = {layer.window for layer in self.cache}
        n_cells = sum(cells_read(self.settings, window, depth + n_tokens) for window in windows)
        return n_tokens * n_cells * (2 if uses_flash_attention(self.settings) else 4)

    @cached_property
    def cache(self) -> tuple[CacheLayer, ...]:
        """The cache of each block.

        Raises UnsupportedArchitecture for a cache without a formula, for states, for an indexer, and for layers that
        use the cache of others.
        """
        layers = cache_layers(self.model)
        if any(layer.state_values for layer in layers):
            raise UnsupportedArchitecture(
                f"{self.model.name} ({self.model.architecture}) has recurrent layers, whose seconds no calibration "
                "knows. Measure it with lab.measure; its memory can be planned."
            )
        if any(layer.index_key or not layer.key_width for layer in layers):
            raise UnsupportedArchitecture(
                f"{self.model.name} ({self.model.architecture}) has layers that attend to chosen cells, to those of "
                "another layer or to none, and no calibration knows their seconds. Measure it with lab.measure; its "
                "memory can be planned."
            )
        return layers

    def cache_bytes(self, layer: CacheLayer, n_tokens: int) -> int:
        """Bytes of the cells that one block reads with so many tokens in the cache."""
        each = cell_bytes(layer, self.settings.type_k, self.settings.type_v)
        return cells_read(self.settings, layer.window, n_tokens) * each

    @cached_property
    def size(self) -> Dimensions:
        return dimensions_of(self.model)

    @property
    def n_logits(self) -> int:
        return next(t.shape[1] for t in self.model.tensors if t.name == EMBEDDING)

    @property
    def attends_on_host(self) -> bool:
        """Whether the host computes attention: for a host cache without flash attention (llama-graph.cpp:2746)."""
        return not self.settings.offload_kqv and not uses_flash_attention(self.settings)


def attention_path(settings: Settings) -> str:
    """ "flash" or "plain"."""
    return FLASH if uses_flash_attention(settings) else PLAIN


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
    for tensor in loaded_tensors(model):
        layer = model.n_layer if tied and tensor.name == EMBEDDING else layer_of(tensor, model)
        if len(tensor.shape) > 1 and layer is not None and layer >= 0:
            yield tensor, layer


def placed_matrices(model: Model, layers: Sequence[str], moved: Mapping[str, str]) -> Iterable[tuple[Tensor, str]]:
    """Every matrix of `matrices` with its device: that of its layer, or where an override put it."""
    return ((tensor, moved.get(tensor.name, layers[layer])) for tensor, layer in matrices(model))


def drawn_on_host(placed: Iterable[tuple[Tensor, str]], model: Model, n_tokens: int) -> float:
    """Bytes of the host's matrices that a batch needs, of experts those in use: see `share_drawn`."""
    return sum(
        share_drawn(tensor, model, n_tokens) * tensor.n_bytes for tensor, device in placed if device == HOST_DEVICE
    )


def is_of_experts(tensor: Tensor) -> bool:
    """Whether a tensor has a matrix for each expert, of which a token uses some."""
    return "_exps" in tensor.name


def n_matrices(tensor: Tensor) -> int:
    """Matrices in a tensor: one, or one for each expert."""
    return tensor.shape[2] if is_of_experts(tensor) else 1


def n_used_experts(tensor: Tensor, model: Model) -> int:
    """Matrices of a tensor that one token is multiplied with: the used experts, or 1."""
    return model.number("expert_used_count") or 1 if is_of_experts(tensor) else 1


def share_drawn(tensor: Tensor, model: Model, n_tokens: int) -> float:
    """Share of a tensor's experts that some token of a batch uses, if each draws its own at random; 1 without experts.

    1 - (1 - used / all)^n_tokens, which is used / all for one token
    """
    return 1 - (1 - n_used_experts(tensor, model) / n_matrices(tensor)) ** n_tokens


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
    limits = {}
    for term in decode.terms:
        if term.kind == "weights":
            share = term.n_bytes / term.seconds / rates[term.device].bandwidth_bytes_per_second
            limits[term.device] = "bandwidth" if share > 0.6 else "compute"
    return limits
