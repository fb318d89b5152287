"""Computes the type of each tensor in llama.cpp's named quantization mixes, by the quantizer's rules.

The rules are those of llama_tensor_get_type in src/llama-quant.cpp (lines 390-773 at the pinned commit), for the
layouts of `architectures`, with and without an importance matrix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from inferlab.errors import InvalidSettings
from inferlab.model.architectures import own_keys, with_offsets
from inferlab.model.catalog import KnownModel
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import Tensor

# A mix -> the type that most of its matrices get: llama_ftype_get_default_type (llama-quant.cpp:881).
# From the most bytes to the fewest in Mistral 7B; MXFP4_MOE by those in Qwen3 30B A3B.
MIXES = {
    "F32": "F32",
    "F16": "F16",
    "BF16": "BF16",
    "Q8_0": "Q8_0",
    "Q6_K": "Q6_K",
    "Q5_1": "Q5_1",
    "Q5_K_M": "Q5_K",
    "Q5_K_S": "Q5_K",
    "Q5_0": "Q5_0",
    "Q4_1": "Q4_1",
    "Q4_K_M": "Q4_K",
    "IQ4_NL": "IQ4_NL",
    "Q4_K_S": "Q4_K",
    "Q4_0": "Q4_0",
    "MXFP4_MOE": "MXFP4",
    "IQ4_XS": "IQ4_XS",
    "Q3_K_L": "Q3_K",
    "Q3_K_M": "Q3_K",
    "IQ3_M": "IQ3_S",
    "IQ3_S": "IQ3_S",
    "Q3_K_S": "Q3_K",
    "IQ3_XS": "IQ3_S",
    "IQ3_XXS": "IQ3_XXS",
    "Q2_K": "Q2_K",
    "Q2_K_S": "Q2_K",
    "IQ2_M": "IQ2_S",
    "IQ2_S": "IQ2_XS",
    "IQ2_XS": "IQ2_XS",
    "Q2_0": "Q2_0",
    "IQ2_XXS": "IQ2_XXS",
    "TQ2_0": "TQ2_0",
    "IQ1_M": "IQ1_M",
    "TQ1_0": "TQ1_0",
    "IQ1_S": "IQ1_S",
    "Q1_0": "Q1_0",
}
UNQUANTIZED = ("F32", "F16", "BF16")

# Types of a layer's matrices that are only made with an importance matrix: tensor_requires_imatrix (:856-875).
IMATRIX_TYPES = frozenset(("IQ3_XXS", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S"))
# Mixes that llama-quantize refuses without one where rows fill blocks of 256 weights: their base is one of these types,
# or attn_q, or ffn_up of the middle layers, gets one (IQ3_XS); Q2_K_S because its Q2_K counts as one (:868-871).
# `needs_imatrix` decides it for any tensors: narrow rows may fall back to types that need none.
NEEDS_IMATRIX = frozenset(("IQ3_XS", "IQ3_XXS", "Q2_K_S", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"))

SMALLEST = ("IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S")  # these mixes have rules of their own (:543)
LIFTED_TO_IQ3_S = ("IQ2_M", "IQ2_S")  # of `SMALLEST`, those whose important matrices get IQ3_S; the others Q2_K
EMBEDDING = {
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"), "Q2_K"),
    **dict.fromkeys(("IQ2_S", "IQ2_M", "IQ3_XXS"), "IQ3_S"),
    **dict.fromkeys(("TQ1_0", "TQ2_0", "Q2_0"), "Q4_K"),
}  # of a table that is not the output matrix, too (:525-542)

WITHOUT_CHECK = ("token_embd", "output")  # categories that may have such types without one

# Parts of the names of matrices that stay as they are: tensor_allows_quantization (:287-383).
KEPT = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
)

# tensor_type_fallback (:390): what replaces a type of larger blocks in rows that do not fill them.
SMALLER_BLOCKS = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_0", "Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    "Q4_K": "Q5_0",
    "Q5_K": "Q5_1",
    "Q6_K": "Q8_0",
}


def mix_named(text: str) -> str | None:
    """The mix of `MIXES` that is meant, in large or small letters; None where none is."""
    name = text.upper().replace("FP16", "F16")
    return name if name in MIXES else None


def with_mix_types(
    tensors: tuple[Tensor, ...], mix: str, known: KnownModel, *, imatrix: bool = False
) -> tuple[Tensor, ...]:
    """The same tensors with the types that llama.cpp's quantizer gives them under `mix`, and new offsets.

    imatrix  whether it has an importance matrix; where it refuses to do without, it is taken to have one
    MXFP4_MOE gives MXFP4 to experts alone, so that a dense model becomes Q8_0.
    Raises InvalidSettings for an unknown mix, and for Q1_0 in rows that do not fill its blocks.
    """
    types = iter(Quantizer(tensors, known).types(mix, imatrix=imatrix))
    return with_offsets((t.name, t.shape, next(types) if is_quantized(t) else t.type) for t in tensors)


def needs_imatrix(tensors: Iterable[Tensor], mix: str) -> bool:
    """Whether llama.cpp refuses to make tensors of these types without an importance matrix (:1129-1147)."""
    quantized = filter(is_quantized, tensors)
    return _needs_imatrix({tensor.type for tensor in quantized if category(tensor.name) not in WITHOUT_CHECK}, mix)


def _needs_imatrix(types: set[str], mix: str) -> bool:
    return bool(types & IMATRIX_TYPES) or (mix == "Q2_K_S" and "Q2_K" in types)


class Quantizer:
    """The types that one model's tensors get under any mix.

    quantized  the tensors that a mix changes, in the order of `types`
    """

    def __init__(self, tensors: tuple[Tensor, ...], known: KnownModel) -> None:
        self._known = known
        kinds = [category(tensor.name) for tensor in tensors]
        self._tied = "output" not in kinds
        self._n_attn_v = sum(kind in ATTN_V_LIKE for kind in kinds)
        self._placed = tuple(_placed(tensors, kinds))
        self.quantized = tuple(tensor for tensor, _, _ in self._placed)

    def types(self, mix: str, *, imatrix: bool = False) -> tuple[str, ...]:
        """The types of `quantized` under a mix, as `with_mix_types` says of all tensors."""
        types = self.types_with(mix, imatrix=imatrix)
        if imatrix or not _needs_imatrix(self._checked(types), mix):
            return types
        return self.types_with(mix, imatrix=True)

    def types_with(self, mix: str, *, imatrix: bool) -> tuple[str, ...]:
        """As `types`, but without an importance matrix also where llama.cpp refuses that."""
        rules = _Rules(mix, base_type(mix), self._known, self._tied, imatrix, self._n_attn_v)
        return tuple(rules.type_of(*placed) for placed in self._placed)

    def _checked(self, types: tuple[str, ...]) -> set[str]:
        placed = zip(self._placed, types, strict=True)
        return {type for (_, kind, _), type in placed if kind not in WITHOUT_CHECK}


def _placed(tensors: Iterable[Tensor], kinds: Iterable[str]) -> Iterator[tuple[Tensor, str, int]]:
    """Each tensor that is quantized, its category, and how many of that stand before it: the quantizer's counters."""
    counts: Counter[str] = Counter()
    for tensor, kind in zip(tensors, kinds, strict=True):
        if is_quantized(tensor):
            counted = "attn_v" if kind in ATTN_V_LIKE else kind
            yield tensor, kind, counts[counted]
            counts[counted] += 1


