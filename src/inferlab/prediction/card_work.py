"""What a token and a prompt need of a card: bytes, operations and launches, from a model and its placement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from inferlab.machine import HOST_DEVICE
from inferlab.model.dimensions import heads_of
from inferlab.model.gguf import Model, Tensor
from inferlab.prediction.card_model import PromptWork, TokenWork
from inferlab.prediction.cost import bytes_read
from inferlab.prediction.memory.cache import CacheLayer, cache_layers, cell_bytes
from inferlab.prediction.memory.placement import (
    EMBEDDING,
    OUTPUT_MATRIX,
    device_overrides,
    layer_of,
    loaded_tensors,
    moved_tensors,
    placed_layers,
)
from inferlab.prediction.memory.recurrent import STATE_BYTES
from inferlab.settings import Settings


@dataclass(frozen=True)
class CardWork:
    """A model placed on a card and its host.

    layers  the device of each block and, last, of the output; None: all on the card
    moved   the device of each tensor that an override puts elsewhere, by its name
    """

    model: Model
    layers: Sequence[str] | None = None
    moved: Mapping[str, str] = field(default_factory=dict)

    def token(self, depth: float, type_k: str = "f16", type_v: str = "f16", factor: float = 1.0) -> TokenWork:
        """One token on top of `depth` cells; the bytes of weights times a factor, for a maker's own mix."""
        here, there = self._sums
        states = sum(bool(layer.state_values) for layer in self._layers_on_card)
        return TokenWork(
            weight_bytes=factor * here.read,
            weights=here.used,
            tensors=here.tensors,
            expert_layers=here.expert_layers,
            state_layers=states,
            cache_bytes=sum(_cache_bytes(layer, depth, type_k, type_v) for layer in self._layers_on_card),
            scores=self._scores(depth),
            host_bytes=factor * there.read
            + sum(_cache_bytes(layer, depth, type_k, type_v) for layer in self._layers_on_host),
            host_layers=max(there.expert_layers, len(self._layers_on_host)),
        )

    def prompt(
        self, n_tokens: int, n_ubatch: int = Settings.n_ubatch, depth: int = 0, factor: float = 1.0
    ) -> PromptWork:
        """A prompt of n_tokens on top of `depth` cells. What lies on the host is sent to the card for each ubatch."""
        here, there = self._sums
        ubatches = -(-n_tokens // n_ubatch)
        ubatch = n_tokens / ubatches
        share = self._share_of_experts
        touched = 1 - (1 - share) ** ubatch if share else 1.0
        states = sum(bool(layer.state_values) for layer in self._every_layer)
        return PromptWork(
            tokens=n_tokens,
            ubatch=ubatch,
            ubatches=ubatches,
            dense=2.0 * n_tokens * (here.used + there.used - here.experts - there.experts),
            expert=2.0 * n_tokens * (here.experts + there.experts),
            tokens_of_expert=ubatch * share if share else 1.0,
            touched_bytes=factor * (here.dense_bytes + touched * here.expert_bytes),
            layers=self.model.n_layer,
            expert_layers=here.expert_layers + there.expert_layers,
            states=states * n_tokens * (self.model.number("embedding_length") or 0),
            scores=n_tokens * self._scores(depth + n_tokens / 2, everywhere=True),
            host_touched_bytes=factor * (there.dense_bytes + touched * there.expert_bytes),
        )

    @property
    def is_partial(self) -> bool:
        """Whether layers or experts lie on the host."""
        return self._sums[1].read > 0

    @property
    def bytes_on_card(self) -> float:
        """Bytes of all weights there, used by a token or not."""
        here = self._sums[0]
        return here.dense_bytes + here.expert_bytes

    @cached_property
    def _sums(self) -> tuple[_Sum, _Sum]:
        """On the card, and on the host."""
        read, experts = bytes_read(self.model), self._share_of_experts
        here, there = _Sum(), _Sum()
        for tensor in loaded_tensors(self.model):
            if bytes_used := read[tensor.name]:
                (there if self._device(tensor) == HOST_DEVICE else here).add(tensor, bytes_used, bool(experts))
        return here, there

    @cached_property
    def _share_of_experts(self) -> float:
        count, used = self.model.number("expert_count"), self.model.number("expert_used_count")
        return used / count if count and used else 0.0

    def _device(self, tensor: Tensor) -> str:
        """Where a tensor is multiplied; an embedding that is the output matrix lies with the output."""
        if self.layers is None:
            return ""
        if tensor.name in self.moved:
            return self.moved[tensor.name]
        layer = layer_of(tensor, self.model)
        if layer is None:
            return self.layers[0]
        if layer >= 0:
            return self.layers[min(layer, self.model.n_layer)]
        is_output = tensor.name == EMBEDDING and all(other.name != OUTPUT_MATRIX for other in self.model.tensors)
        return self.layers[-1] if is_output else ""

    @cached_property
    def _every_layer(self) -> tuple[CacheLayer, ...]:
        return cache_layers(self.model)

    @property
    def _layers_on_card(self) -> list[CacheLayer]:
        return [layer for i, layer in enumerate(self._every_layer) if not self._is_on_host(i)]

    @property
    def _layers_on_host(self) -> list[CacheLayer]:
        return [layer for i, layer in enumerate(self._every_layer) if self._is_on_host(i)]

    def _is_on_host(self, layer: int) -> bool:
        return self.layers is not None and self.layers[layer] == HOST_DEVICE

    def _scores(self, depth: float, everywhere: bool = False) -> float:
        """Operations of one token with keys and values: heads x cells x width x 4, two for each of both."""
        heads, total = heads_of(self.model), 0.0
        for i, layer in enumerate(self._every_layer):
            if layer.key_width and (everywhere or not self._is_on_host(i)):
                total += heads.n_head[i] * min(depth, layer.window or depth) * heads.key * 4
        return total


def placed_work(model: Model, n_gpu_layers: int = -1, n_cpu_moe: int = 0) -> CardWork:
    """A model with so many layers on one card, and the experts of so many in RAM."""
    settings = Settings(n_gpu_layers=n_gpu_layers, n_cpu_moe=n_cpu_moe)
    layers = placed_layers(model.n_layer, settings, [1.0])
    return CardWork(model, layers, moved_tensors(model, layers, device_overrides(settings, [])))


@dataclass
class _Sum:
    """What one device holds of a model: bytes read for a token, weights used for it, tensors, and all its bytes."""

    read: float = 0.0
    used: float = 0.0
    experts: float = 0.0
    tensors: int = 0
    dense_bytes: float = 0.0
    expert_bytes: float = 0.0
    _layers: set[str] = field(default_factory=set)

    def add(self, tensor: Tensor, bytes_used: int, has_experts: bool) -> None:
        used = tensor.n_elements * bytes_used / tensor.n_bytes
        self.read += bytes_used
        self.used += used
        self.tensors += 1
        if has_experts and "_exps" in tensor.name:
            self.experts += used
            self.expert_bytes += tensor.n_bytes
            self._layers.add(tensor.name.split(".")[1])
        else:
            self.dense_bytes += bytes_used

    @property
    def expert_layers(self) -> int:
        return len(self._layers)


def _cache_bytes(layer: CacheLayer, depth: float, type_k: str, type_v: str) -> float:
    """Bytes of a layer's cells in use, and of its recurrent state."""
    cells = min(depth + 1, layer.window or depth + 1)
    return cells * cell_bytes(layer, type_k, type_v) + STATE_BYTES * layer.state_values
