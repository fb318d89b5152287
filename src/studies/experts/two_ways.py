"""Two ways to free a card's memory for a mixture of experts, by plans: whole layers in RAM, or experts alone.

From 32 tokens on a card copies host weights, so that it multiplies a batch itself: llama.cpp's op offload.
A batch of n tokens copies every matrix of the host once; of a tensor of experts, those that some token of it uses.
If each token draws `used` of `all` experts at random, that is the share 1 - (1 - used / all)^n of them.

    copied bytes = sum over the host's matrices of share * bytes
    seconds of a batch >= copied bytes / rate of the bus

Sources: ggml-cuda.cu:5651 (from 32 tokens on), ggml-backend.cpp:1711 (experts in use); the RPC backend copies nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.machine import HOST_DEVICE
from inferlab.model.gguf import Model
from inferlab.prediction.decode_bound import decode_bytes
from inferlab.prediction.fit import Fit
from inferlab.prediction.link_rates import Rung
from inferlab.prediction.memory import MemoryPlan
from inferlab.prediction.predict import predict_memory
from inferlab.prediction.speed import STREAMS_FROM, drawn_on_host, placed_matrices
from inferlab.settings import Settings
from inferlab.units import GB, MIB
from studies.experts.sizing import CARD


def freed_bytes(model: Model, settings: Settings, **changes: int) -> int:
    """Bytes of weights that leave the first device of `settings` when these settings change, by plans."""
    whole, less = (
        predict_memory(model, asked, simulate=False).devices[CARD].weights_bytes
        for asked in (settings, settings.but(**changes))
    )
    return whole - less


def same_bytes(model: Model, settings: Settings, n_cpu_moe: int) -> tuple[Settings, Settings]:
    """Two settings that free about the same bytes of a device: whole layers on the host, and experts of layers there.

    Of all numbers of layers, the one whose bytes are nearest to those of the experts of `n_cpu_moe` layers.
    Raises InvalidSettings for a model without experts.
    """
    experts = settings.but(n_gpu_layers=-1, n_cpu_moe=n_cpu_moe)
    experts.require_model(model)
    wanted = freed_bytes(model, settings, n_gpu_layers=-1, n_cpu_moe=n_cpu_moe)
    layers = range(1, model.n_layer + 1)
    nearest = min(layers, key=lambda n: abs(freed_bytes(model, settings, n_gpu_layers=n) - wanted))
    return settings.but(n_gpu_layers=nearest), experts


def copied_bytes(plan: MemoryPlan, model: Model, n_tokens: int) -> float:
    """Bytes of host weights that a card copies for one ubatch; 0 for fewer than 32 tokens, or without op offload."""
    if n_tokens < STREAMS_FROM or not plan.settings.op_offload:
        return 0.0
    return drawn_on_host(placed_matrices(model, plan.layer_devices, plan.moved), model, n_tokens)


def most_prompt_rate(plan: MemoryPlan, model: Model, bus_bytes_per_second: float) -> float | None:
    """Tokens per second of a long prompt that the bus allows, one ubatch after another; None where nothing is copied.

    n_ubatch / (copied bytes / rate of the bus); arithmetic only adds time.
    """
    n_tokens = plan.settings.n_ubatch
    copied = copied_bytes(plan, model, n_tokens)
    return n_tokens * bus_bytes_per_second / copied if copied else None


# --- in words -----------------------------------------------------------------------------------


def copies_text(plans: Sequence[MemoryPlan], model: Model, n_tokens: Sequence[int]) -> str:
    """For ubatches of so many tokens, what a CUDA card would copy with whole layers and with experts on the host."""
    rows = ((n, *(copied_bytes(plan, model, n) / MIB for plan in plans)) for n in n_tokens)
    return "\n".join(
        f"{n:4} tokens: {layers:4.0f} MiB with whole layers, {experts:4.0f} MiB with experts alone"
        for n, layers, experts in rows
    )


def card_text(fitting: Fit, model: Model, bus: Rung) -> str:
    """What a token reads from RAM and what the bus allows a prompt, for both ways in which a mixture fits a card."""
    lines, read = [f"{bus.name}: {bus.bytes_per_second / GB:.3g} GB/s"], {}
    for name, answer in {"whole layers": fitting.most_layers, "experts alone": fitting.expert_layers}.items():
        if not answer.plan:
            lines.append(f"{name}: {answer.reason}")
            continue
        read[name] = decode_bytes(answer.plan, model, 0, frozenset({HOST_DEVICE})) / GB
        n_ubatch = answer.plan.settings.n_ubatch
        copied = f"a ubatch of {n_ubatch} copies {copied_bytes(answer.plan, model, n_ubatch) / GB:.3g} GB"
        rate = most_prompt_rate(answer.plan, model, bus.bytes_per_second)
        lines.append(f"{name}: a token reads {read[name]:.3g} GB from RAM; {copied}")
        lines.append(f"  the bus allows {rate:,.0f} prompt tokens/s" if rate else "  nothing is copied")
    if len(set(read.values())) == 2:
        lines.append(f"For a generated token, less is read from RAM with {min(read, key=read.get)}.")
    return "\n".join(lines)