def base_type(mix: str) -> str:
    """The type that most matrices of a mix get: Q4_K in Q4_K_M. Raises InvalidSettings for an unknown mix."""
    if mix not in MIXES:
        raise InvalidSettings(f"There is no mix {mix!r} here. There are: {', '.join(MIXES)}.")
    return MIXES[mix]


def is_quantized(tensor: Tensor) -> bool:
    """Whether llama.cpp quantizes the tensor: matrices, not routers or convolutions (tensor_allows_quantization)."""
    return len(tensor.shape) > 1 and max(tensor.shape[1:]) > 1 and _may_be_quantized(_of_any_layer(tensor.name))


@cache
def _may_be_quantized(name: str) -> bool:
    return name.endswith("weight") and not any(part in name for part in KEPT)


def category(name: str) -> str:
    """The kind of tensor that a rule is for, as the quantizer tells it by the name (tensor_get_category, :105)."""
    return _category(_of_any_layer(name))


@cache
def _category(name: str) -> str:
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return "token_embd"
    return "output" if name == "output.weight" else next((part for part in CATEGORIES if part in name), "other")


def _of_any_layer(name: str) -> str:
    """The name without its layer's number, on which no rule about names depends: of these there are few."""
    return "blk." + name.split(".", 2)[-1] if name.startswith("blk.") else name


def more_bits(i: int, n_layer: int) -> bool:
    """Whether a _M mix spends more bits on layer i: the first and last eighth, and every third between."""
    return i < n_layer // 8 or i >= 7 * n_layer // 8 or (i - n_layer // 8) % 3 == 2


