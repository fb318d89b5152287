"""Computes the type of each tensor in llama.cpp's named quantization mixes, by the quantizer's rules.

The rules are those of llama_tensor_get_type in src/llama-quant.cpp (lines 446-773 at the pinned commit), without an
importance matrix, for the mixes that need none and for the layouts of `architectures`.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.errors import InvalidSettings
from inferlab.model.architectures import with_offsets
from inferlab.model.catalog import KnownModel
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import Tensor

# A mix -> the type that most of its matrices get: llama_ftype_get_default_type (llama-quant.cpp).
MIXES = {
    "F32": "F32",
    "F16": "F16",
    "BF16": "BF16",
    "Q8_0": "Q8_0",
    "Q6_K": "Q6_K",
    "Q5_K_M": "Q5_K",
    "Q5_K_S": "Q5_K",
    "Q5_1": "Q5_1",
    "Q5_0": "Q5_0",
    "Q4_K_M": "Q4_K",
    "Q4_K_S": "Q4_K",
    "Q4_1": "Q4_1",
    "Q4_0": "Q4_0",
    "IQ4_NL": "IQ4_NL",
    "IQ4_XS": "IQ4_XS",
    "Q3_K_L": "Q3_K",
    "Q3_K_M": "Q3_K",
    "Q3_K_S": "Q3_K",
    "Q2_K": "Q2_K",
}
UNQUANTIZED = ("F32", "F16", "BF16")

# tensor_type_fallback: what replaces a type of 256-weight blocks in rows that do not fill them.
SMALLER_BLOCKS = {
    "IQ4_XS": "IQ4_NL",
    "Q2_K": "Q4_0",
    "Q3_K": "Q4_0",
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}


def with_mix_types(tensors: tuple[Tensor, ...], mix: str, known: KnownModel) -> tuple[Tensor, ...]:
    """The same tensors with the types that llama.cpp's quantizer gives them under `mix`, and new offsets.

    Raises InvalidSettings for an unknown mix, or one that llama.cpp only makes with an importance matrix.
    """
    rules = _Rules(mix, base_type(mix), known, tied=all(t.name != "output.weight" for t in tensors))
    return with_offsets((tensor.name, tensor.shape, rules.type_of(tensor)) for tensor in tensors)


def base_type(mix: str) -> str:
    """The type that most matrices of a mix get: Q4_K in Q4_K_M. Raises InvalidSettings for an unknown mix."""
    if mix not in MIXES:
        raise InvalidSettings(f"There is no mix {mix!r} here. There are: {', '.join(MIXES)}.")
    return MIXES[mix]


def is_quantized(tensor: Tensor) -> bool:
    """Whether llama.cpp quantizes the tensor: matrices, not routers or convolutions (tensor_allows_quantization)."""
    kept = ("_norm.weight", "ffn_gate_inp.weight", "conv1d.weight", "shortconv.conv.weight")
    return len(tensor.shape) > 1 and tensor.name.endswith("weight") and not tensor.name.endswith(kept)


def more_bits(i: int, n_layer: int) -> bool:
    """Whether a _M mix spends more bits on layer i: the first and last eighth, and every third between."""
    return i < n_layer // 8 or i >= 7 * n_layer // 8 or (i - n_layer // 8) % 3 == 2


@dataclass(frozen=True)
class _Rules:
    """llama_tensor_get_type for one model and mix."""

    mix: str
    base: str
    known: KnownModel
    tied: bool

    def type_of(self, tensor: Tensor) -> str:
        if not is_quantized(tensor):
            return "F32" if self.mix == "F32" else tensor.type
        if self.base in UNQUANTIZED:
            return self.base
        return _type_for_width(self._type_before_fallback(tensor), tensor.shape[0])

    def _type_before_fallback(self, tensor: Tensor) -> str:
        if tensor.name == "output.weight" or (self.tied and tensor.name == "token_embd.weight"):
            fills = tensor.shape[0] % TYPES[self.base].block == 0
            return "Q6_K" if fills and self.base != "Q8_0" else "Q8_0"
        if tensor.name == "token_embd.weight":
            return self.base
        _, layer, part = tensor.name.split(".", 2)
        rule = RULES.get(part.removesuffix(".weight").removesuffix("_exps"))
        return (rule(self, int(layer)) if rule else None) or self.base

    @property
    def n_gqa(self) -> int:
        return self.known.n_head // self.known.n_head_kv

    @property
    def eight_experts(self) -> bool:
        return self.known.n_expert == 8

    @property
    def is_70b(self) -> bool:
        """llama.cpp's LLM_TYPE_70B: 80 layers of llama with shared heads, or of qwen2."""
        shared = self.known.architecture == "qwen2" or self.n_gqa > 1
        return self.known.n_layer == 80 and self.known.architecture in ("llama", "qwen2") and shared

    def attn_v(self, i: int) -> str | None:
        if self.eight_experts:
            return "Q8_0"
        chosen = self._attn_v(*self._attention_place(i)) or self.base
        return "Q5_K" if self.is_70b and chosen in ("Q3_K", "Q4_K") else chosen

    def _attention_place(self, layer: int) -> tuple[int, int]:
        """The place of a layer among those with attention, which is what the quantizer counts, and their number."""
        listed = self.known.attention_layers or range(self.known.n_layer)
        places = [i for i in listed if i < self.known.n_layer]
        return places.index(layer), len(places)

    def _attn_v(self, i: int, n: int) -> str | None:
        if self.mix == "Q2_K":
            return "Q4_K" if self.n_gqa >= 4 else "Q3_K"
        if self.mix == "Q3_K_M":
            return "Q5_K" if i < 2 else "Q4_K"
        if self.mix == "Q3_K_L" or (self.mix in ("IQ4_NL", "IQ4_XS") and self.n_gqa >= 4):
            return "Q5_K"
        if self.mix in ("Q4_K_M", "Q5_K_M") and more_bits(i, n):
            return "Q6_K"
        return "Q5_K" if self.mix == "Q4_K_S" and i < 4 else None

    def attn_k(self, i: int) -> str | None:
        return "Q8_0" if self.eight_experts else None

    def attn_output(self, i: int) -> str | None:
        if self.eight_experts:
            lifted = ("Q2_K", "Q3_K_S", "Q3_K_M", "IQ4_NL", "IQ4_XS", "Q4_K_S", "Q4_K_M")
            return "Q5_K" if self.mix in lifted else None
        return {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K"}.get(self.mix)

    def ffn_down(self, i: int) -> str | None:
        n = self.known.n_layer
        if self.mix == "Q3_K_M":
            return "Q5_K" if i < n // 16 else "Q4_K"
        if self.mix in ("Q4_K_M", "Q5_K_M"):
            return "Q6_K" if more_bits(i, n) else None
        if self.mix in ("IQ4_NL", "IQ4_XS", "Q4_K_S"):
            return "Q5_K" if i < n // 8 else None
        return {"Q2_K": "Q3_K", "Q3_K_L": "Q5_K"}.get(self.mix)


RULES = {
    # A fused matrix counts as attn_v, which stands first in the quantizer's chain; its own branch is never reached.
    "attn_qkv": _Rules.attn_v,
    "attn_v": _Rules.attn_v,
    "attn_k": _Rules.attn_k,
    "attn_output": _Rules.attn_output,
    "ffn_down": _Rules.ffn_down,
}


def _type_for_width(type: str, width: int) -> str:
    """The type itself, or what llama.cpp falls back to where rows of `width` do not fill its blocks."""
    if width % TYPES[type].block == 0:
        return type
    smaller = SMALLER_BLOCKS.get(type, type)
    return smaller if width % TYPES[smaller].block == 0 else "F16"
