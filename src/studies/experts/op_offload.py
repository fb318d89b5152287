"""Host weights that a card copies, so that it multiplies a large batch itself: llama.cpp's op offload.

A batch of n tokens copies every matrix of the host once; of a tensor of experts, those that some token of it uses.
If each token draws `used` of `all` experts at random, that is the share 1 - (1 - used / all)^n of them.

    copied bytes = sum over the host's matrices of share * bytes
    seconds of a batch >= copied bytes / rate of the bus

Sources: ggml-cuda.cu:5651 (from 32 tokens on), ggml-backend.cpp:1711 (experts in use); the RPC backend copies nothing.
"""

from __future__ import annotations

from inferlab.errors import InvalidSettings
from inferlab.model.gguf import Model
from inferlab.prediction.memory.plan import MemoryPlan
from inferlab.prediction.speed import STREAMS_FROM, drawn_on_host, placed_matrices


def copied_bytes(plan: MemoryPlan, model: Model, n_tokens: int) -> float:
    """Bytes of host weights that a card copies for one ubatch; 0 for fewer than 32 tokens, or without op offload."""
    if n_tokens < STREAMS_FROM or not plan.settings.op_offload:
        return 0.0
    return drawn_on_host(placed_matrices(model, plan.layer_devices, plan.moved), model, n_tokens)


def most_prompt_rate(plan: MemoryPlan, model: Model, bus_bytes_per_second: float) -> float | None:
    """Tokens per second of a long prompt that the bus allows, one ubatch after another; None where nothing is copied.

    n_ubatch / (copied bytes / rate of the bus); arithmetic only adds time.
    Raises InvalidSettings for a rate that is not positive.
    """
    if bus_bytes_per_second <= 0:
        raise InvalidSettings(f"bus_bytes_per_second={bus_bytes_per_second} is no rate. It must be more than 0.")
    n_tokens = plan.settings.n_ubatch
    copied = copied_bytes(plan, model, n_tokens)
    return n_tokens * bus_bytes_per_second / copied if copied else None