@dataclass(frozen=True)
class _Rules:
    """llama_tensor_get_type for one model and mix; without an importance matrix unless `imatrix`."""

    mix: str
    base: str
    known: KnownModel
    tied: bool
    imatrix: bool
    n_attn_v: int

    def type_of(self, tensor: Tensor, kind: str, place: int) -> str:
        """The type of a tensor that is quantized, before which `place` of its category stand."""
        if self.base in UNQUANTIZED:
            return self.base
        return _type_for_width(self._type_before_fallback(tensor, kind, place), tensor.shape[0])

    def _type_before_fallback(self, tensor: Tensor, kind: str, place: int) -> str:
        if kind == "output" or (self.tied and kind == "token_embd"):
            return self._output(tensor.shape[0])
        if self.mix == "MXFP4_MOE":
            return "MXFP4" if len(tensor.shape) > 2 and tensor.shape[2] > 1 else "Q8_0"
        if kind == "token_embd":
            return EMBEDDING.get(self.mix, self.base)
        is_smallest = self.mix in SMALLEST
        if self.known.n_expert > 1 and kind.startswith("ffn") and not is_smallest:
            place = int(tensor.name.split(".")[1])  # experts count by their layer (layer_info, :446)
        rule = (SMALLEST_RULES if is_smallest else RULES).get(kind)
        return (rule(self, place) if rule else None) or self.base

    def _output(self, width: int) -> str:
        if self.mix in ("MXFP4_MOE", "Q8_0") or width % TYPES[self.base].block:
            return "Q8_0"
        return "Q5_K" if self.mix in (*SMALLEST, "IQ3_XXS") else "Q6_K"

    @cached_property
    def n_gqa(self) -> int:
        """Query heads for each KV head in the first layer, 0 where that has none (llama-hparams.cpp:99)."""
        keys = own_keys(self.known)
        heads, kv = (_of_first(keys.get(f"attention.{key}", 0)) for key in ("head_count", "head_count_kv"))
        return heads // kv if kv else 0

    @property
    def eight_experts(self) -> bool:
        return self.known.n_expert == 8

    @property
    def is_70b(self) -> bool:
        """llama.cpp's LLM_TYPE_70B: 80 layers of these architectures, of llama with shared heads."""
        shared = self.known.architecture != "llama" or self.n_gqa > 1
        return self.known.n_layer == 80 and self.known.architecture in ("llama", "qwen2", "deci") and shared

    def attn_v(self, i: int) -> str | None:
        if self.eight_experts:
            return "Q8_0"
        chosen = self._attn_v(i, self.n_attn_v) or self.base
        return "Q5_K" if self.is_70b and chosen in ("Q3_K", "Q4_K") else chosen

    def _attn_v(self, i: int, n: int) -> str | None:
        if self.n_gqa >= 4 and self.mix in V_OF_SHARED_HEADS:
            return V_OF_SHARED_HEADS[self.mix]
        if self.mix == "IQ3_XXS":
            return "IQ3_XXS" if self.imatrix else "IQ3_S"
        if self.mix == "Q3_K_M":
            return "Q5_K" if i < 2 else "Q4_K"
        if self.mix in ("Q4_K_M", "Q5_K_M") and more_bits(i, n):
            return "Q6_K"
        if self.mix == "Q4_K_S" and i < 4:
            return "Q5_K"
        return {"Q2_K": "Q3_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}.get(self.mix)

    def attn_k(self, i: int) -> str | None:
        return "Q8_0" if self.eight_experts else self.attn_q(i)

    def attn_q(self, i: int) -> str | None:
        return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(self.mix)

    def attn_output(self, i: int) -> str | None:
        if self.eight_experts:
            return "Q5_K" if self.mix in LIFTED_WITH_EIGHT_EXPERTS else None
        return {"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"}.get(self.mix)

    def ffn_down(self, i: int) -> str | None:
        n = self.known.n_layer
        if self.mix in ("Q4_K_M", "Q5_K_M"):
            return "Q6_K" if more_bits(i, n) else None
        if self.mix == "Q3_K_M":
            return "Q5_K" if i < n // 16 else "Q4_K"
        if self.mix == "IQ3_XXS" and not self.imatrix:
            return "Q4_K" if i < n // 8 else "Q3_K"
        if self.mix == "IQ3_M" and self.eight_experts and more_bits(i, n):
            return "Q4_K"
        if i < n // 8 and self.mix in FIRST_DOWN[self.imatrix]:
            return FIRST_DOWN[self.imatrix][self.mix]
        return {"Q2_K": "Q3_K", "Q3_K_L": "Q5_K"}.get(self.mix)

    def ffn_gate_or_up(self, i: int) -> str | None:
        n = self.known.n_layer
        return "IQ3_XXS" if self.mix == "IQ3_XS" and n // 8 <= i < 7 * n // 8 else None

    def smallest_attn_v(self, i: int) -> str:
        return "Q4_K" if self.n_gqa >= 4 or self.known.n_expert >= 4 else self._lifted

    def smallest_attn_k(self, i: int) -> str | None:
        return "Q4_K" if self.eight_experts else None

    def smallest_attn_output(self, i: int) -> str | None:
        if self.eight_experts:
            return "Q5_K"
        return {"IQ1_S": "IQ2_XXS", "IQ1_M": "IQ2_XXS", "IQ2_S": "IQ3_S", "IQ2_M": "IQ3_S"}.get(self.mix)

    def smallest_ffn_down(self, i: int) -> str | None:
        return self._lifted if i < self.known.n_layer // 8 else None

    @property
    def _lifted(self) -> str:
        return "IQ3_S" if self.mix in LIFTED_TO_IQ3_S else "Q2_K"


# attn_v where four or more heads share its values (:567-586).
V_OF_SHARED_HEADS = {
    **dict.fromkeys(("Q2_K", "Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S"), "Q4_K"),
    **dict.fromkeys(("IQ4_NL", "IQ4_XS"), "Q5_K"),
}
LIFTED_WITH_EIGHT_EXPERTS = (
    "Q2_K",
    "IQ3_XS",
    "IQ3_XXS",
    "Q3_K_S",
    "Q3_K_M",
    "IQ4_NL",
    "Q4_K_S",
    "Q4_K_M",
    "IQ3_S",
    "IQ3_M",
    "IQ4_XS",
)
# ffn_down in the first eighth of the layers, without and with an importance matrix (:624-668).
FIRST_DOWN = {
    False: {"Q2_K_S": "Q4_K", "IQ3_M": "Q4_K", "Q4_K_S": "Q5_K", "IQ4_NL": "Q5_K", "IQ4_XS": "Q5_K"},
    True: {"Q2_K_S": "Q4_K", "IQ3_M": "Q4_K", "Q4_K_S": "Q5_K", "Q4_0": "Q4_1", "Q5_0": "Q5_1"},
}
# Whose rules are those of attn_v: a fused matrix, and what MLA makes keys and values of (:145).
ATTN_V_LIKE = ("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight")
# A fused matrix counts as attn_v, which stands first in the quantizer's chain; its own branch is never reached.
# Older quantizers reached it: Q5_K for attn_qkv in Q4_K_M, as in the published files of Phi-3 and Phi-4.
RULES = {
    **dict.fromkeys(ATTN_V_LIKE, _Rules.attn_v),
    "attn_k.weight": _Rules.attn_k,
    "attn_q.weight": _Rules.attn_q,
    "attn_output.weight": _Rules.attn_output,
    "ffn_up": _Rules.ffn_gate_or_up,
    "ffn_gate": _Rules.ffn_gate_or_up,
    "ffn_down": _Rules.ffn_down,
}
CATEGORIES = tuple(RULES)
SMALLEST_RULES = {
    **dict.fromkeys(ATTN_V_LIKE, _Rules.smallest_attn_v),
    "attn_k.weight": _Rules.smallest_attn_k,
    "attn_output.weight": _Rules.smallest_attn_output,
    "ffn_down": _Rules.smallest_ffn_down,
}


def _of_first(value: int | tuple[int, ...]) -> int:
    return value[0] if isinstance(value, tuple) else value


def _type_for_width(type: str, width: int) -> str:
    """The type itself, or what llama.cpp falls back to where rows of `width` do not fill its blocks.

    Raises InvalidSettings for a type of large blocks without another to fall back to, which only Q1_0 is.
    """
    block = TYPES[type].block
    if width % block == 0:
        return type
    if block > 32 and type not in SMALLER_BLOCKS:
        raise InvalidSettings(
            f"llama.cpp refuses {type} for rows of {width} weights, which do not fill blocks of {block}. "
            "Choose another type."
        )
    smaller = SMALLER_BLOCKS.get(type, type)
    return smaller if width % TYPES[smaller].block == 0 else "F16"
