"""What of all known models runs on a machine: the largest weights that fit, and the longest context with them.

For each model two answers: whole on the card, and with experts or layers in RAM where that allows larger weights.
Weights and cache are those of a plan, layer by layer and card by card. The search for the longest context takes

    compute(n) = the line through the nearest two contexts whose compute buffers are computed

which is only a guide, since a buffer may shrink where the context grows; each context that is found is computed, too.
So what is listed fits by a plan; a plan may find more, above all with a part in RAM. Compute buffers are the slow
part: none is computed where the longest context fits with a bound of them. What is counted of a model ends with its
answer.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property, partial, wraps
from math import ceil
from typing import Any, Protocol, TypeVar

from inferlab.errors import InferlabError, InvalidSettings, UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE, Machine
from inferlab.model.architectures import tensors
from inferlab.model.catalog import KnownModel, known_models
from inferlab.model.dimensions import header_of_known, heads_of, layers_counted
from inferlab.model.ggml_types import CELL_STEP, TYPES
from inferlab.model.gguf import Model
from inferlab.model.quant_mixes import UNQUANTIZED as UNQUANTIZED_WEIGHTS
from inferlab.model.quant_mixes import Quantizer, base_type
from inferlab.model.synthetic_model import shape
from inferlab.prediction.card_work import placed_work
from inferlab.prediction.expected import expected_decode, question_of
from inferlab.prediction.fit import RESERVE_BYTES, with_context
from inferlab.prediction.free_memory import DEFAULT_BACKEND, machine_for, usable_bytes
from inferlab.prediction.memory.cache import CacheLayer, cache_layers, layer_bytes, may_have_windows, n_ctx_of
from inferlab.prediction.memory.compute import (
    ODD_HEADER,
    TRIED_CACHES,
    compute_range,
    decoder_of,
    embedded_bytes,
    fused_bytes,
    output_bytes,
    outputs_reserved,
)
from inferlab.prediction.memory.placement import EMBEDDING, layer_of, loaded_tensors, placed_layers, tied_output_bytes
from inferlab.prediction.memory.plan import SHARED
from inferlab.prediction.memory.request import COPIES_IN_FLIGHT, request_for
from inferlab.prediction.memory.shared import OFF_WHOLE
from inferlab.prediction.memory.wide import wide_range
from inferlab.prediction.place import Place
from inferlab.prediction.search import largest_from
from inferlab.prediction.steps import weight_types
from inferlab.settings import EXPERTS, UNQUANTIZED, Settings
from inferlab.units import count_text

Answer = TypeVar("Answer")

ENDLESS = 1 << 62
ALONE_MOST = 2
"""The buffer of the host alone has at most so many times the bytes of those of host and card together."""
NAMING: dict[str, Any] = {
    **{"name": "", "source": "", "files": {}, "companions": {}},
    **{"rope_freq_base": 0.0, "norm_eps": 0.0},
}
"""What changes no bytes: models that differ in nothing else are answered once."""


@dataclass(frozen=True)
class Placed:
    """A model with the largest weights that fit in one way.

    type             of the weights
    weights_bytes    of all tensors
    n_gpu_layers     layers on the card, the output layer among them; -1: all
    n_cpu_moe        layers whose experts are in RAM
    n_layers         all layers, the output layer among them
    longest_n_ctx    the longest context that surely fits with them, at most the one that the model was trained for; a
                     plan may find a longer one, for the list has bounds of some compute buffers
    memory_allows_more  whether memory would hold a longer one
    rate             tokens per second that are expected at the beginning of the context; None where the place is no
                     card of the list, or the model has no formula
    """

    type: str
    weights_bytes: int
    n_gpu_layers: int
    n_cpu_moe: int
    n_layers: int
    longest_n_ctx: int
    memory_allows_more: bool
    rate: float | None = None

    @property
    def in_ram_text(self) -> str:
        """What lies in RAM, in words; "" where everything is on the card."""
        if self.n_gpu_layers < 0:
            layers = "layer 1" if self.n_cpu_moe == 1 else f"layers 1–{self.n_cpu_moe}"
            return f"experts of {layers} of {self.n_layers - 1}" if self.n_cpu_moe else ""
        left = self.n_layers - self.n_gpu_layers
        return "all layers" if left == self.n_layers else f"{left} of {self.n_layers - 1} layers"


@dataclass(frozen=True)
class Runs:
    """What one known model is on a machine.

    name    its short name; `title` is the one for readers
    whole   whole on the card; None where not even the smallest type of weights fits
    in_ram  with experts or layers in RAM, where larger weights fit so; else None
    reason  why neither is there, or ""
    is_largest  whether no weights that are larger than those of `whole` are worth a part in RAM
    is_known  whether that is told by its bytes; else the settings cannot be planned for it, and `reason` says why
    """

    name: str
    title: str
    n_params: int
    whole: Placed | None
    in_ram: Placed | None
    reason: str = ""
    is_largest: bool = False
    is_known: bool = True

    def to_dict(self) -> dict[str, Any]:
        """In JSON's kinds."""
        return asdict(self)


