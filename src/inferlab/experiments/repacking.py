"""Rates of one shape with its weights repacked for the processor's kernels and in the file's own layout.

The two cases of a type are measured one after the other, several times, in alternating order, so that a slow minute of
the machine meets both. Types that llama.cpp does not repack run the same kernels in both cases: they are the control.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from inferlab.engine.protocol import Engine
from inferlab.measurement.run import Run, measure
from inferlab.model.synthetic_model import make_shape, parse_file_name
from inferlab.settings import Settings

TYPES = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q2_K")
ROUNDS = 5


@dataclass(frozen=True)
class Pairs:
    """One type's runs in pairs: `default` with repacking allowed, `without` in the file's own layout."""

    mix: str
    default: tuple[Run, ...]
    without: tuple[Run, ...]

    def ratios(self, phase: str) -> tuple[float, ...]:
        """Rate by default over the rate without repacking, for each pair; `phase` is "prefill" or "decode"."""
        rate = f"{phase}_tokens_per_second"
        return tuple(getattr(a, rate) / getattr(b, rate) for a, b in zip(self.default, self.without, strict=True))

    def ratio(self, phase: str) -> float:
        """The median of `ratios`: above 1 repacking is faster."""
        return median(self.ratios(phase))

    def verdict(self, phase: str) -> str:
        """"faster" or "slower" by default if all pairs agree, else "no difference found"."""
        found = self.ratios(phase)
        return "faster" if min(found) > 1 else "slower" if max(found) < 1 else "no difference found"

    @property
    def repacked(self) -> bool:
        """Whether llama.cpp repacked any of its matrices."""
        return any(buffer.device == "CPU_REPACK" for buffer in self.default[0].buffers)


def measure_repacking(
    shape: str = "llama-3.2-1b",
    types: Sequence[str] = TYPES,
    settings: Settings | None = None,
    n_prompt: int = 128,
    n_gen: int = 16,
    repeats: int = 2,
    rounds: int = ROUNDS,
    engine: Engine | None = None,
    **dimensions: int,
) -> tuple[Run, ...]:
    """Runs of a shape on the host in each type, `rounds` times with `use_extra_bufts` and without; warm-ups left out."""
    settings, runs = settings or Settings(devices=(), flash_attn="on"), []
    for mix in types:
        path = make_shape(shape, mix, progress=False, **dimensions)
        for number in range(rounds):
            for repack in (True, False) if number % 2 == 0 else (False, True):
                asked = settings.but(use_extra_bufts=repack)
                run = measure(path, asked, n_prompt, n_gen, repeats, engine=engine, progress=False)
                runs.append(replace(run, warmups=()))
    return tuple(runs)


def pairs(runs: Sequence[Run]) -> dict[str, Pairs]:
    """The runs by type, in their order: the first run with repacking belongs to the first one without."""
    mixes = dict.fromkeys(mix_of(run) for run in runs)
    return {mix: Pairs(mix, *(_runs_of(runs, mix, repack) for repack in (True, False))) for mix in mixes}


def mix_of(run: Run) -> str:
    """The mix in the name of a shape's file, Q4_K_M; else the name of the file."""
    parts = parse_file_name(run.model.file)
    return parts[1] if parts else run.model.file


def _runs_of(runs: Sequence[Run], mix: str, repack: bool) -> tuple[Run, ...]:
    return tuple(run for run in runs if mix_of(run) == mix and run.settings.use_extra_bufts == repack)
