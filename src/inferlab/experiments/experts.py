"""Two ways to free a device's memory for a mixture of experts, compared in pairs: whole layers, or experts alone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.errors import InvalidSettings
from inferlab.experiments.paired import N_PAIRS, Paired, measure_surroundings
from inferlab.experiments.surroundings import Surrounding
from inferlab.model.gguf import Model, read_gguf
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings

DEVICE = "gpu0"


def freed_bytes(model: Model, settings: Settings, **changes: int) -> int:
    """Bytes of weights that leave the first device of `settings` when these settings change, by plans."""
    whole, less = (
        predict_memory(model, asked, simulate=False).devices[DEVICE].weights_bytes
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


def layers_or_experts(
    path: str | Path,
    n_cpu_moe: int,
    n_threads: int,
    n_pairs: int = N_PAIRS,
    n_prompt: int = 256,
    n_gen: int = 33,
    control: bool = False,
) -> Paired:
    """Rates with whole layers on the host ("before") and with experts of about the same bytes there ("after").

    control  whole layers on both sides, which shows what two engines and two devices differ by
    Each side has its own loopback device, which computes with n_threads and keeps its weights loaded; the host computes
    with one thread. Both sides use the weights as they are in the file, so that their kernels are the same.
    Raises InvalidSettings for a model without experts, or fewer than ten pairs.
    """
    model, plain = read_gguf(path), Settings(n_ctx=n_prompt + n_gen, flash_attn="on", use_extra_bufts=False)
    if n_threads < 1:
        raise InvalidSettings(f"n_threads={n_threads}: the device needs at least one thread.")
    with loopback_device(n_threads=n_threads) as one, loopback_device(n_threads=n_threads) as other:
        before, _ = same_bytes(model, one.settings(plain), n_cpu_moe)
        after = same_bytes(model, other.settings(plain), n_cpu_moe)[0 if control else 1]
        with closing(LlamaEngine()) as first, closing(LlamaEngine()) as second:
            nowhere = Surrounding(), Surrounding()
            return measure_surroundings(path, (before, after), nowhere, (first, second), n_pairs, n_prompt, n_gen)
