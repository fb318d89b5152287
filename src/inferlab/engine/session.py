"""The one engine that a session shares, so that a model stays loaded between cells."""

from __future__ import annotations

from inferlab.engine.client import LlamaEngine
from inferlab.machine import Machine

_DEFAULT: list[LlamaEngine] = []


def default_engine() -> LlamaEngine:
    """The one engine that a session shares, so that a model stays loaded between cells."""
    if not _DEFAULT:
        _DEFAULT.append(LlamaEngine())
    return _DEFAULT[0]


def this_machine() -> Machine:
    """The host, and the devices that llama.cpp can use on it."""
    return default_engine().machine()
