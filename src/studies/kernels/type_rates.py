"""Rates of one model in several quantizations, timed in turns, so that a slow minute of the machine meets all.

Rates are compared turn by turn with those of another quantization, and every rate names its kernel.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from inferlab.machine import Machine
from inferlab.model.gguf import ModelCard
from inferlab.shown import Shown
from inferlab.units import rate_text


@dataclass(frozen=True)
class TypeRate:
    """One quantization: its seconds in every turn, of engine time, and its kernels.

    prefill_seconds  of a prompt token; decode_seconds of a generated token
    kernels          kernel -> share of the bytes that it multiplied, in prefill and in decode
    """

    type: str
    tensor_bytes: int
    prefill_seconds: tuple[float, ...]
    decode_seconds: tuple[float, ...]
    prefill_kernels: dict[str, float]
    decode_kernels: dict[str, float]

    def kernel(self, phase: str) -> str:
        """The kernel that multiplies most of the bytes in "prefill" or "decode"."""
        shares = self.prefill_kernels if phase == "prefill" else self.decode_kernels
        return max(shares, key=shares.get)

    def seconds(self, phase: str) -> tuple[float, ...]:
        return self.prefill_seconds if phase == "prefill" else self.decode_seconds


@dataclass(frozen=True, kw_only=True)
class TypeRates(Shown):
    """Every quantization's times for n_prompt tokens of prompt and n_gen generated ones.

    model    the file of the first of them
    devices  the GPUs that had weights, in words; "" on the processor
    """

    model: ModelCard
    machine: Machine
    date: str
    n_prompt: int
    n_gen: int
    rates: tuple[TypeRate, ...]
    devices: str = ""

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """Tokens per second of each quantization in both phases, and what computed them."""
        rows = [
            (one.type, ", ".join(f"{phase} {rate_text(self.rate(one.type, phase))}" for phase in ("prefill", "decode")))
            for one in self.rates
        ]
        return f"{self.model.name} by type, on {self.devices or self.machine.cpu}", [*rows, ("badge", self.badge)]

    @property
    def badge(self) -> str:
        machine = self.machine.badge(self.date, self.model.synthetic, devices=self.devices or None)
        return f"{machine}; {self.model.name}, {self.n_prompt} + {self.n_gen} tokens"

    def type_rate(self, type: str) -> TypeRate:
        return next(rate for rate in self.rates if rate.type == type)

    def rate(self, type: str, phase: str) -> float:
        """Median tokens per second in "prefill" or "decode"."""
        return 1 / median(self.type_rate(type).seconds(phase))

    def ratio(self, type: str, base: str, phase: str) -> float:
        """Rate of `type` over the rate of `base`, the median over the turns: above 1 `type` is faster."""
        pairs = zip(self.type_rate(type).seconds(phase), self.type_rate(base).seconds(phase), strict=True)
        return median(theirs / own for own, theirs in pairs)
