"""Attention in PyTorch, with and without the matrix of scores.

Pages without PyTorch show recorded timings; `measurement.pytorch.missing` says why it cannot be used.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import Any

from inferlab.engine.session import this_machine
from inferlab.machine import Machine
from inferlab.measurement.pytorch import peak_growth, required
from inferlab.shown import Shown

BACKENDS = {"flash": "FLASH_ATTENTION", "math": "MATH"}  # names in torch.nn.attention.SDPBackend


@dataclass(frozen=True)
class Timing:
    """Causal attention over `n_tokens` with one backend: seconds of each pass, and the process's peak growth.

    way          "flash" or "math", a key of BACKENDS
    extra_bytes  peak resident bytes less those before; None if the system does not report them
    """

    way: str
    n_tokens: int
    seconds: tuple[float, ...]
    extra_bytes: int | None

    @property
    def median_seconds(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True)
class Timings(Shown):
    """Timings on one machine with one version of PyTorch, and the shape of the tensors."""

    machine: Machine
    date: str
    torch: str
    n_head: int
    head_dim: int
    timings: tuple[Timing, ...]

    @property
    def badge(self) -> str:
        shape = f"{self.n_head} heads of {self.head_dim}"
        return f"measured: {self.machine.cpu}, {self.date}, PyTorch {self.torch}, {shape}"

    def of(self, way: str) -> dict[int, Timing]:
        """The timings of one backend, by number of tokens."""
        return {timing.n_tokens: timing for timing in self.timings if timing.way == way}


def time_attention(
    n_tokens: Sequence[int] = (512, 1024, 2048), n_head: int = 32, head_dim: int = 128, repeats: int = 5
) -> Timings:
    """Time scaled_dot_product_attention on the CPU, with its flash kernel and with plain matrix products.

    Both use the same random tensors of 32-bit floats; a warm-up pass is not counted. Raises PyTorchUnavailable.
    """
    torch = required()
    timings = tuple(_timed(torch, way, n, n_head, head_dim, repeats) for n in n_tokens for way in BACKENDS)
    return Timings(this_machine(), date.today().isoformat(), torch.__version__, n_head, head_dim, timings)


def _timed(torch: Any, way: str, n_tokens: int, n_head: int, head_dim: int, repeats: int) -> Timing:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(1, n_head, n_tokens, head_dim, generator=generator) for _ in range(3))
    gc.collect()
    with torch.no_grad(), sdpa_kernel(getattr(SDPBackend, BACKENDS[way])), peak_growth() as extra:
        seconds = [_attention_seconds(torch, q, k, v) for _ in range(repeats + 1)]
    return Timing(way, n_tokens, tuple(seconds[1:]), extra[0])


def _attention_seconds(torch: Any, q: Any, k: Any, v: Any) -> float:
    began = time.perf_counter()
    torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    return time.perf_counter() - began
