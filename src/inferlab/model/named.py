"""Finds the model of a name: the header of a file, or the shape of a published model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inferlab.errors import InvalidSettings
from inferlab.model.catalog import KnownModel, known_model, known_name
from inferlab.model.find import downloaded, find_model, is_address, wanted
from inferlab.model.gguf import Model, header_of, without_layers
from inferlab.model.hub import hub_address
from inferlab.model.ollama_store import is_ollama_name, stored_model
from inferlab.model.synthetic_model import shape


def model_named(model: Model | KnownModel | str | Path | None, type: str | None = None) -> Model:
    """The header of a file, or the shape of a known model, itself or by name, in one of llama.cpp's types (Q4_K_M).

    Of a file at an address only the header is read. Raises ModelNotFound, NotReached for an address that gives none,
    InvalidSettings for a type given together with a file, which has its own types, and UnsupportedArchitecture for a
    header without layers.
    """
    found = _found(model, type)
    if not 0 < found.n_layer <= len(found.tensors):
        raise without_layers(found, found.n_layer)
    return found


def _found(model: Model | KnownModel | str | Path | None, type: str | None) -> Model:
    if isinstance(model, Model):
        return model
    if isinstance(model, KnownModel):
        return shape(model, type or model.usual_type)
    if name := known_name(model):
        return shape(name, type or known_model(name).usual_type)
    if type is not None:
        raise InvalidSettings(f"type={type!r} is for a known model, but {model} is a file, which has its types.")
    return header_named(wanted(model))


def header_named(name: str) -> Model:
    """The header of a file here, in Ollama's store or at an address, with what belongs to it. Raises as `read_gguf`."""
    if is_address(name):
        return _at_address(name)
    if is_ollama_name(name):
        stored = stored_model(name)
        return replace(header_of(stored.path), beside=stored.beside)
    return header_of(find_model(name))


def _at_address(name: str) -> Model:
    address = hub_address(name)
    if address and (path := downloaded(address)):
        return header_of(path)
    from inferlab.model.remote import remote_model

    return remote_model(name)
