"""Plans: what a model will take, said before it is loaded, with the method that said so."""

from __future__ import annotations

from pathlib import Path

from inferlab import memory
from inferlab.gguf import Model, read_gguf
from inferlab.memory import DeviceBytes, LayerBytes, MemoryPlan
from inferlab.settings import Settings


def predict_memory(model: Model | str | Path, settings: Settings, machine=None) -> MemoryPlan:
    """Bytes of weights, KV cache, compute and output on each device and in each layer; nothing is loaded."""
    model = model if isinstance(model, Model) else read_gguf(model)
    cache = memory.kv_cache_bytes(model, settings)
    layers = tuple(_block(model, index, cache // model.n_layer) for index in range(model.n_layer))
    host = DeviceBytes(model.tensor_bytes, cache, None, None)
    return MemoryPlan(model.card(), settings, "closed form", {"host": host}, layers)


def _block(model: Model, index: int, cache: int) -> LayerBytes:
    weights = sum(t.n_bytes for t in model.tensors if t.name.startswith(f"blk.{index}."))
    return LayerBytes(f"block {index}", "host", weights, "host", cache, index)
