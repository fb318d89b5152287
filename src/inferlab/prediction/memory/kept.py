"""Keeps what follows of a model's graph: it is the same wherever the layers lie, and for every type of weights."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import fields
from functools import wraps
from itertools import count
from typing import Any, TypeVar

from inferlab.model.gguf import LazyArray, Model
from inferlab.settings import Settings

PLACING = frozenset(
    ("n_threads", "n_threads_batch", "load_mode", "use_extra_bufts", "no_host", "rpc_servers", "devices")
)
PLACING |= {"n_gpu_layers", "split_mode", "main_gpu", "tensor_split", "n_cpu_moe", "cpu_moe", "override_tensor"}
"""Settings that leave the graph of a batch as it is."""
OF_GRAPH = tuple(field.name for field in fields(Settings) if field.name not in PLACING)
DESCRIBING = ("general.description", "general.file_type", "general.name", "inferlab.")
PLAIN = (int, float, str, bool)
MOST_KEPT, MOST_MODELS = 1024, 32

Answer = TypeVar("Answer")


def kept_by_graph(function: Callable[..., Answer]) -> Callable[..., Answer]:
    """Decorator: an answer about (model, settings, …) that depends on the graph alone is computed once for each.

    Nobody may change what it returns.
    """
    answers: dict[Hashable, Answer] = {}

    @wraps(function)
    def kept(model: Model, settings: Settings, *more: Any) -> Answer:
        key = graph_of(model), *(getattr(settings, name) for name in OF_GRAPH), *more
        if key not in answers:
            if len(answers) == MOST_KEPT:
                answers.clear()
            answers[key] = function(model, settings, *more)
        return answers[key]

    return kept


_NUMBERS = count()
_GRAPHS: dict[int, tuple[Model, Hashable]] = {}
"""Models by their identity: each is held as long as its key, so that no other one can have its number."""


def graph_of(model: Model) -> Hashable:
    """What tells a model's graph: its numbers, and the names and shapes of its tensors, but no type.

    A header whose arrays are not read yet is told by itself.
    """
    if id(model) not in _GRAPHS:
        if len(_GRAPHS) == MOST_MODELS:
            del _GRAPHS[next(iter(_GRAPHS))]
        _GRAPHS[id(model)] = model, _key(model)
    return _GRAPHS[id(model)][1]


def _key(model: Model) -> Hashable:
    """In two hashes, because the names of a thousand tensors are long."""
    named = [(key, value) for key, value in model.metadata.items() if not key.startswith(DESCRIBING)]
    numbers = tuple((key, value if isinstance(value, PLAIN) else repr(value)) for key, value in named)
    own = next(_NUMBERS) if any(isinstance(value, LazyArray) for _, value in named) else None
    return hash((own, numbers)), hash(tuple((tensor.name, tensor.shape) for tensor in model.tensors))
