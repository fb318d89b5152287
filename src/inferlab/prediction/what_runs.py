"""What of all known models runs on a machine: the largest weights that fit, and the longest context with them.

For each model two answers: whole on the card, and with experts or layers in RAM where that allows larger weights.
Weights and cache are those of a plan, layer by layer. The compute buffers are computed for two contexts: between them

    compute(n) <= the line through both

because a buffer is the largest of sums that grow with the context, as in `bound` with what a card copies in from RAM.
Of a model with recurrent states, whose sums are not so simple, the context that was found is computed, too.
So what is listed fits by a plan, and a plan may find a little more.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache, cached_property, lru_cache
from math import ceil
from typing import Any

from inferlab.errors import InferlabError, UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE
from inferlab.model.catalog import KnownModel, known_models
from inferlab.model.dimensions import heads_of
from inferlab.model.ggml_types import CELL_STEP, TYPES
from inferlab.model.gguf import Model
from inferlab.model.quant_mixes import base_type
from inferlab.model.synthetic_model import shape
from inferlab.prediction.fit import RESERVE_BYTES, with_context
from inferlab.prediction.free_memory import usable_bytes
from inferlab.prediction.memory.cache import CacheLayer, cache_layers, layer_bytes, may_have_windows, n_ctx_of
from inferlab.prediction.memory.compute import compute_range, embedded_bytes, output_bytes, outputs_reserved
from inferlab.prediction.memory.placement import layer_of, tied_output_bytes, weights_of_layers
from inferlab.prediction.memory.plan import SHARED
from inferlab.prediction.memory.request import COPIES_IN_FLIGHT
from inferlab.prediction.place import Place
from inferlab.prediction.search import largest_from
from inferlab.prediction.steps import WEIGHT_TYPES
from inferlab.settings import EXPERTS, UNQUANTIZED, Settings

FIRST = "Q4_K_M"
"""The type by which the weights and the graph of a model are counted."""


@dataclass(frozen=True)
class Placed:
    """A model with the largest weights that fit in one way.

    type             of the weights
    weights_bytes    of all tensors
    n_gpu_layers     layers on the card, the output layer among them; -1: all
    n_cpu_moe        layers whose experts are in RAM
    n_layers         all layers, the output layer among them
    longest_n_ctx    the longest context with them, at most the one that the model was trained for
    memory_allows_more  whether memory would hold a longer one
    """

    type: str
    weights_bytes: int
    n_gpu_layers: int
    n_cpu_moe: int
    n_layers: int
    longest_n_ctx: int
    memory_allows_more: bool

    @property
    def in_ram_text(self) -> str:
        """What lies in RAM, in words; "" where everything is on the card."""
        if self.n_gpu_layers < 0:
            return f"experts of {self.n_cpu_moe} of {self.n_layers - 1} layers" if self.n_cpu_moe else ""
        left = self.n_layers - self.n_gpu_layers
        return "all layers" if left == self.n_layers else f"{left} of {self.n_layers} layers"


@dataclass(frozen=True)
class Runs:
    """What one known model is on a machine.

    name    its short name; `title` is the one for readers
    whole   whole on the card; None where not even the smallest type of weights fits
    in_ram  with experts or layers in RAM, where larger weights fit so; else None
    reason  why neither is there, or ""
    """

    name: str
    title: str
    n_params: int
    whole: Placed | None
    in_ram: Placed | None
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        """In JSON's kinds."""
        return asdict(self)


def what_runs(place: Place, settings: Settings | None = None, reserve_bytes: int = RESERVE_BYTES) -> Iterator[Runs]:
    """One answer for each known model, in the order of the list; each is computed when it is asked for.

    settings  the context that must fit, 4096 tokens by default, and the types of the cache; layers are searched. Of a
              model that was trained for less, that must fit
    """
    asked = with_context(settings).but(n_gpu_layers=-1, n_cpu_moe=0, cpu_moe=False, override_tensor=())
    memories = {SHARED: place.sizes[0]} if place.shared else {f"gpu{i}": n for i, n in enumerate(place.sizes)}
    host = {HOST_DEVICE: place.ram.n_bytes} if place.ram and not place.shared else {}
    usable = usable_bytes({**memories, **host}, reserve_bytes, place.ram)
    for name, known in known_models().items():
        yield _Candidate(name, known, place, asked, usable).runs()


def by_size(found: Iterable[Runs]) -> list[Runs]:
    """Those that run whole first, then those with a part in RAM, then the others; the larger models first in each."""
    return sorted(found, key=lambda runs: (runs.whole is None, runs.in_ram is None, -runs.n_params))


@dataclass(frozen=True)
class _Weights:
    """Bytes of one type: all, of the input, each block and its experts, the output, and what each device copies."""

    total: int
    n_params: int
    input: int
    blocks: tuple[int, ...]
    experts: tuple[int, ...]
    output: int
    copied: int


@lru_cache(maxsize=4)
def _model(name: str, type: str) -> Model:
    return shape(name, type)


