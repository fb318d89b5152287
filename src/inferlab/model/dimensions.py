"""The dimensions of a model, as llama.cpp reads them from its header: one for all layers, or one for each."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from inferlab.errors import UnsupportedArchitecture
from inferlab.model.architecture_table import architecture
from inferlab.model.architectures import metadata
from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import VERSIONS, Model, without_layers

MOST_LAYERS = 512  # LLAMA_MAX_LAYERS, llama-hparams.h:10


@dataclass(frozen=True)
class Dimensions:
    """Numbers that hold for all layers, under llama.cpp's names."""

    n_layer: int
    n_embd: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int


@dataclass(frozen=True)
class Heads:
    """Heads of each layer, and their width in layers with the whole context and in those with a window.

    llama-model.cpp:1380-1440: the width is n_embd / heads of the first layer where the header has none.
    """

    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    key: int
    value: int
    key_in_window: int
    value_in_window: int

    def width(self, layer: int, windowed: bool) -> tuple[int, int]:
        """Values of a key and of a value of one layer, over its KV heads."""
        k, v = (self.key_in_window, self.value_in_window) if windowed else (self.key, self.value)
        return self.n_head_kv[layer] * k, self.n_head_kv[layer] * v


def dimensions_of(model: Model | KnownModel) -> Dimensions:
    """The dimensions of a model. Raises UnsupportedArchitecture for a header without one number for all layers."""
    numbers = {name: getattr(model, name) for name in (field.name for field in fields(Dimensions))}
    missing = [name for name, number in numbers.items() if number is None]
    if missing:
        raise UnsupportedArchitecture(f"The header of {model.name} has no {', '.join(missing)} for all layers.")
    return Dimensions(**numbers)


def has_latent_cache(model: Model) -> bool:
    """Whether the cache keeps keys alone, latent ones (MLA): the architecture may, and the header splits them."""
    return architecture(model.architecture).is_latent and bool(model.number("attention.key_length_mla"))


def header_of_known(model: Model | KnownModel) -> Model:
    """The header that a known model's file has, without tensors; of a file its own."""
    if isinstance(model, Model):
        return model
    keys = {"general.architecture": model.architecture, "general.name": model.name, **metadata(model)}
    return Model(Path(model.name), 0, VERSIONS[-1], keys, ())


def layers_counted(model: Model) -> int:
    """Layers that llama.cpp makes of a file's blocks: of one that runs them several times, each time one (nanbeige).

    Raises UnsupportedArchitecture for a number of layers that cannot be.
    """
    loops = model.number("num_loops") if architecture(model.architecture).loops else None
    n_layer = model.n_layer * (loops or 1)
    if n_layer > max(MOST_LAYERS, len(model.tensors)):
        raise without_layers(model, n_layer)
    return n_layer


def trunk_layers(model: Model) -> int:
    """Layers without those at the end that predict further tokens: n_layer() in llama-hparams.cpp.

    Raises UnsupportedArchitecture for more of these than there are layers.
    """
    n_layer, n_further = layers_counted(model), model.number("nextn_predict_layers") or 0
    if not 0 <= n_further <= n_layer:
        raise UnsupportedArchitecture(
            f"In the header of {model.name} ({model.architecture}) {n_further} of {n_layer} layers predict further "
            "tokens, which cannot be."
        )
    return n_layer - n_further


def of_each_layer(model: Model, key: str, default: int = 0) -> tuple[int, ...]:
    """One integer for each layer, from a number or an array of the header (get_key_or_arr); an array may be short.

    Raises UnsupportedArchitecture for a value that is no number, and for one below zero.
    """
    n_layer, told = layers_counted(model), model.per_layer(key)
    is_count = told is not None and all(isinstance(number, int) and number >= 0 for number in told)
    if not is_count and f"{model.architecture}.{key}" in model.metadata:
        raise UnsupportedArchitecture(
            f"In the header of {model.name} ({model.architecture}) {key} is neither a number from 0 on nor one for "
            "each layer, so its cache has no size here."
        )
    if told is None:
        return (default,) * n_layer
    padded = (*told, *(default,) * (model.n_layer - len(told)))[: model.n_layer]
    return padded * (n_layer // max(1, model.n_layer))


def required(model: Model, *keys: str) -> tuple[int, ...]:
    """The integers of these keys. Raises UnsupportedArchitecture for those that the header does not have."""
    found = {key: model.number(key) for key in keys}
    if missing := [key for key, number in found.items() if number is None]:
        raise UnsupportedArchitecture(
            f"The header of {model.name} ({model.architecture}) has no {' and no '.join(missing)}, "
            "without which its cache has no size. llama.cpp would not load it."
        )
    return tuple(number for number in found.values() if number is not None)


def heads_of(model: Model) -> Heads:
    """The heads of each layer. Raises UnsupportedArchitecture where a dimension is missing, or cannot be."""
    n_head = of_each_layer(model, "attention.head_count")
    has_own = f"{model.architecture}.attention.head_count_kv" in model.metadata
    n_head_kv = of_each_layer(model, "attention.head_count_kv") if has_own else n_head
    key, value = _width(model, "attention.key_length", n_head), _width(model, "attention.value_length", n_head)
    key_in_window = model.number("attention.key_length_swa", key)
    value_in_window = model.number("attention.value_length_swa", value)
    widths = key, value, key_in_window or 0, value_in_window or 0
    if min(widths) < 0 or (model.number("embedding_length", 1) or 0) < 1:
        raise UnsupportedArchitecture(
            f"The header of {model.name} ({model.architecture}) has a width of heads or embeddings below zero."
        )
    return Heads(n_head, n_head_kv, *widths)


def _width(model: Model, key: str, n_head: tuple[int, ...]) -> int:
    """Width of a head: the header's, else an equal share of the model's width; 0 without heads in the first layer."""
    if not n_head[:1] or (not n_head[0] and model.architecture != "plamo2"):  # plamo2.cpp:15 reads it in any case
        return 0
    if (told := model.number(key)) is not None:
        return told
    return required(model, "embedding_length")[0] // n_head[0] if n_head[0] else 0
