"""Rates of one model in several quantizations, in turns: every turn times each file once, so a slow minute meets all.

Rates are compared turn by turn with those of another quantization, and every rate names its kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median

from inferlab.engine.protocol import Engine
from inferlab.machine import Machine
from inferlab.measurement.paired import ratio_text
from inferlab.measurement.run import Run, measure
from inferlab.model.gguf import ModelCard
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.statistics import median_interval

N_TURNS = 15
PHASES = ("prefill", "decode")
HOST = Settings(devices=(), flash_attn="on")


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

    model  the file of the first of them
    """

    model: ModelCard
    machine: Machine
    date: str
    n_prompt: int
    n_gen: int
    rates: tuple[TypeRate, ...]

    @property
    def badge(self) -> str:
        machine = self.machine.badge(self.date, self.model.synthetic)
        return f"{machine}; {self.model.name}, {self.n_prompt} + {self.n_gen} tokens"

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(one.type for one in self.rates)

    @property
    def bits_per_weight(self) -> dict[str, float]:
        """Bits per weight of every file, by its type."""
        return {one.type: 8 * one.tensor_bytes / self.model.n_params for one in self.rates}

    def of(self, type: str) -> TypeRate:
        return next(one for one in self.rates if one.type == type)

    def rate(self, type: str, phase: str) -> float:
        """Median tokens per second in "prefill" or "decode"."""
        return 1 / median(self.of(type).seconds(phase))

    def ratios(self, type: str, base: str, phase: str) -> tuple[float, ...]:
        """Rate of `type` over the rate of `base`, turn by turn."""
        pairs = zip(self.of(type).seconds(phase), self.of(base).seconds(phase), strict=True)
        return tuple(theirs / own for own, theirs in pairs)

    def ratio(self, type: str, base: str, phase: str) -> float:
        """The median of `ratios`: above 1 `type` is faster."""
        return median(self.ratios(type, base, phase))

    def interval(self, type: str, base: str, phase: str) -> tuple[float, float]:
        """The 95 % interval of `ratio`; None for fewer than six turns."""
        return median_interval(self.ratios(type, base, phase))

    def text(self, type: str, base: str, phase: str) -> str:
        """`1.02 (0.99 to 1.05), no difference found`."""
        return ratio_text(self.ratio(type, base, phase), self.interval(type, base, phase))


def rates_in_turns(
    files: Mapping[str, str | Path],
    n_prompt: int = 128,
    n_gen: int = 32,
    n_turns: int = N_TURNS,
    settings: Settings = HOST,
    engine: Engine | None = None,
) -> TypeRates:
    """Time every file once a turn, one pass after a warm-up, on the processor; `files` has them by quantization."""
    runs: dict[str, list[Run]] = {type: [] for type in files}
    for number in range(n_turns):
        order = list(files) if number % 2 == 0 else list(files)[::-1]
        for type in order:
            runs[type].append(measure(files[type], settings, n_prompt, n_gen, repeats=1, engine=engine, progress=False))
    first = next(iter(runs.values()))[0]
    return TypeRates(
        model=first.model, machine=first.machine, date=date.today().isoformat(), n_prompt=n_prompt,
        n_gen=n_gen, rates=tuple(_type_rate(type, own) for type, own in runs.items()),
    )  # fmt: skip


def _type_rate(type: str, runs: Sequence[Run]) -> TypeRate:
    first = runs[0]
    seconds = (tuple(1 / getattr(run, f"{phase}_tokens_per_second") for run in runs) for phase in PHASES)
    shares = (first.kernel_shares(n) for n in (first.n_prompt, 1))
    return TypeRate(type, first.model.tensor_bytes, *seconds, *shares)
