"""Computes how many bytes a model needs, from its shape.

weights: the sum of tensor bytes; `host_weights`: those of the host, mapped and repacked. `cache`: the KV cache of each
layer. `placement`: the device of each layer.
`compute`: the compute and output buffers, and ranges for them. `decoder`, `altup`: the operations of a batch, with the
`traits` that no header tells. `graph`: where their tensors lie. `scheduled`: on which of two devices each is computed;
`shared`: ranges by that. `bound`, `wide`: ranges where nobody followed the graph or the devices.
`plan`: the records of a plan. `planner`: the plan. `verified`: what stands behind one in closed form.
Where no formula is valid, functions raise UnsupportedArchitecture or return None.
"""

from __future__ import annotations

from inferlab.model.architectures import tensors
from inferlab.model.catalog import KnownModel
from inferlab.model.ggml_types import row_bytes
from inferlab.model.gguf import Tensor
from inferlab.prediction.memory.cache import kv_cache_bytes, kv_cache_bytes_per_token
from inferlab.prediction.memory.plan import DeviceBytes, LayerBytes, MemoryPlan

__all__ = [
    "DeviceBytes",
    "LayerBytes",
    "MemoryPlan",
    "kv_cache_bytes",
    "kv_cache_bytes_per_token",
    "weights_bytes",
]


def weights_bytes(known: KnownModel, type: str = "f16") -> int:
    """Bytes of all tensors of a known model with every matrix in one `type`; what a conversion keeps in F32 stays F32.

    A named mix such as Q4_K_M is not one type; `known_model(...).files` has the sizes of published files.
    Raises InvalidSettings for a type that ggml does not have or whose blocks the rows do not fill,
    UnsupportedArchitecture for an architecture without a layout.
    """
    return sum(_bytes_in(type if tensor.type == "F16" else tensor.type, tensor) for tensor in tensors(known))


def _bytes_in(type: str, tensor: Tensor) -> int:
    """Bytes of a tensor in another type: its rows, each in whole blocks."""
    n_row = tensor.shape[0]
    return tensor.n_elements // n_row * row_bytes(type, n_row)
