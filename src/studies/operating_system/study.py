"""Trials of the operating system and of the build in pairs, and how long a waiting OpenMP thread spins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median, median_high

from inferlab.engine import openmp
from inferlab.measurement.base import Measurement
from inferlab.measurement.paired import Paired, ratio_text
from inferlab.model.synthetic_model import shape
from inferlab.prediction.decode_bound import token_bytes
from inferlab.prediction.link_rates import cited_rungs
from inferlab.records import load
from inferlab.statistics import FASTER, median_interval

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

    def ratios(self, situation: str, spin: int | None, base: int | None) -> tuple[float, ...]:
        """Decode rate over that of `base`, round by round; rounds in which `base` had no result are left out."""
        pairs = zip(self.case(situation, spin).rates, self.case(situation, base).rates, strict=True)
        return tuple(rate / other for rate, other in pairs if other)

    def ratio_text(self, situation: str, spin: int | None, base: int | None) -> str:
        """`paired.ratio_text` of `ratios`; "-" for fewer than have an interval."""
        ratios = self.ratios(situation, spin, base)
        interval = median_interval(ratios)
        return ratio_text(median(ratios), interval) if interval else "-"


def recorded(name: str) -> Paired:
    """The recorded pairs of a trial."""
    return load(f"epyc-2c/os-{name}", Paired)


def waiting_threads() -> dict[str, Waiting]:
    """How long threads spin: `tiny`, the embedded model, and `shape`, a model larger than the processor's caches."""
    return {key: load(f"epyc-2c/waiting-{key}", Waiting) for key in ("tiny", "shape")}


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *CPU alone*, without those about repacking."""
    return {**trial_numbers(), **neighbor_numbers(), **build_numbers(), **spin_numbers(), **bound_numbers()}


def trial_numbers() -> dict[str, float | str]:
    """Rate after over rate before of every trial, alone and with interval and verdict."""
    found = {name.replace("-", "_"): recorded(name) for name in (*BUILDS, *IDLE, *BUSY)}
    every = [(f"{key}_{phase}", phase, pairs) for key, pairs in found.items() for phase in PHASES]
    return {
        **{key: pairs.ratio(phase) for key, phase, pairs in every},
        **{f"{key}_text": pairs.text(phase) for key, phase, pairs in every},
    }


def neighbor_numbers() -> dict[str, float | int]:
    """Tokens per second and milliseconds of a token idle and beside a busy program, and what was measured of it.

    floor  the largest distance of a control from 1, in percent
    """
    quiet, disturbed = recorded("control-idle"), recorded("control-busy")
    at_rest = [abs(recorded(name).ratio(phase) - 1) for name in CONTROLS for phase in PHASES]
    sides = [
        (f"{key}_{phase}", _rate(pairs, phase))
        for key, pairs in (("idle", quiet), ("busy", disturbed))
        for phase in PHASES
    ]
    return {
        "model_mb": quiet.before[0].model.tensor_bytes / 1e6,
        "pairs": len(quiet.ratios("decode")),
        "busy_pairs": min(len(recorded(name).ratios("decode")) for name in BUSY),
        "floor": 100 * max(at_rest),
        **dict(sides),
        **{f"{key}_ms": 1e3 / rate for key, rate in sides},
    }


def _rate(control: Paired, phase: str) -> float:
    """The median over both sides of a control."""
    return median_high(control.rates(phase) + control.rates(phase, "after"))


def build_numbers() -> dict[str, float | str]:
    """Tokens per second of the narrowest build and of the native one, and what of the machine the trials say."""
    avx2, sse = recorded("build-avx2"), recorded("build-baseline")
    gained = avx2.verdict("decode") == FASTER
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
    bound = int(openmp.BOUNDED)
    values = {"bound": bound, "default": None, "long": 10_000}
    every = [
        (f"spin_{key}_{place}", found, situation)
        for key, found in waiting_threads().items()
        for place, situation in zip(PLACES, found.situations, strict=True)
    ]
    return {
        "spin_default": int(openmp.DEFAULT),
        **{key: found.ratio_text(situation, bound, None) for key, found, situation in every},
        **{
            f"{key}_{name}": found.case(situation, spin).rate
            for key, found, situation in every
            for name, spin in values.items()
        },
    }


def again_numbers() -> dict[str, float | str]:
    """Our workers' spin over libgomp's own for the embedded model: as recorded first, and as repeated."""
    before, again = waiting_threads()["tiny"], load("epyc-2c/waiting-tiny-again", Waiting)
    bound = int(openmp.BOUNDED)
    texts = {"first": before, "again": again}
    return {
        "waiting_first": before.date,
        "waiting_again": again.date,
        **{
            f"{key}_{place}": found.ratio_text(situation, bound, None)
            for key, found in texts.items()
            for place, situation in zip(PLACES, found.situations, strict=True)
        },
    }


def bound_numbers() -> dict[str, float]:
    """What two channels of DDR5-5600 allow: GB/s, and tokens per second of a dense model and of a mixture."""
    ram = next(rung for rung in cited_rungs() if rung.name == "DDR5-5600, two channels")
    models = {"dense": "llama-3.1-8b", "mixture": "qwen3-30b-a3b"}
    most = {key: ram.most_tokens_per_second(token_bytes(shape(name, "Q4_K_M"))) for key, name in models.items()}
    return {"ram_gb": ram.bytes_per_second / 1e9, **{f"{key}_most": rate for key, rate in most.items()}}


def control_numbers() -> dict[str, float | int | str]:
    """The numbers about pairs of the page *Contributing*, in percent: a control, and one that failed."""
    control, failed = recorded("control-idle-again"), recorded("control-idle")
    return {
        "n_pairs": len(control.ratios("prefill")),
        "control_off": 100 * abs(control.ratio("prefill") - 1),
        "worst": 100 * max(abs(ratio - 1) for ratio in control.ratios("prefill")),
        "failed_off": 100 * abs(failed.ratio("decode") - 1),
        "failed_verdict": failed.verdict("decode"),
    }


def control_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: ratio, interval, single pairs and verdict of the two controls and of a change."""
    heads = "compared", "median ratio", "95 % interval", "single pairs", "verdict"
    return heads, [_control_row(shown, recorded(name), phase) for shown, (name, phase) in COMPARED.items()]


def _control_row(shown: str, pairs: Paired, phase: str) -> Sequence[str]:
    ratios, interval = pairs.ratios(phase), pairs.interval(phase)
    return (
        shown,
        f"{pairs.ratio(phase):.3f}",
        "{:.3f} to {:.3f}".format(*interval),
        f"{min(ratios):.2f} to {max(ratios):.2f}",
        pairs.verdict(phase),
    )
