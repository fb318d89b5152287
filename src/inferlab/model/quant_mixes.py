"""llama.cpp's named quantization mixes: which type each tensor gets, by the quantizer's own rules.

A transcript of llama_tensor_get_type in src/llama-quant.cpp (lines 446-773 at the pinned commit), without an
importance matrix, for the mixes that need none and the architectures of `architectures`.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.errors import InvalidSettings
from inferlab.model.architectures import KINDS, laid_out
from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import Tensor


@dataclass(frozen=True)
class Mix:
    """A named mix: the type that most matrices get, and llama.cpp's number for `general.file_type`."""

    base: str
    file_type: int


# llama_ftype_get_default_type (llama-quant.cpp), enum llama_ftype (llama.h).
MIXES = {
    "F32": Mix("F32", 0),
    "F16": Mix("F16", 1),
    "BF16": Mix("BF16", 32),
    "Q8_0": Mix("Q8_0", 7),
    "Q6_K": Mix("Q6_K", 18),
    "Q5_K_M": Mix("Q5_K", 17),
    "Q5_K_S": Mix("Q5_K", 16),
    "Q5_1": Mix("Q5_1", 9),
    "Q5_0": Mix("Q5_0", 8),
    "Q4_K_M": Mix("Q4_K", 15),
    "Q4_K_S": Mix("Q4_K", 14),
    "Q4_1": Mix("Q4_1", 3),
    "Q4_0": Mix("Q4_0", 2),
    "IQ4_NL": Mix("IQ4_NL", 25),
    "IQ4_XS": Mix("IQ4_XS", 30),
    "Q3_K_L": Mix("Q3_K", 13),
    "Q3_K_M": Mix("Q3_K", 12),
    "Q3_K_S": Mix("Q3_K", 11),
    "Q2_K": Mix("Q2_K", 10),
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


def mixed(tensors: tuple[Tensor, ...], mix: str, known: KnownModel) -> tuple[Tensor, ...]:
    """The same tensors with the types that llama.cpp's quantizer gives them under `mix`, laid out anew.

    Raises InvalidSettings for a name that is no mix, or one that llama.cpp only makes with an importance matrix.
    """
    chosen = mix_named(mix)
    rules = _Rules(mix, chosen.base, known, tied=all(t.name != "output.weight" for t in tensors))
    return laid_out((tensor.name, tensor.shape, rules.type_of(tensor)) for tensor in tensors)


def mix_named(name: str) -> Mix:
    """The mix of that name, e.g. `mix_named("Q4_K_M")`."""
    if name not in MIXES:
        raise InvalidSettings(f"There is no mix {name!r} here. There are: {', '.join(MIXES)}.")
    return MIXES[name]


def is_quantized(tensor: Tensor) -> bool:
    """Whether llama.cpp touches it at all: matrices, but no norms and no routers (tensor_allows_quantization)."""
    kept = ("_norm.weight", "ffn_gate_inp.weight")
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
        return _fitting(self._wanted(tensor), tensor.shape[0])

    def _wanted(self, tensor: Tensor) -> str:
        if tensor.name == "output.weight" or (self.tied and tensor.name == "token_embd.weight"):
            fills = tensor.shape[0] % KINDS[self.base].block == 0
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
        chosen = self._attn_v(i) or self.base
        return "Q5_K" if self.is_70b and chosen in ("Q3_K", "Q4_K") else chosen

    def _attn_v(self, i: int) -> str | None:
        if self.mix == "Q2_K":
            return "Q4_K" if self.n_gqa >= 4 else "Q3_K"
        if self.mix == "Q3_K_M":
            return "Q5_K" if i < 2 else "Q4_K"
        if self.mix == "Q3_K_L" or (self.mix in ("IQ4_NL", "IQ4_XS") and self.n_gqa >= 4):
            return "Q5_K"
        if self.mix in ("Q4_K_M", "Q5_K_M") and more_bits(i, self.known.n_layer):
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


def _fitting(type: str, width: int) -> str:
    """The type itself, or what llama.cpp falls back to where rows of `width` do not fill its blocks."""
    if width % KINDS[type].block == 0:
        return type
    smaller = SMALLER_BLOCKS.get(type, type)
    return smaller if width % KINDS[smaller].block == 0 else "F16"