def what_runs(place: Place, settings: Settings | None = None, reserve_bytes: int = RESERVE_BYTES) -> Iterator[Runs]:
    """One answer for each known model, in the order of the list; each is computed when it is asked for.

    settings  the context that must fit, 4096 tokens by default, and the types of the cache; layers are searched. Of a
              model that was trained for less, that must fit
    Raises InvalidSettings where cards would share every matrix, the cache would lie in RAM, or devices are named: no
    list is of these.
    """
    asked = with_context(settings)
    if asked.split_mode != "layer" or not asked.offload_kqv:
        changed = f"split_mode={asked.split_mode!r}" if asked.offload_kqv else "offload_kqv=False"
        raise InvalidSettings(
            f"{changed}: the list is of whole layers, each with its cache beside it. Leave that out, or plan one model."
        )
    if asked.devices is not None:
        raise InvalidSettings(
            f"devices={asked.devices!r}: the list uses every card that it is given. Leave that out, and name only the "
            "cards to use: one with --card, or their sizes with --vram."
        )
    asked = asked.but(n_gpu_layers=-1, n_cpu_moe=0, cpu_moe=False, override_tensor=())
    memories = {SHARED: place.sizes[0]} if place.shared else {f"gpu{i}": n for i, n in enumerate(place.sizes)}
    host = {HOST_DEVICE: place.ram.n_bytes} if place.ram and not place.shared else {}
    usable = usable_bytes({**memories, **host}, reserve_bytes, place.ram)
    machine = cache(lambda: machine_for(**place.devices))
    answered: dict[str, Runs] = {}
    for name, known in known_models().items():
        alike = repr(replace(known, **NAMING))
        if alike not in answered or not answered[alike].is_known:
            answered[alike] = _Candidate(name, known, place, machine, asked, usable).runs()
        yield replace(answered[alike], name=name, title=known.name)


def by_size(found: Iterable[Runs]) -> list[Runs]:
    """Those that run whole first, then those with a part in RAM, then the others; the larger models first in each."""
    return sorted(found, key=lambda runs: (runs.whole is None, runs.in_ram is None, -runs.n_params))


def left_out(found: Iterable[Runs]) -> tuple[str, ...]:
    """Sentences on the models of which no type of the list fits, and on those that cannot be planned."""
    told: dict[str, list[str]] = {}
    for runs in found:
        if runs.whole is None and runs.in_ram is None:
            text = f"{runs.reason.rstrip('.')} of" if runs.is_known else "These settings cannot be planned for"
            told.setdefault(text, []).append(runs.title)
    return tuple(f"{text} {count_text(len(names), 'model')}: {', '.join(names)}." for text, names in told.items())


class Compute(Protocol):
    """The most compute bytes in RAM and on a card, with all layers there; with `alone` those of the host."""

    def __call__(self, n_ctx: int, alone: bool = False) -> tuple[int, int]: ...


@dataclass(frozen=True)
class _Weights:
    """Bytes of one type: all, of the input, each block and its experts, the output, and what each device copies."""

    total: int
    input: int
    blocks: tuple[int, ...]
    experts: tuple[int, ...]
    output: int
    copied: int


