"""Finds the model of a name: the header of a file, or the shape of a published model."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from inferlab.errors import InvalidSettings, ModelNotFound
from inferlab.model.catalog import KnownModel, known_model, known_name, meant_name
from inferlab.model.find import downloaded, find_model, is_address, wanted
from inferlab.model.gguf import Model, header_of, without_layers
from inferlab.model.hub import HOSTS, PREFIX, hub_address
from inferlab.model.ollama_store import is_ollama_name, stored_model
from inferlab.model.quant_mixes import mix_named
from inferlab.model.synthetic_model import shape

TYPED = re.compile(r"(?P<name>.+?)[\s:_-]+(?P<type>[a-z]+\d\w*)", re.IGNORECASE)
"""A name with a type behind it, such as `qwen3 8b Q4_K_M`."""


def model_named(model: Model | KnownModel | str | Path | None, type: str | None = None) -> Model:
    """The header of a file, or the shape of a known model, itself or by name, in one of llama.cpp's types (Q4_K_M).

    Of a file at an address only the header is read. Where there is no file of that name, it may be spelt as people do
    (`meant_name`). Raises ModelNotFound, NotReached for an address that gives none,
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
    named = addressed(wanted(model))
    needless = InvalidSettings(f"type={type!r} is for a known model, but {model} is a file, which has its types.")
    if type is not None and is_address(named):
        raise needless
    try:
        header = header_named(named)
    except ModelNotFound:
        if meant := _meant(named, type):
            return meant
        raise
    if type is not None:
        raise needless
    return header


def _meant(name: str, type: str | None) -> Model | None:
    """The shape that a looser spelling means, also with a type behind it; None where it means none or several."""
    typed = TYPED.fullmatch(name)
    if typed and type is None and (mix := mix_named(typed["type"])):
        name, type = typed["name"], mix
    meant = known_name(name) or meant_name(name)
    return shape(meant, type or known_model(meant).usual_type) if meant else None


def addressed(name: str) -> str:
    """The address that is meant by `hf.co/owner/repo`, as Ollama and browsers write it; any other name as it is.

    What Ollama has here under that name stays its name.
    """
    host, _, rest = name.partition("/")
    if host.lower() not in HOSTS or not rest:
        return name
    try:
        if is_ollama_name(name) and stored_model(name):
            return name
    except ModelNotFound:
        pass
    return f"https://{name}" if re.search("/(blob|resolve|raw|tree)/", rest) else f"{PREFIX}{rest}"


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
