"""Decode behind a filled cache and prefill, with each choice of flash attention and cache types in turn; PyTorch."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

from inferlab.engine.session import this_machine
from inferlab.measurement.depth import DepthScaling, decode_in_turns
from inferlab.measurement.pytorch import peak_growth, required
from inferlab.measurement.run import measure_in_turns
from inferlab.measurement.sweep import Sweep, from_runs
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.attention.study import CHOICES, DEPTH, N_PROMPT, N_ROUND, Timing, Timings
from studies.recipes import Recipe

BACKENDS = {"flash": "FLASH_ATTENTION", "math": "MATH"}  # names in torch.nn.attention.SDPBackend
N_HEAD, HEAD_DIM = 32, 128
TWO_LAYERS: dict[str, Any] = {"n_layer": 2, "n_vocab": 8192}


def depths(shape: str) -> tuple[DepthScaling, ...]:
    """Tokens behind few and many cells, with engines that take turns."""
    choices = [Settings(**choice) for choice in CHOICES.values()]
    path = make_shape(shape, "Q4_K_M", **TWO_LAYERS)
    return decode_in_turns(path, choices, cells=(512, DEPTH), n_gen=N_ROUND, rounds=10)


def prompts(shape: str, rounds: int) -> Sweep:
    """A short and a long prompt, with choices that take turns."""
    path = make_shape(shape, "Q4_K_M", **TWO_LAYERS)
    choices = [Settings(n_ctx=2304, **choice) for choice in CHOICES.values()]
    return from_runs([run for n in (128, N_PROMPT) for run in measure_in_turns(path, choices, n, 17, rounds)])


def pytorch_attention() -> Timings:
    """Causal attention by PyTorch's flash kernel and by plain matrix products, after a pass that warms up.

    Both use the same random tensors of 32-bit floats. Raises PyTorchUnavailable.
    """
    torch = required()
    timings = tuple(_timed(torch, way, n) for n in (512, 1024, 2048, 4096) for way in BACKENDS)
    return Timings(this_machine(), date.today().isoformat(), torch.__version__, N_HEAD, HEAD_DIM, timings)


def _timed(torch: Any, way: str, n_tokens: int) -> Timing:
    attention, generator = torch.nn.attention, torch.Generator().manual_seed(1)
    tensors = [torch.randn(1, N_HEAD, n_tokens, HEAD_DIM, generator=generator) for _ in range(3)]
    gc.collect()
    backend = getattr(attention.SDPBackend, BACKENDS[way])
    with torch.no_grad(), attention.sdpa_kernel(backend), peak_growth() as extra:
        seconds = [_attention_seconds(torch, tensors) for _ in range(6)]
    return Timing(way, n_tokens, tuple(seconds[1:]), extra[0])


def _attention_seconds(torch: Any, tensors: Sequence[Any]) -> float:
    began = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
    return time.perf_counter() - began


RECIPES: Mapping[str, Recipe] = {
    "depth-128": partial(depths, "llama-3.1-8b"),
    "depth-64": partial(depths, "llama-3.2-1b"),
    "attention-128": partial(prompts, "llama-3.1-8b", rounds=4),
    "attention-64": partial(prompts, "llama-3.2-1b", rounds=3),
    "pytorch-attention": partial(pytorch_attention),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