class _Counted:
    """Sums of one model's bytes, as `placement` counts them: what no type changes is added up once."""

    def __init__(self, model: Model, known: KnownModel) -> None:
        self.n_layer, self._quantizer = layers_counted(model), Quantizer(model.tensors, known)
        quantized = {tensor.name for tensor in self._quantizer.quantized}
        self._quantized: list[tuple[int, tuple[Hashable, ...]]] = []
        self._unchanged: Counter[Hashable] = Counter()
        for tensor, sums in zip(model.tensors, _sums_of(model, self.n_layer), strict=True):
            if tensor.name in quantized:
                self._quantized.append((tensor.n_elements, sums))
            else:
                for name in sums:
                    self._unchanged[name] += tensor.n_bytes

    def of_type(self, mix: str) -> _Weights:
        """The sums under a mix."""
        sums = self._unchanged.copy()
        for (n_weights, names), type in zip(self._quantized, self._quantizer.types(mix), strict=True):
            n_bytes = TYPES[type].bytes_of(n_weights)
            for name in names:
                sums[name] += n_bytes
        blocks = tuple(sums[i] for i in range(self.n_layer))
        experts = tuple(sums["experts", i] for i in range(self.n_layer))
        output = sums[self.n_layer] + sums["tied"]
        return _Weights(sums["total"], sums[-1], blocks, experts, output, sums["copied"])


def _sums_of(model: Model, n_layer: int) -> Iterator[tuple[Hashable, ...]]:
    """For each tensor the names of the sums that it counts in: of all, of its layer, of what is copied or moved."""
    loaded = {tensor.name for tensor in loaded_tensors(model)}
    tied = EMBEDDING if tied_output_bytes(model) else ""
    is_moved = re.compile(EXPERTS).search
    for tensor in model.tensors:
        number = layer_of(tensor, model)
        sums: list[Hashable] = ["total"]
        if tensor.name in loaded:
            sums.append("copied" if number is None else min(number, n_layer))
        if number is not None and number < n_layer and is_moved(tensor.name):
            sums.append(("experts", number))
        yield (*sums, "tied") if tensor.name == tied else tuple(sums)


def _kept(method: Callable[..., Answer]) -> Callable[..., Answer]:
    """Decorator: what a candidate's method says is computed once for each of its arguments, and ends with it."""

    @wraps(method)
    def once(self: _Candidate, *asked: Hashable) -> Answer:
        key = method.__name__, *asked
        if key not in self.kept:
            self.kept[key] = method(self, *asked)
        answer: Answer = self.kept[key]
        return answer

    return once