@cache
def _weights(name: str, type: str) -> _Weights:
    """The bytes of a type by layer."""
    model = _model(name, type)
    first, layers, copied = weights_of_layers(model)
    experts = [0] * (len(layers) - 1)
    for tensor in model.tensors:
        number = layer_of(tensor, model) if re.search(EXPERTS, tensor.name) else None
        if number is not None and number < len(experts):
            experts[number] += tensor.n_bytes
    output = layers[-1] + tied_output_bytes(model)
    return _Weights(model.tensor_bytes, model.n_params, first, layers[:-1], tuple(experts), output, copied)


@cache
def _caches_of(name: str) -> tuple[CacheLayer, ...]:
    return cache_layers(_model(name, FIRST))


@lru_cache(maxsize=2048)
def _most_compute(name: str, settings: Settings, alone: bool) -> tuple[int, int]:
    """The most compute bytes in RAM and on a card that has all layers; with `alone` of the host that has them."""
    model = _model(name, FIRST)
    most = compute_range(model, settings, outputs_reserved(settings, per_sequence=False), not alone)
    if most is None:
        raise UnsupportedArchitecture(f"The compute buffer of {model.name} is not known under these settings.")
    return most[HOST_DEVICE][1], most.get("gpu0", (0, 0))[1]


class _Candidate:
    """One model on a place: bytes by layer, for a card and for RAM, and the largest that fit."""

    def __init__(self, name: str, known: KnownModel, place: Place, asked: Settings, usable: Mapping[str, int | None]):
        self.name, self.known, self.place = name, known, place
        self.in_ram = usable.get(HOST_DEVICE) or 0
        self.on_card = sum(n or 0 for memory, n in usable.items() if memory != HOST_DEVICE)
        changes = {"swa_full": False} if asked.swa_full and not may_have_windows(known) else {}
        own = 1 if asked.kv_unified else asked.n_seq_max
        self.trained = known.n_ctx_train * own
        self.asked = asked.but(n_ctx=min(n_ctx_of(asked), self.trained), **changes)
        self.step = CELL_STEP * own
        self.computed = sorted({n_ctx_of(self.asked), max(self.trained, n_ctx_of(self.asked))})

    def runs(self) -> Runs:
        """Both answers."""
        try:
            whole = self._largest(WEIGHT_TYPES, self.on_card, self._whole)
            in_ram = None
            if not self.place.shared and (whole is None or whole.type != WEIGHT_TYPES[0]):
                larger = WEIGHT_TYPES[: WEIGHT_TYPES.index(whole.type)] if whole else WEIGHT_TYPES
                in_ram = self._largest(larger, self.on_card + self.in_ram, self._partly)
            n_params = _weights(self.name, FIRST).n_params
        except InferlabError as error:
            return Runs(self.name, self.known.name, 0, None, None, str(error))
        reason = "" if whole or in_ram else f"Not even {WEIGHT_TYPES[-1]} fits."
        return Runs(self.name, self.known.name, n_params, whole, in_ram, reason)

    def _largest(self, types: tuple[str, ...], room: int, placed: Callable[[str], Placed | None]) -> Placed | None:
        """The first type, from the largest on, with which the model can be placed.

        No tensor of a mix has fewer bits than most of its matrices, so some types are too large without being counted.
        """
        n_params = _weights(self.name, FIRST).n_params
        for type in types:
            if n_params * bits_of(type) > 8 * room or _weights(self.name, type).total > room:
                continue
            if found := placed(type):
                return found
        return None

    # --- bytes -----------------------------------------------------------------------------------------

    @cache  # noqa: B019
    def cache_bytes(self, n_ctx: int) -> tuple[int, ...]:
        """The bytes of each block's cache."""
        settings = self.asked.but(n_ctx=n_ctx)
        return tuple(layer_bytes(layer, settings) for layer in self._caches)

    @property
    def _caches(self) -> tuple[CacheLayer, ...]:
        return _caches_of(self.name)

    def compute(self, n_ctx: int, alone: bool = False) -> tuple[int, int]:
        """The most compute bytes in RAM and on a card, with all layers there; with `alone` those of the host."""
        at = min(max(1, bisect_left(self.computed, n_ctx)), len(self.computed) - 1)
        low, high = self.computed[max(0, at - 1)], self.computed[at]
        ends = [self._compute_at(n, alone) for n in (low, high)]
        share = (n_ctx - low) / (high - low) if high > low else 0
        ram, card = (ceil(a + max(0, share) * (b - a)) for a, b in zip(*ends, strict=True))
        return ram, card + self._as_f16(n_ctx)

    def _compute_at(self, n_ctx: int, alone: bool) -> tuple[int, int]:
        return _most_compute(self.name, self.asked.but(n_ctx=n_ctx), alone)

    def _as_f16(self, n_ctx: int) -> int:
        """A layer's keys and values as f16, which CUDA's flash attention makes of a quantized cache."""
        if {self.asked.type_k, self.asked.type_v} <= set(UNQUANTIZED):
            return 0
        settings = self.asked.but(n_ctx=n_ctx, type_k="f16", type_v="f16")
        return max((layer_bytes(layer, settings) for layer in self._caches), default=0)

    # --- what fits -------------------------------------------------------------------------------------

    def _whole(self, type: str) -> Placed | None:
        """All layers on the card."""
        held = _weights(self.name, type)

        def fits(n_ctx: int) -> bool:
            ram, card = self.compute(n_ctx)
            card = self._on_cards(sum(held.blocks) + held.output + sum(self.cache_bytes(n_ctx)), held.copied, card)
            ram += held.input + self._output
            return card + ram <= self.on_card if self.place.shared else card <= self.on_card and ram <= self.in_ram

        return self._placed(type, self.asked, fits) if fits(n_ctx_of(self.asked)) else None

    def _on_cards(self, held: int, copied: int, compute: int) -> int:
        """Bytes on all cards: of several each has copies of the inputs, and holds whole layers only."""
        n_cards = len(self.place.sizes)
        if n_cards == 1:
            return held + copied + compute
        return held + n_cards * (copied + COPIES_IN_FLIGHT * compute) + (n_cards - 1) * (held // len(self._caches))

    def _partly(self, type: str) -> Placed | None:
        """With the experts of as few layers as possible in RAM; else with all of them there, and as few layers."""
        n, has_experts = len(self._caches), any(_weights(self.name, type).experts)
        asked = n_ctx_of(self.asked)
        if has_experts:
            kept = largest_from(0, n - 1, lambda kept: self._fits_partly(type, asked, n - kept, 0)[0])
            if kept >= 0:
                return self._placed_partly(type, n - kept, 0)
        n_experts = n if has_experts else 0
        left = largest_from(0, n, lambda on: self._fits_partly(type, asked, n_experts, n + 1 - on)[0])
        return self._placed_partly(type, n_experts, n + 1 - left) if left >= 0 else None

    def _placed_partly(self, type: str, n_experts: int, n_layers: int) -> Placed | None:
        """With the experts of the first blocks in RAM, and so many whole layers, the output the last of them."""
        n = len(self._caches)
        if not all(self._fits_partly(type, n_ctx_of(self.asked), n_experts, n_layers)):
            return None
        named = n_experts if n_experts > n_layers else 0
        settings = self.asked.but(n_gpu_layers=n + 1 - n_layers if n_layers else -1, n_cpu_moe=named)
        return self._placed(type, settings, lambda n_ctx: all(self._fits_partly(type, n_ctx, n_experts, n_layers)))

    def _fits_partly(self, type: str, n_ctx: int, n_experts: int, n_layers: int) -> tuple[bool, bool]:
        """Whether the card and RAM are large enough, with so many layers in RAM and the experts of so many blocks."""
        held, caches = _weights(self.name, type), self.cache_bytes(n_ctx)
        n = len(caches)
        experts = sum(held.experts[n_layers:n_experts])
        in_ram = held.input + sum(held.blocks[:n_layers]) + experts + (held.output if n_layers > n else 0)
        on_card = sum(held.blocks[n_layers:]) - experts + (0 if n_layers > n else held.output)
        staged = max((held.blocks[i] + caches[i] for i in range(min(n_layers, n))), default=0)
        staged = max([staged, *held.experts[n_layers:n_experts]]) + (held.output if n_layers > n else 0)
        copies = self.compute(n_ctx)
        ram = in_ram + sum(caches[:n_layers]) + self._output + copies[0] + self.compute(n_ctx, alone=True)[0]
        moved = self._carried if experts else 0
        card = self._on_cards(on_card + sum(caches[n_layers:]), held.copied, copies[1] + staged + moved)
        return card <= self.on_card, ram <= self.in_ram

    @cached_property
    def _output(self) -> int:
        return output_bytes(_model(self.name, FIRST), self.asked)

    @cached_property
    def _carried(self) -> int:
        """Bytes that go to moved experts and come back (`bound.carried_bytes`)."""
        model = _model(self.name, FIRST)
        heads, used = heads_of(model), model.number("expert_used_count") or 0
        width = (2 + used) * model.n_embd + 2 * (max(heads.n_head) + max(heads.n_head_kv)) * heads.key
        return width * embedded_bytes(model, self.asked) // model.n_embd

    def _placed(self, type: str, settings: Settings, fits: Callable[[int], bool]) -> Placed:
        """What is said of a placement that fits, with the longest context for it."""
        most = -(-self.trained // self.step)
        first = min(n_ctx_of(self.asked) // self.step, most)
        longest = most
        while not fits(longest * self.step) and longest > first:
            longest = largest_from(first, longest - 1, lambda n: n <= first or fits(n * self.step))
            if any(layer.state_values for layer in self._caches):
                self.computed = sorted({*self.computed, longest * self.step})
        n = len(self._caches)
        return Placed(
            type,
            _weights(self.name, type).total,
            settings.n_gpu_layers,
            settings.n_cpu_moe,
            n + 1,
            max(longest * self.step, min(n_ctx_of(self.asked), self.trained)),
            longest == most,
        )


def bits_of(mix: str) -> float:
    """Bits of a weight in the type that most matrices of a mix have."""
    return TYPES[base_type(mix)].bits_per_weight
