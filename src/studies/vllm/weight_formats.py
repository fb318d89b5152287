"""Weight formats of other engines: bits per weight, and bytes of a model in them.

    bits per weight = bits of a weight + (bits of the scale + bits of the zero point) / weights of a group

Only the matrices of the layers are quantized; embedding, output matrix and norms keep 16 bits.
The formats lie in data/facts/weight_formats.toml, each with its source; ggml's own are in `ggml_types`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

from inferlab.facts import read_table
from inferlab.model.architectures import tensors
from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import Tensor
from inferlab.model.quant_mixes import is_quantized

KEPT_BITS = 16


@dataclass(frozen=True)
class WeightFormat:
    """What one format stores for each weight and each group of weights; `group` 0 is a whole row.

    source: key of the bibliography, in its state of `date`.
    """

    title: str
    bits: int
    group: int
    scale_bits: int
    zero_bits: int
    source: str
    date: str

    def bits_per_weight(self, n_row: int = 4096) -> float:
        """Bits of a weight with its part of scale and zero point, in a row of `n_row` weights."""
        return self.bits + (self.scale_bits + self.zero_bits) / (self.group or n_row)


@cache
def weight_formats() -> dict[str, WeightFormat]:
    """Every format of data/facts/weight_formats.toml by its short name."""
    return {name: WeightFormat(**entry) for name, entry in read_table("weight_formats").items()}


def weights_bytes(known: KnownModel, name: str | None = None) -> int:
    """Bytes of a model's weights in a format by its short name, or in 16 bits where `name` is None."""
    chosen = weight_formats()[name] if name else None
    return round(sum(prod(tensor.shape) * _bits(tensor, chosen) for tensor in tensors(known)) / 8)


def _bits(tensor: Tensor, chosen: WeightFormat | None) -> float:
    if chosen is None or not (tensor.name.startswith("blk.") and is_quantized(tensor)):
        return KEPT_BITS
    return chosen.bits_per_weight(tensor.shape[0])
