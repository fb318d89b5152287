"""Trials of the operating system and of the build in pairs, and how long a waiting OpenMP thread spins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median, median_high

from inferlab.engine import openmp
from inferlab.measurement.base import Measurement
from inferlab.measurement.paired import Paired
from inferlab.model.synthetic_model import shape
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.link_rates import cited_rungs
from inferlab.records import load
from inferlab.statistics import FASTER, Comparison

PHASES = ("prefill", "decode")
BUILDS = ("build-native", "build-avx2", "build-baseline")
IDLE = ("control-idle", "control-idle-again", "pin-idle", "passive-idle", "fewer-idle")
BUSY = (
    "control-busy",
    "pin-busy",
    "passive-busy",
    "nice-neighbor",
    "group-nice-neighbor",
    "fewer-busy",
    "isolated-busy",
)
"""Trials without and with a busy neighbor, by the names of their records."""
CONTROLS = ("build-native", "control-idle", "control-idle-again")
COMPARED = {
    "no change, prefill": ("control-idle-again", "prefill"),
    "no change, decode, another time": ("control-idle", "decode"),
    "AVX2 build → native build, prefill": ("build-avx2", "prefill"),
}
"""What the page *Contributing* compares -> its trial and phase: a control, one that failed, and a change."""
PLACES = ("idle", "busy", "two", "worker")
"""Parts of keys for the situations of `Waiting`, in their order."""
BOUNDED = int(openmp.BOUNDED)
"""Our workers' value of GOMP_SPINCOUNT."""


@dataclass(frozen=True)
class Case:
    """The passes of one value in one situation; None for a pass that had no result within the limit.

    spin                         value of GOMP_SPINCOUNT; None for libgomp's own, 300,000 on this kind of processor
    prefill_rates, decode_rates  tokens per second of each round; rounds of all values in a situation correspond
    """

    situation: str
    spin: int | None
    prefill_rates: tuple[float | None, ...]
    decode_rates: tuple[float | None, ...]

    @property
    def label(self) -> str:
        """The value of GOMP_SPINCOUNT in words."""
        return "default" if self.spin is None else f"{self.spin:,}"

    @property
    def rates(self) -> tuple[float, ...]:
        """Tokens per second of decode in each round, 0 where there was no result: a value that stalls is not fast."""
        return tuple(rate or 0.0 for rate in self.decode_rates)

    @property
    def rate(self) -> float:
        """The median of `rates`."""
        return median(self.rates)


@dataclass(frozen=True, kw_only=True)
class Waiting(Measurement):
    """One model in every situation, with every value of GOMP_SPINCOUNT.

    limit_seconds  after which a pass counts as one without a result
    """

    n_prompt: int
    n_gen: int
    limit_seconds: float
    cases: tuple[Case, ...]

    @property
    def situations(self) -> tuple[str, ...]:
        """The situations in their order."""
        return tuple(dict.fromkeys(case.situation for case in self.cases))

    def case(self, situation: str, spin: int | None) -> Case:
        """The passes of one value in one situation."""
        return next(case for case in self.cases if (case.situation, case.spin) == (situation, spin))

    def compared(self, situation: str, spin: int | None, base: int | None) -> Comparison:
        """Decode rate over that of `base`, round by round; rounds in which `base` had no result are left out."""
        pairs = zip(self.case(situation, spin).rates, self.case(situation, base).rates, strict=True)
        return Comparison(tuple(rate / other for rate, other in pairs if other))

    def ratio_text(self, situation: str, spin: int | None, base: int | None) -> str:
        """The text of `compared`; "-" where it has no interval."""
        compared = self.compared(situation, spin, base)
        return compared.text if compared.interval else "-"


@cache
def recorded(name: str) -> Paired:
    """The recorded pairs of a trial."""
    return load(f"epyc-2c/os-{name}", Paired)