class _Candidate:
    """One model on a place: bytes by layer, for a card and for RAM, and the largest that fit."""

    def __init__(
        self,
        name: str,
        known: KnownModel,
        place: Place,
        machine: Callable[[], Machine],
        asked: Settings,
        usable: Mapping[str, int | None],
    ):
        self.name, self.known, self.place, self.machine = name, known, place, machine
        self.in_ram = usable.get(HOST_DEVICE) or 0
        self.cards = tuple(n or 0 for memory, n in usable.items() if memory != HOST_DEVICE)
        changes = {"swa_full": False} if asked.swa_full and not may_have_windows(known) else {}
        own = 1 if asked.kv_unified else asked.n_seq_max
        self.trained = known.n_ctx_train * own
        self.asked = asked.but(n_ctx=min(n_ctx_of(asked), self.trained), **changes)
        self.step = CELL_STEP * own
        self.most_steps = -(-self.trained // self.step)
        self.computed = sorted({n_ctx_of(self.asked), self.most_steps * self.step})
        self.kept: dict[Hashable, Any] = {}

    def runs(self) -> Runs:
        """Both answers; weights without quantization are not put into RAM."""
        types = weight_types(self.known)
        try:
            self.asked = self._settled()
            whole = self._largest(types, sum(self.cards), self._whole)
            larger = types[: types.index(whole.type)] if whole else types
            larger = tuple(type for type in larger if type not in UNQUANTIZED_WEIGHTS)
            room = 0 if self.place.shared else sum(self.cards) + self.in_ram
            in_ram = self._largest(larger, room, self._partly)
            n_params = self.model.n_params
        except InferlabError as error:
            return Runs(self.name, self.known.name, 0, None, None, str(error), is_known=False)
        reason = "" if whole or in_ram else f"Not even {types[-1]} fits."
        whole, in_ram = self._rated(whole), self._rated(in_ram)
        return Runs(self.name, self.known.name, n_params, whole, in_ram, reason, is_largest=not larger)

    def _rated(self, placed: Placed | None) -> Placed | None:
        """With the rate that is expected of it."""
        if placed is None or self.place.card is None:
            return placed
        keeps_types = placed.type == "MXFP4_MOE"  # of which most tensors are as they were
        model = shape(self.name, placed.type) if keeps_types else self.model
        work = placed_work(model, placed.n_gpu_layers, placed.n_cpu_moe)
        factor = placed.weights_bytes / model.tensor_bytes
        try:
            asked = question_of(work, self.place.card, self.asked, placed.type, factor)
            return replace(placed, rate=expected_decode(asked).rate)
        except UnsupportedArchitecture:
            return placed

    def _largest(self, types: tuple[str, ...], room: int, placed: Callable[[str], Placed | None]) -> Placed | None:
        """The first type, from the largest on, with which the model can be placed.

        No tensor of a mix has fewer bits than most of its matrices, so some types are too large without being counted.
        """
        n_params = self.model.n_params
        for type in types:
            if n_params * bits_of(type) > 8 * room or self.weights(type).total > room:
                continue
            if found := placed(type):
                return found
        return None

    def _settled(self) -> Settings:
        """The settings with what llama.cpp makes of flash_attn="auto". Raises as a plan does."""
        as_cuda = self.place.backend != DEFAULT_BACKEND
        request = request_for(self.model, self.asked, self.machine(), simulate=False, as_cuda=as_cuda).settled()
        request.require_verified()
        if request.too_many:
            raise UnsupportedArchitecture(request.too_many[0])
        return request.settings

    # --- bytes -----------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> Model:
        """The model whose graph and cache are counted, as it is converted: they are the same for every type."""
        header = header_of_known(self.known)
        named = header.metadata | {"general.name": f"{self.known.name} shape"}
        return replace(header, metadata=named, tensors=tensors(self.known))

    @cached_property
    def _counted(self) -> _Counted:
        return _Counted(self.model, self.known)

    @_kept
    def weights(self, type: str) -> _Weights:
        return self._counted.of_type(type)

    @cached_property
    def _caches(self) -> tuple[CacheLayer, ...]:
        return cache_layers(self.model)

    @cached_property
    def _kinds(self) -> tuple[tuple[CacheLayer, ...], tuple[int, ...]]:
        """The caches that differ, and for each block which of them it has."""
        layers = tuple(dict.fromkeys(self._caches))
        return layers, tuple(map(layers.index, self._caches))

    @_kept
    def cache_bytes(self, n_ctx: int) -> tuple[int, ...]:
        """The bytes of each block's cache; equal ones are computed once."""
        settings, (layers, of_blocks) = self.asked.but(n_ctx=n_ctx), self._kinds
        n_bytes = [layer_bytes(layer, settings) for layer in layers]
        return tuple(n_bytes[i] for i in of_blocks)

    def compute(self, n_ctx: int, alone: bool = False) -> tuple[int, int]:
        """The most compute bytes in RAM and on a card, with all layers there; with `alone` those of the host."""
        if n_ctx in self.computed:
            return self._compute_at(n_ctx, alone)
        at = min(max(1, bisect_left(self.computed, n_ctx)), len(self.computed) - 1)
        low, high = self.computed[max(0, at - 1)], self.computed[at]
        ends = [self._compute_at(n, alone) for n in (low, high)]
        share = (n_ctx - low) / (high - low) if high > low else 0
        ram, card = (ceil(a + max(0, share) * (b - a)) for a, b in zip(*ends, strict=True))
        return ram, card

    def _bounded(self, n_ctx: int, alone: bool = False) -> tuple[int, int]:
        """No less than `compute`: bounds for the longest context, which hold for any."""
        return (ALONE_MOST * sum(self._bounds), 0) if alone else self._bounds

    @cached_property
    def _bounds(self) -> tuple[int, int]:
        """The bounds by the widths of the tensors; endless where these do not tell them."""
        settings = self.asked.but(n_ctx=self.most_steps * self.step)
        if not {settings.type_k, settings.type_v} <= TRIED_CACHES:
            return ENDLESS, ENDLESS
        try:
            decoder = decoder_of(self.model, settings, outputs_reserved(settings, per_sequence=False))
            states = settings.n_seq_max * max(layer.state_values for layer in self._caches)
            wide = wide_range(decoder, states, max(layer.index_key for layer in self._caches), on_device=True)
        except ODD_HEADER:
            return ENDLESS, ENDLESS
        return wide[HOST_DEVICE][1], wide["gpu0"][1]

    @_kept
    def _compute_at(self, n_ctx: int, alone: bool) -> tuple[int, int]:
        settings = self.asked.but(n_ctx=n_ctx)
        most = compute_range(self.model, settings, outputs_reserved(settings, per_sequence=False), not alone)
        if most is None:
            raise UnsupportedArchitecture(f"The compute buffer of {self.model.name} is not known under these settings.")
        return most[HOST_DEVICE][1], most.get("gpu0", (0, 0))[1]

    def _operands(self, n_ctx: int) -> int:
        """What CUDA's backend adds to a card's compute buffer at most, see `bound.operand_bytes`."""
        fused = fused_bytes(self.model, self.asked)
        if {self.asked.type_k, self.asked.type_v} <= set(UNQUANTIZED):
            return fused
        settings = self.asked.but(n_ctx=n_ctx, type_k="f16", type_v="f16")
        return fused + max((layer_bytes(layer, settings) for layer in self._caches), default=0)

    # --- what fits -------------------------------------------------------------------------------------

    def _whole(self, type: str) -> Placed | None:
        """All layers on the cards."""
        return self._placed(type, self.asked, partial(self._all_hold, type, 0, 0))

    def _all_hold(self, type: str, n_experts: int, n_layers: int, n_ctx: int, compute: Compute) -> bool:
        """Whether RAM and each card are large enough, see `_cards_hold`, or a memory that host and GPU share."""
        if self.place.shared:
            return self._memory_holds(type, n_ctx, compute)
        held = type, n_ctx, n_experts, n_layers, compute
        return self._ram_holds(*held) and self._cards_hold(*held)

    def _memory_holds(self, type: str, n_ctx: int, compute: Compute) -> bool:
        """Whether a memory that host and GPU share is large enough for everything."""
        held, (memory,) = self.weights(type), self.cards
        n_bytes = held.input + sum(held.blocks) + held.output + held.copied + sum(self.cache_bytes(n_ctx))
        if n_bytes > memory:
            return False
        buffers = (1 + OFF_WHOLE) * (sum(compute(n_ctx)) + self._operands(n_ctx))
        return n_bytes + buffers + self._output <= memory

    def _partly(self, type: str) -> Placed | None:
        """With the experts of as few layers as possible in RAM; else with all of them there, and as few layers."""
        n, has_experts = len(self._caches), any(self.weights(type).experts)
        asked = n_ctx_of(self.asked)
        if has_experts:
            kept = largest_from(0, n - 1, lambda kept: self._cards_hold(type, asked, n - kept, 0, self.compute))
            if kept >= 0:
                return self._placed_partly(type, n - kept, 0)
        n_experts = n if has_experts else 0
        left = largest_from(0, n, lambda on: self._cards_hold(type, asked, n_experts, n + 1 - on, self.compute))
        return self._placed_partly(type, n_experts, n + 1 - left) if left >= 0 else None

    def _placed_partly(self, type: str, n_experts: int, n_layers: int) -> Placed | None:
        """With the experts of the first blocks in RAM, and so many whole layers, the output the last of them."""
        named = n_experts if n_experts > n_layers else 0
        n_gpu_layers = len(self._caches) + 1 - n_layers if n_layers else -1
        settings = self.asked.but(n_gpu_layers=n_gpu_layers, n_cpu_moe=named)
        return self._placed(type, settings, partial(self._all_hold, type, n_experts, n_layers))

    def _cards_hold(self, type: str, n_ctx: int, n_experts: int, n_layers: int, compute: Compute) -> bool:
        """Whether each card is large enough, with so many layers in RAM and the experts of so many blocks.

        On each: its layers without moved experts, the copied tensors, and its compute buffer of at most

            copies * that of full offload + the largest layer or experts that it copies in + CUDA's operands

        as `bound.compute_ranges` has them.
        """
        held, caches = self.weights(type), self.cache_bytes(n_ctx)
        on_cards = self._held_by_cards(held, caches, n_experts, n_layers)
        if any(n_bytes > room for n_bytes, room in zip(on_cards, self.cards, strict=True)):
            return False
        moved = held.experts[n_layers:n_experts]
        staged = max([0, *moved, *(w + cache for w, cache in zip(held.blocks[:n_layers], caches, strict=False))])
        staged += (held.output if n_layers > len(caches) else 0) + (self._carried if any(moved) else 0)
        copies = COPIES_IN_FLIGHT if len(self.cards) > 1 else 1
        buffer = (1 + OFF_WHOLE) * (copies * compute(n_ctx)[1] + self._operands(n_ctx)) + staged
        return all(n_bytes + buffer <= room for n_bytes, room in zip(on_cards, self.cards, strict=True))

    def _held_by_cards(self, held: _Weights, caches: tuple[int, ...], n_experts: int, n_layers: int) -> list[int]:
        """Bytes of weights and cache on each card."""
        totals = []
        for first, end, has_output in self._on_cards(n_layers):
            experts = sum(held.experts[first : min(n_experts, end)]) if n_experts > first else 0
            n_bytes = sum(held.blocks[first:end]) + sum(caches[first:end]) - experts
            totals.append(n_bytes + held.copied * (end > first) + held.output * has_output)
        return totals

    @_kept
    def _on_cards(self, n_layers: int) -> list[tuple[int, int, bool]]:
        """With so many layers in RAM, each card's first block, the end of its blocks, and whether it has the output."""
        n = len(self._caches)
        *blocks, output = placed_layers(n, self.asked.but(n_gpu_layers=n + 1 - n_layers), self.shares)
        cards = [f"gpu{i}" for i in range(len(self.cards))]
        firsts = [blocks.index(card) if card in blocks else 0 for card in cards]
        return [(a, a + blocks.count(card), card == output) for a, card in zip(firsts, cards, strict=True)]

    def _ram_holds(self, type: str, n_ctx: int, n_experts: int, n_layers: int, compute: Compute) -> bool:
        """Whether RAM is large enough for the rest."""
        held, caches = self.weights(type), self.cache_bytes(n_ctx)
        experts = sum(held.experts[n_layers:n_experts])
        in_ram = held.input + sum(held.blocks[:n_layers]) + experts + (held.output if n_layers > len(caches) else 0)
        in_ram += sum(caches[:n_layers]) + self._output + held.copied
        if in_ram > self.in_ram:
            return False
        host, card = compute(n_ctx)
        in_ram += host
        if len(self.cards) > 1 or n_layers or experts:
            if in_ram + ALONE_MOST * (host + card) <= self.in_ram:
                return True
            in_ram += compute(n_ctx, alone=True)[0]
        return in_ram <= self.in_ram

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the layers for each card, as llama.cpp gives them."""
        return (self.asked.tensor_split or self.place.sizes) if len(self.cards) > 1 else (1.0,)

    @cached_property
    def _output(self) -> int:
        return output_bytes(self.model, self.asked)

    @cached_property
    def _carried(self) -> int:
        """Bytes that go to moved experts and come back (`bound.carried_bytes`)."""
        model = self.model
        heads, used = heads_of(model), model.number("expert_used_count") or 0
        width = (2 + used) * model.n_embd + 2 * (max(heads.n_head) + max(heads.n_head_kv)) * heads.key
        return width * embedded_bytes(model, self.asked) // model.n_embd

    def _placed(self, type: str, settings: Settings, holds: Callable[[int, Compute], bool]) -> Placed | None:
        """What is said of a placement, with the longest context for it; None where the one asked for does not fit.

        holds  whether memory holds a context with these compute buffers; a shorter one needs no more of anything else
        """
        asked, longest = n_ctx_of(self.asked), self.most_steps
        if not holds(longest * self.step, self._bounded):
            if not holds(asked, self.compute):
                return None
            longest = self._longest(lambda n: holds(n * self.step, self.compute))
        n = len(self._caches)
        return Placed(
            type,
            self.weights(type).total,
            settings.n_gpu_layers,
            settings.n_cpu_moe,
            n + 1,
            max(longest * self.step, min(asked, self.trained)),
            longest == self.most_steps,
        )

    def _longest(self, fits: Callable[[int], bool]) -> int:
        """The longest context that fits, in steps; what is asked for does."""
        first, longest = min(n_ctx_of(self.asked) // self.step, self.most_steps), self.most_steps
        while not fits(longest) and longest > first:
            longest = largest_from(first, longest - 1, lambda n: n <= first or fits(n))
            self.computed = sorted({*self.computed, longest * self.step})
        return longest


def bits_of(mix: str) -> float:
    """Bits of a weight in the type that most matrices of a mix have."""
    return TYPES[base_type(mix)].bits_per_weight
