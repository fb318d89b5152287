"""Rates of one shape with its weights repacked for the processor's kernels and in the file's own layout.

The two cases of a type are measured one after the other, several times, in alternating order, so that a slow minute of
the machine meets both. Types that llama.cpp does not repack run the same kernels in both cases: they are the control.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median

from inferlab.engine.protocol import Engine
from inferlab.measurement.run import Run, measure
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.statistics import FASTER, SLOWER, UNDECIDED, median_interval, verdict
from inferlab.units import count_text

TYPES = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q2_K")
REPACK_BUFFER = "CPU_REPACK"
ROUNDS = 12


@dataclass(frozen=True)
class Pairs(Shown):
    """One type's runs in pairs: those by `default`, which may repack, and those `without`, in the file's own layout."""

    mix: str
    default: tuple[Run, ...]
    without: tuple[Run, ...]

    @property
    def summary(self) -> tuple[str, list[tuple[str, str]]]:
        """Ratio and verdict of both phases."""
        title = f"{self.mix}, rate with repacking / without in {count_text(len(self.default), 'pair')}"
        return title, [(phase, f"{self.ratio(phase):.3g}, {self.verdict(phase)}") for phase in ("prefill", "decode")]

    def ratios(self, phase: str) -> tuple[float, ...]:
        """Rate by default over the rate without repacking, for each pair; `phase` is "prefill" or "decode"."""
        rate = f"{phase}_tokens_per_second"
        return tuple(getattr(a, rate) / getattr(b, rate) for a, b in zip(self.default, self.without, strict=True))

    def ratio(self, phase: str) -> float:
        """The median of `ratios`: above 1 repacking is faster."""
        return median(self.ratios(phase))

    def verdict(self, phase: str) -> str:
        """Whether the default is "faster" or "slower", or "no difference found", by `statistics.verdict`."""
        return verdict(median_interval(self.ratios(phase)))

    def rate(self, phase: str, case: str = "default") -> float:
        """Median tokens per second of the runs of one case, "default" or "without"."""
        return median(getattr(run, f"{phase}_tokens_per_second") for run in getattr(self, case))

    @property
    def copied_bytes(self) -> int:
        """Bytes of the repacked matrices, which are copies beside a mapped file."""
        return sum(b.n_bytes for b in self.default[0].buffers if b.device == REPACK_BUFFER)

    @property
    def seconds_without(self) -> tuple[float, float]:
        """Seconds that --no-repack saves with each prompt token, and that it costs with each generated one."""
        saved = 1 / self.rate("prefill") - 1 / self.rate("prefill", "without")
        return saved, 1 / self.rate("decode", "without") - 1 / self.rate("decode")

    @property
    def repacked(self) -> bool:
        """Whether llama.cpp repacked any of its matrices."""
        return bool(self.copied_bytes)


def measure_repacking(
    shape: str = "llama-3.2-1b",
    mix: str = "Q4_K_M",
    settings: Settings | None = None,
    n_prompt: int = 128,
    n_gen: int = 32,
    rounds: int = ROUNDS,
    engine: Engine | None = None,
    **dimensions: int,
) -> Pairs:
    """A shape's rates on the host with `use_extra_bufts` and without, one pass after a warm-up, in `rounds` pairs.

    Passes of the warm-up are left out of the runs.
    """
    settings, runs = settings or Settings(devices=(), flash_attn="on"), {True: [], False: []}
    path = make_shape(shape, mix, progress=False, **dimensions)
    for number in range(rounds):
        for repack in (True, False) if number % 2 == 0 else (False, True):
            asked = settings.but(use_extra_bufts=repack)
            run = measure(path, asked, n_prompt, n_gen, repeats=1, engine=engine, progress=False)
            runs[repack].append(replace(run, warmups=()))
    return Pairs(mix, tuple(runs[True]), tuple(runs[False]))


def verdicts_text(pairs: Mapping[str, Pairs], phase: str) -> str:
    """`faster for Q4_0 and Q2_K, slower for Q4_K_M`: what repacking does to each type in one phase."""
    found: dict[str, list[str]] = {}
    for mix, pair in pairs.items():
        found.setdefault(pair.verdict(phase), []).append(mix)
    texts = {FASTER: "faster for {}", SLOWER: "slower for {}", UNDECIDED: "neither faster nor slower for {}"}
    return ", ".join(text.format(" and ".join(found[word])) for word, text in texts.items() if word in found)


def advice(pair: Pairs) -> str:
    """Whether to repack one type, as a clause.

    Where each case wins one phase, prompt tokens for each generated token decide:

        seconds that --no-repack costs with a generated token / seconds that it saves with a prompt token
    """
    saved, cost = pair.seconds_without
    if saved * cost > 0:
        better = "without" if saved > 0 else "with"
        break_even = f"more than {cost / saved:.1f} prompt tokens for each generated token"
        return f"{pair.mix} is faster {better} repacking in requests with {break_even}"
    return f"{pair.mix} is faster {'without' if saved > cost else 'with'} repacking, whatever the request"
