"""Computes each device's part of every matrix and cache where the devices share them: split_mode "tensor".

A matrix is divided by its outputs (axis 1: up, gate, queries, keys, values, the output matrix) or by its inputs
(axis 0: down, the output of attention), so that two matrices need one sum between the devices. Device j's end is

    n * (share_0 + ... + share_j) / (sum of shares),  rounded down to a multiple of the granularity

in 32-bit floats; the last device takes the rest. Layer by layer another device is the last, so that the rest evens
out. Without shares they are equal: free memory does not count, as it does for split_mode "layer".
    granularity of heads       lcm(queries per KV head * head_dim, block), in KV heads for keys, values and their cache
    granularity of an FFN      lcm(block, 128), with the block of the down matrix
Every device has all of any other tensor: norms, routers, shared experts, and a tied embedding that is the output; and
all of the short convolutions of lfm2, with their states.
Sources: llama_meta_device_get_split_state, llama-model.cpp:377-887; ggml-backend-meta.cpp:1693-1773.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from inferlab.errors import UnsupportedArchitecture
from inferlab.model import architecture_table as table
from inferlab.model.architecture_table import architecture
from inferlab.model.dimensions import Heads, heads_of, trunk_layers
from inferlab.model.ggml_types import row_bytes, tensor_type
from inferlab.model.gguf import Model, Tensor
from inferlab.prediction.memory.cache import CacheLayer, cache_layers, cells, layer_bytes, state_bytes, windowed_cells
from inferlab.settings import Settings

BLOCK_NAME = re.compile(r"blk\.(\d+)\.(.+)")
COLUMNS, ROWS = 0, 1  # axes of ggml: an element's place in a row, and the row
ATTENTION_OUT, DOWN = ("attn_output.weight",), ("ffn_down.weight", "ffn_down_exps.weight")
LEAST_BLOCK = 128  # values of a part, for the sake of the kernels
# A tensor's name without its layer -> the axis that is divided, and the tensors whose block of values counts.
DIVIDED: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    (r"attn_(q|k|v|qkv)\.weight", ROWS, ATTENTION_OUT),
    (r"attn_(q|k|v|qkv)\.bias", COLUMNS, ATTENTION_OUT),
    (r"attn_sinks\.weight", COLUMNS, ATTENTION_OUT),
    (r"attn_gate\.weight", ROWS, ATTENTION_OUT),
    (r"attn_(q|k)_norm\.weight", ROWS, ATTENTION_OUT),
    (r"attn_output\.weight", COLUMNS, ()),
    (r"ffn_(up|gate|gate_up)(_exps)?\.weight", ROWS, DOWN),
    (r"ffn_(up|gate)(_exps)?\.bias", COLUMNS, DOWN),
    (r"ffn_down(_exps)?\.weight", COLUMNS, DOWN),
    (r"output\.weight", ROWS, ()),
    (r"output\.bias", COLUMNS, ()),
)


@dataclass(frozen=True)
class TensorSplit:
    """How `n_devices` share the tensors of one model; shares None means equal parts.

    Raises UnsupportedArchitecture for states and compressed caches, whose parts were never compared with a load.
    """

    model: Model
    n_devices: int
    shares: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        kind = architecture(self.model.architecture)
        if kind.mixer not in ("", table.SHORT_CONVOLUTION) or kind.cache == table.COMPRESSED:
            raise UnsupportedArchitecture(
                f"How devices share the states of {self.model.name} ({self.model.architecture}) with "
                "split_mode='tensor' is not known here. Use split_mode='layer'."
            )

    @property
    def is_mirrored(self) -> bool:
        """Whether every device has all of the model: hrm_text, whose layers share their weights."""
        return self.model.architecture == "hrm_text"

    def weights(self, tensor: Tensor) -> tuple[int, ...]:
        """Bytes of each device's part of a tensor, all of it where it is not divided."""
        axis, block = self._rule(tensor.name) or (len(tensor.shape), 0)
        if axis >= len(tensor.shape) or self.is_mirrored:
            return (tensor.n_bytes,) * self.n_devices
        parts = self._parts(tensor, axis, block)
        return tuple(tensor.n_bytes * part // max(1, tensor.shape[axis]) for part in parts)

    def cache(self, layer: int, settings: Settings) -> tuple[int, ...]:
        """Bytes of each device's part of one layer's KV cache: whole KV heads."""
        cache_layer = self._cache_layers[layer]
        if self.is_mirrored or not cache_layer.key_width:
            each = layer_bytes(cache_layer, settings) if self.is_mirrored else state_bytes(cache_layer, settings)
            return (each,) * self.n_devices
        streams, _ = cells(settings)
        n_cells = streams * windowed_cells(settings, cache_layer.window)
        _, g_k, g_v = self._head_granularities(layer, self._block(layer, ATTENTION_OUT))
        keys = self._ends(cache_layer.key_width, g_k, self._rotation(layer))
        values = self._ends(cache_layer.value_width, g_v, self._rotation(layer))
        return tuple(
            n_cells * (row_bytes(settings.type_k, k) + row_bytes(settings.type_v, v))
            for k, v in zip(keys, values, strict=True)
        )

    def sum_buffer_bytes(self, n_tokens: int, with_experts: bool = True) -> int:
        """Bytes of the buffers in which one device receives the others' partial sums, for batches of n_tokens.

        ceil(log2(devices)) * n_tokens * n_embd * 4, times the experts used by a token where these are on the devices:
        each has a partial sum. They are allocated with the first batch of this size, and llama.cpp's log has no line
        for them (ggml-backend-meta.cpp:2236-2243).
        """
        used = self.model.number("expert_used_count") if with_experts else None
        return math.ceil(math.log2(self.n_devices)) * n_tokens * self.model.n_embd * 4 * (used or 1)

    # --- rules --------------------------------------------------------------------------------

    def _rule(self, name: str) -> tuple[int, int] | None:
        """The axis along which a tensor is divided, and the values of a block there; None for a tensor that is not."""
        block = BLOCK_NAME.fullmatch(name)
        stem = block[2] if block else name
        for pattern, axis, reference in DIVIDED:
            if re.fullmatch(pattern, stem):
                return axis, self._block(int(block[1]), reference or (stem,)) if block else self._blocks[name]
        return None

    def _parts(self, tensor: Tensor, axis: int, block: int) -> list[int]:
        """Values of each device along the divided axis, summed over the segments of a fused tensor."""
        name = BLOCK_NAME.fullmatch(tensor.name)
        layer = int(name[1]) if name else 0
        rotation = self._rotation(layer) if name else trunk_layers(self.model) % self.n_devices
        totals = [0] * self.n_devices
        stem = name[2] if name else tensor.name
        for n, repeats, granularity in self._segments(layer, stem, tensor.shape[axis], block):
            for device, part in enumerate(self._ends(n, granularity, rotation)):
                totals[device] += repeats * part
        return totals

    def _segments(self, layer: int, stem: str, n: int, block: int) -> list[tuple[int, int, int]]:
        """(values, repeats, granularity) of each part of a tensor that is divided on its own."""
        if stem.startswith("attn_"):
            return self._attention_segments(layer, stem, n, block)
        granularity = math.lcm(block, LEAST_BLOCK) if stem.startswith("ffn_") else 1
        key = "expert_feed_forward_length" if "_exps" in stem else "feed_forward_length"
        n_ff = (self.model.per_layer(key) or (0,) * (layer + 1))[layer]
        if re.match(r"ffn_(up|gate_up)", stem) and n_ff and n == 2 * n_ff:
            return [(n_ff, 2, granularity)]
        return [(n, 1, granularity)]

    def _attention_segments(self, layer: int, stem: str, n: int, block: int) -> list[tuple[int, int, int]]:
        g_q, g_k, g_v = self._head_granularities(layer, block)
        n_head, n_head_kv, head_k, head_v = self._heads_of(layer)
        if stem.startswith("attn_qkv"):
            q, k, v = n_head * head_k, n_head_kv * head_k, n_head_kv * head_v
            return [(q, 1, g_q), (k, 2, g_k)] if k == v else [(q, 1, g_q), (k, 1, g_k), (v, 1, g_v)]
        whole = {
            "attn_q": g_q,
            "attn_k": g_k,
            "attn_v": g_v,
            "attn_output": g_q // head_k * head_v,
            "attn_sinks": g_q // head_k,
            "attn_gate": g_q // head_k if n == n_head else g_q,
        }
        return [(n, 1, whole.get(stem.split(".")[0], 1))]

    def _head_granularities(self, layer: int, block: int) -> tuple[int, int, int]:
        """Values of queries, of keys and of values that stay together: whole KV heads, and whole blocks."""
        n_head, n_head_kv, head_k, head_v = self._heads_of(layer)
        n_gqa = n_head // n_head_kv
        group = n_gqa * head_k
        while block < LEAST_BLOCK and block * self.n_devices < group:
            block *= 2
        queries = math.lcm(group, block)
        keys = queries // n_gqa
        return queries, keys, keys // head_k * head_v

    def _heads_of(self, layer: int) -> tuple[int, int, int, int]:
        """Query heads and KV heads of a layer, and the width of its keys and of its values."""
        heads, windowed = self._heads, bool(self._cache_layers[layer].window)
        widths = (heads.key_in_window, heads.value_in_window) if windowed else (heads.key, heads.value)
        return heads.n_head[layer], heads.n_head_kv[layer], *widths

    def _ends(self, n: int, granularity: int, rotation: int) -> list[int]:
        """Values of each device out of n."""
        parts, low = [0] * self.n_devices, 0
        for j in range(self.n_devices - 1):
            high = n * (j + 1) // self.n_devices
            if self.shares is not None:
                scan = self._scan(self.shares, rotation)
                high = int(_float32(_float32(_float32(n) * scan[j]) / scan[-1]))
            high -= high % granularity
            parts[(j + rotation) % self.n_devices] = high - low
            low = high
        parts[(self.n_devices - 1 + rotation) % self.n_devices] = n - low
        return parts

    def _scan(self, shares: Sequence[float], rotation: int) -> list[float]:
        """Running sums of the shares, from the device with which this tensor begins."""
        sums: list[float] = []
        for j in range(self.n_devices):
            share = _float32(shares[(j + rotation) % self.n_devices])
            sums.append(_float32(sums[-1] + share) if sums else share)
        return sums

    def _rotation(self, layer: int) -> int:
        """The device with which a layer begins: layers with and without a window or a state are counted apart."""
        kinds = [(bool(one.window), bool(one.state_values)) for one in self._cache_layers]
        return sum(kind == kinds[layer] for kind in kinds[:layer]) % self.n_devices

    def _block(self, layer: int, names: Sequence[str]) -> int:
        """Values in a block of the first of these tensors that a layer has."""
        return next(n for name in names if (n := self._blocks.get(f"blk.{layer}.{name}")))

    @cached_property
    def _heads(self) -> Heads:
        return heads_of(self.model)

    @cached_property
    def _blocks(self) -> dict[str, int]:
        return {tensor.name: tensor_type(tensor.type).block for tensor in self.model.tensors}

    @cached_property
    def _cache_layers(self) -> tuple[CacheLayer, ...]:
        return cache_layers(self.model)


def split_weights(split: TensorSplit, tensors: Sequence[Tensor]) -> Counter[str]:
    """Bytes of some tensors on each device: gpu0, gpu1, ..."""
    by_device: Counter[str] = Counter()
    for tensor in tensors:
        for device, n_bytes in enumerate(split.weights(tensor)):
            by_device[f"gpu{device}"] += n_bytes
    return by_device


def _float32(value: float) -> float:
    """The nearest 32-bit float."""
    return struct.unpack("<f", struct.pack("<f", value))[0]
