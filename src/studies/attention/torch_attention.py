"""Recorded timings of attention in PyTorch, with and without the matrix of scores."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from inferlab.machine import Machine
from inferlab.shown import Shown


@dataclass(frozen=True)
class Timing:
    """Causal attention over `n_tokens` with one backend: seconds of each pass, and the process's peak growth.

    way          "flash" or "math"
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
