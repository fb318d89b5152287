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
from studies.attention.study import CHOICES, Timing, Timings
from studies.recipes import Recipe

BACKENDS = {"flash": "FLASH_ATTENTION", "math": "MATH"}  # names in torch.nn.attention.SDPBackend
TWO_LAYERS = {"n_layer": 2, "n_vocab": 8192}


def depths(shape: str, cells: Sequence[int], n_gen: int, rounds: int) -> tuple[DepthScaling, ...]:
    """Tokens behind so many cells, with engines that take turns."""
    choices = [Settings(**choice) for choice in CHOICES.values()]
    return decode_in_turns(make_shape(shape, "Q4_K_M", **TWO_LAYERS), choices, cells, n_gen, rounds)


def prompts(shape: str, lengths: Sequence[int], n_gen: int, rounds: int) -> Sweep:
    """Prompts of each length, with choices that take turns."""
    path, choices = make_shape(shape, "Q4_K_M", **TWO_LAYERS), [Settings(n_ctx=2304, **one) for one in CHOICES.values()]
    return from_runs([run for n in lengths for run in measure_in_turns(path, choices, n, n_gen, rounds)])


def pytorch_attention(n_tokens: Sequence[int], n_head: int, head_dim: int, repeats: int) -> Timings:
    """Causal attention by PyTorch's flash kernel and by plain matrix products, after a pass that warms up.

    Both use the same random tensors of 32-bit floats. Raises PyTorchUnavailable.
    """
    torch = required()
    timings = tuple(_timed(torch, way, n, n_head, head_dim, repeats) for n in n_tokens for way in BACKENDS)
    return Timings(this_machine(), date.today().isoformat(), torch.__version__, n_head, head_dim, timings)


def _timed(torch: Any, way: str, n_tokens: int, n_head: int, head_dim: int, repeats: int) -> Timing:
    attention, generator = torch.nn.attention, torch.Generator().manual_seed(1)
    tensors = [torch.randn(1, n_head, n_tokens, head_dim, generator=generator) for _ in range(3)]
    gc.collect()
    backend = getattr(attention.SDPBackend, BACKENDS[way])
    with torch.no_grad(), attention.sdpa_kernel(backend), peak_growth() as extra:
        seconds = [_attention_seconds(torch, tensors) for _ in range(repeats + 1)]
    return Timing(way, n_tokens, tuple(seconds[1:]), extra[0])


def _attention_seconds(torch: Any, tensors: Sequence[Any]) -> float:
    began = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(*tensors, is_causal=True)
    return time.perf_counter() - began


RECIPES: Mapping[str, Recipe] = {
    "depth-128": partial(depths, "llama-3.1-8b", cells=(512, 4096), n_gen=8, rounds=10),
    "depth-64": partial(depths, "llama-3.2-1b", cells=(512, 4096), n_gen=8, rounds=10),
    "attention-128": partial(prompts, "llama-3.1-8b", lengths=(128, 2048), n_gen=17, rounds=4),
    "attention-64": partial(prompts, "llama-3.2-1b", lengths=(128, 2048), n_gen=17, rounds=3),
    "pytorch-attention": partial(
        pytorch_attention, n_tokens=(512, 1024, 2048, 4096), n_head=32, head_dim=128, repeats=5
    ),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
