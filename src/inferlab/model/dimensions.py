"""The dimensions of a model whose layers are alike, where a computation needs every one of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from inferlab.errors import UnsupportedArchitecture
from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import Model


@dataclass(frozen=True)
class Dimensions:
    """Numbers that hold for all layers, under llama.cpp's names."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int


def dimensions_of(model: Model | KnownModel) -> Dimensions:
    """The dimensions of a model. Raises UnsupportedArchitecture for a header without one number for all layers."""
    numbers = {name: getattr(model, name) for name in (field.name for field in fields(Dimensions))}
    missing = [name for name, number in numbers.items() if number is None]
    if missing:
        raise UnsupportedArchitecture(f"The header of {model.name} has no {', '.join(missing)} for all layers.")
    return Dimensions(**numbers)
