"""What a budget of bytes can hold: weights and cache of the known models, the least that any program needs.

    bytes needed    = bytes of the tensors + bytes of the KV cache
    weights at most = 8 * budget / bits of a weight

Compute buffers, the program and the system come on top, so a model that does not fit here fits nowhere.
"""

from __future__ import annotations

from inferlab.errors import InvalidSettings
from inferlab.model.catalog import KnownModel
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory.cache import kv_cache_bytes
from inferlab.settings import Settings


def cache_bytes(model: Model, n_ctx: int, swa_full: bool = False) -> int:
    """Bytes of a KV cache in F16; layers with a window keep only that unless `swa_full`."""
    return kv_cache_bytes(model, Settings(n_ctx=n_ctx, swa_full=swa_full))


def needed_bytes(known: KnownModel, n_ctx: int, mix: str = "Q4_K_M") -> int:
    """Bytes of the weights in `mix` and of the cache for `n_ctx` tokens."""
    model = shape(known, mix)
    return model.tensor_bytes + cache_bytes(model, n_ctx)


def most_weights(budget_bytes: float, bits: float) -> float:
    """Weights of `bits` each that a budget can hold, without cache. Raises InvalidSettings for bits below or at 0."""
    if bits <= 0:
        raise InvalidSettings(f"bits={bits!r} for a weight. Give a positive number, such as 4.5 for Q4_0.")
    return 8 * budget_bytes / bits
