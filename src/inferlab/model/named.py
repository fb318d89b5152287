"""Finds the model of a name: the header of a file, or the shape of a published model."""

from __future__ import annotations

from pathlib import Path

from inferlab.errors import InvalidSettings
from inferlab.model.catalog import KnownModel, known_models
from inferlab.model.find import find_model
from inferlab.model.gguf import Model, header_of, without_layers
from inferlab.model.synthetic_model import shape


def model_named(model: Model | KnownModel | str | Path | None, type: str | None = None) -> Model:
    """The header of a file, or the shape of a known model, itself or by name, in one of llama.cpp's types (Q4_K_M).

    Raises ModelNotFound, InvalidSettings for a type given together with a file, which has its own types, and
    UnsupportedArchitecture for a header without layers.
    """
    found = _found(model, type)
    if not 0 < found.n_layer <= len(found.tensors):
        raise without_layers(found, found.n_layer)
    return found


def _found(model: Model | KnownModel | str | Path | None, type: str | None) -> Model:
    if isinstance(model, Model):
        return model
    if isinstance(model, KnownModel) or model in known_models():
        return shape(model, type or "Q4_K_M")
    if type is not None:
        raise InvalidSettings(f"type={type!r} is for a known model, but {model} is a file, which has its types.")
    return header_of(find_model(model))