@cache
def waiting_threads() -> dict[str, Waiting]:
    """How long threads spin: `tiny`, the embedded model, and `shape`, a model larger than the processor's caches."""
    return {key: load(f"epyc-2c/waiting-{key}", Waiting) for key in ("tiny", "shape")}


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *CPU alone*, without those about repacking."""
    return {**trial_numbers(), **neighbor_numbers(), **build_numbers(), **spin_numbers(), **bound_numbers()}


def trial_numbers() -> dict[str, float | str]:
    """Rate after over rate before of every trial, alone and with interval and verdict."""
    numbers: dict[str, float | str] = {}
    for name in (*BUILDS, *IDLE, *BUSY):
        for phase in PHASES:
            key, compared = f"{name.replace('-', '_')}_{phase}", recorded(name).compared(phase)
            numbers |= {key: compared.ratio, f"{key}_text": compared.text}
    for name in BUSY:
        before, after = (recorded(name).rate("decode", side) for side in ("before", "after"))
        numbers[f"{name.replace('-', '_')}_rates"] = f"{before:.3g} → {after:.3g} tokens/s"
    return numbers


def neighbor_numbers() -> dict[str, float | int]:
    """Tokens per second and milliseconds of a token idle and beside a busy program, and what was measured of it.

    floor  the largest distance of a control from 1, in percent
    """
    quiet, disturbed = recorded("control-idle"), recorded("control-busy")
    at_rest = [abs(recorded(name).compared(phase).ratio - 1) for name in CONTROLS for phase in PHASES]
    numbers: dict[str, float | int] = {
        "model_mb": quiet.before[0].model.tensor_bytes / 1e6,
        "pairs": len(quiet.rates("decode")),
        "busy_pairs": min(len(recorded(name).rates("decode")) for name in BUSY),
        "floor": 100 * max(at_rest),
    }
    for key, control in (("idle", quiet), ("busy", disturbed)):
        for phase in PHASES:
            rate = median_high(control.rates(phase) + control.rates(phase, "after"))
            numbers |= {f"{key}_{phase}": rate, f"{key}_{phase}_ms": 1e3 / rate}
    return numbers


def build_numbers() -> dict[str, float | str]:
    """Tokens per second of the narrowest build and of the native one, and what of the machine the trials say."""
    avx2, sse = recorded("build-avx2"), recorded("build-baseline")
    gained = avx2.compared("decode").verdict == FASTER
    fixed = avx2.cpu.threads_per_core == 1 and not avx2.cpu.governors
    return {
        **{f"sse_{phase}": sse.rate(phase) for phase in PHASES},
        **{f"native_{phase}": sse.rate(phase, "after") for phase in PHASES},
        "decode_said": "Decode gained from the wider instructions too"
        if gained
        else "No gain of decode from the wider instructions was found",
        "autogroup": {True: "on", False: "off", None: "unknown"}[avx2.cpu.autogroup],
        "recorded_cannot": "Neither can be changed on the recorded machine, so no record shows their effect"
        if fixed
        else "At least one of them can be changed on the recorded machine",
    }


def spin_numbers() -> dict[str, float | int | str]:
    """Decode in tokens per second by value of GOMP_SPINCOUNT, and our workers' value against libgomp's own."""
    values = {"bound": BOUNDED, "default": None, "long": 10_000}
    numbers: dict[str, float | int | str] = {"spin_default": int(openmp.DEFAULT)}
    for model, record in waiting_threads().items():
        for place, situation in zip(PLACES, record.situations, strict=True):
            key = f"spin_{model}_{place}"
            numbers[key] = record.ratio_text(situation, BOUNDED, None)
            numbers |= {f"{key}_{name}": record.case(situation, spin).rate for name, spin in values.items()}
    return numbers


def again_numbers() -> dict[str, float | str]:
    """Our workers' spin over libgomp's own for the embedded model: as recorded first, and as repeated."""
    records = {"first": waiting_threads()["tiny"], "again": load("epyc-2c/waiting-tiny-again", Waiting)}
    return {
        **{f"waiting_{key}": record.date for key, record in records.items()},
        **{
            f"{key}_{place}": record.ratio_text(situation, BOUNDED, None)
            for key, record in records.items()
            for place, situation in zip(PLACES, record.situations, strict=True)
        },
    }


def bound_numbers() -> dict[str, float]:
    """What two channels of DDR5-5600 allow: GB/s, and tokens per second of a dense model and of a mixture."""
    ram = next(rung for rung in cited_rungs() if rung.name == "DDR5-5600, two channels")
    models = {"dense_most": "llama-3.1-8b", "mixture_most": "qwen3-30b-a3b"}
    most = {key: ram.most_tokens_per_second(token_bytes(shape(name, "Q4_K_M"))) for key, name in models.items()}
    return {"ram_gb": ram.bytes_per_second / 1e9, **most}


def control_numbers() -> dict[str, float | int | str]:
    """The numbers about pairs of the page *Contributing*, in percent: a control, and one that failed."""
    control = recorded("control-idle-again").compared("prefill")
    failed = recorded("control-idle").compared("decode")
    return {
        "n_pairs": len(control.ratios),
        "control_off": 100 * abs(control.ratio - 1),
        "worst": 100 * max(abs(ratio - 1) for ratio in control.ratios),
        "failed_off": 100 * abs(failed.ratio - 1),
        "failed_verdict": failed.verdict,
    }


def control_table() -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Heads and rows: ratio, interval, single pairs and verdict of the two controls and of a change."""
    rows = []
    for shown, (name, phase) in COMPARED.items():
        pairs = recorded(name).compared(phase)
        interval, single = "{:.3f} to {:.3f}".format(*pairs.ends), f"{min(pairs.ratios):.2f} to {max(pairs.ratios):.2f}"
        rows.append((shown, f"{pairs.ratio:.3f}", interval, single, pairs.verdict))
    return ("compared", "median ratio", "95 % interval", "single pairs", "verdict"), rows
