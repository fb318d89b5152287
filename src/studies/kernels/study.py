"""Rates of one shape with its weights repacked for the processor's kernels and in the file's own layout.

Types that llama.cpp does not repack run the same kernels in both cases: they are the control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from inferlab.measurement.run import Run
from inferlab.model.kernels import REPACKED
from inferlab.records import load
from inferlab.shown import Shown
from inferlab.statistics import FASTER, SLOWER, UNDECIDED, Comparison, compared
from inferlab.units import MIB, count_text, number_text
from studies.kernels.type_rates import TypeRates

TYPES = ("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "Q2_K")
REPACK_BUFFER = "CPU_REPACK"
PHASES = ("prefill", "decode")
WITHOUT = ", --no-repack"
QWEN = "Qwen3 30B A3B, 4 layers"
EXPERTS = {
    "Granite 3.1 1B A400M": "experts-repack-granite",
    QWEN: "experts-repack-qwen3",
    "Llama 3.2 1B, dense": "experts-repack-dense",
    "Granite 3.1 1B A400M, Q4_0": "experts-repack-granite-q4_0",
}
"""Name of a model for readers -> its record."""


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
        return title, [(phase, f"{self.compared(phase).ratio:.3g}, {self.compared(phase).verdict}") for phase in PHASES]

    def compared(self, phase: str) -> Comparison:
        """Rate by default over the rate without repacking: above 1 repacking is faster."""
        return compared(self.rates(phase, "without"), self.rates(phase))

    def rates(self, phase: str, case: str = "default") -> list[float]:
        """Tokens per second of the runs of one case, "default" or "without"; `phase` is "prefill" or "decode"."""
        return [getattr(run, f"{phase}_tokens_per_second") for run in getattr(self, case)]

    def rate(self, phase: str, case: str = "default") -> float:
        """The median of `rates`."""
        return median(self.rates(phase, case))

    @property
    def copied_bytes(self) -> int:
        """Bytes of the repacked matrices, which are copies beside a mapped file."""
        return sum(b.n_bytes for b in self.default[0].buffers if b.device == REPACK_BUFFER)

    @property
    def seconds_without(self) -> tuple[float, float]:
        """Seconds that --no-repack saves with each prompt token, and that it costs with each generated one."""
        saved = 1 / self.rate("prefill") - 1 / self.rate("prefill", "without")
        return saved, 1 / self.rate("decode", "without") - 1 / self.rate("decode")


def without(type: str) -> str:
    """The name of a type whose file was run in its own layout."""
    return type + WITHOUT


@cache
def recorded() -> dict[str, Pairs]:
    """The pairs of each type, most bits first."""
    return {mix: load(f"epyc-2c/repacking-{mix}", Pairs) for mix in TYPES}


@cache
def real() -> TypeRates:
    """The rates of a trained model, SmolLM2 135M, in several types, three of them also with --no-repack."""
    return load("epyc-2c/type-rates-smollm2", TypeRates)


def repacking_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: rates with repacking and without, of the shape's types that are repacked, and of SmolLM2."""
    rates, known = real(), [rate.type for rate in real().rates]
    shapes = [
        ("shape", mix, *(_both(pair.rate(p), pair.rate(p, "without")) for p in PHASES))
        for mix, pair in recorded().items()
        if pair.copied_bytes
    ]
    trained = [
        (
            "SmolLM2",
            t,
            *(_both(*(rates.rate(name, p) for name in (t, without(t)) if name in known)) for p in PHASES),
        )
        for t in known
        if not t.endswith(WITHOUT)
    ]
    return ("model", "file", "prefill, on / off", "decode, on / off"), [*shapes, *trained]


def _both(*rates: float) -> str:
    """`1,599 / 912`, or one rate where a file has nothing to repack."""
    return " / ".join(map(number_text, rates))


def real_numbers() -> dict[str, float | int | str]:
    """The numbers about the trained model of the page *The CPU alone*; shares and changes in percent."""
    rates, own = real(), real().rates[0]
    mixed, q8 = rates.type_rate("Q4_K_M"), rates.type_rate("Q8_0")
    verdicts = {phase: _repacked_against_not(rates, "Q4_K_M", phase).verdict for phase in PHASES}
    return {
        "real_turns": len(own.prefill_seconds),
        "real_share": 100 * mixed.decode_kernels[REPACKED],
        "real_mixed": " and ".join(dict.fromkeys(verdicts.values())),
        **{f"real_q4_0_{p}": 100 * (_repacked_against_not(rates, "Q4_0", p).ratio - 1) for p in PHASES},
        "real_q8_bytes": q8.tensor_bytes / own.tensor_bytes,
        **{f"real_q8_{phase}": rates.ratio("Q8_0", own.type, phase) for phase in PHASES},
    }


def _repacked_against_not(rates: TypeRates, type: str, phase: str) -> Comparison:
    """Rate with repacking over the rate without, turn by turn."""
    off, on = ([1 / each for each in rates.type_rate(name).seconds(phase)] for name in (without(type), type))
    return compared(off, on)


def verdicts_text(pairs: Mapping[str, Pairs], phase: str) -> str:
    """`faster for Q4_0 and Q2_K, slower for Q4_K_M`: what repacking does to each type in one phase."""
    by_verdict: dict[str, list[str]] = {}
    for mix, pair in pairs.items():
        by_verdict.setdefault(pair.compared(phase).verdict, []).append(mix)
    texts = {FASTER: "faster for {}", SLOWER: "slower for {}", UNDECIDED: "neither faster nor slower for {}"}
    return ", ".join(text.format(" and ".join(by_verdict[word])) for word, text in texts.items() if word in by_verdict)


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


def numbers() -> dict[str, float | int | str]:
    """The numbers about repacking of the page *The CPU alone*; changes of rates in percent, copies in MiB."""
    pairs = recorded()
    repacked = {mix: pair for mix, pair in pairs.items() if pair.copied_bytes}
    same, pair = [pair for pair in pairs.values() if not pair.copied_bytes], pairs["Q4_K_M"]
    every = [(mix.lower(), phase, pair) for mix, pair in repacked.items() for phase in PHASES]
    return {
        "repack_copies": pair.copied_bytes / MIB,
        "repack_pairs": len(pair.default),
        "repack_tokens": pair.default[0].n_prompt,
        "repack_advice": advice(pair),
        **{f"{phase}_verdicts": verdicts_text(repacked, phase) for phase in PHASES},
        **{f"control_{phase}": 100 * max(abs(pair.compared(phase).ratio - 1) for pair in same) for phase in PHASES},
        **{f"repack_{mix}_{phase}": 100 * (pair.compared(phase).ratio - 1) for mix, phase, pair in every},
    }


def guide_numbers() -> dict[str, float | str]:
    """The numbers about repacking of the parameter guide: changes of rates in percent, copies in MiB, the advice."""
    pair = load("epyc-2c/repacking-Q4_K_M", Pairs)
    changes = {f"repack_{phase}": 100 * (pair.compared(phase).ratio - 1) for phase in PHASES}
    return {**changes, "repack_advice": advice(pair), "repack_mib": pair.copied_bytes / MIB}


@cache
def recorded_experts() -> dict[str, Pairs]:
    """The pairs of models with experts, and of a dense one, by their names for readers."""
    return {shown: load(f"epyc-2c/{name}", Pairs) for shown, name in EXPERTS.items()}


def expert_numbers() -> dict[str, int | str]:
    """The numbers about repacking of the page *Experts in RAM*."""
    pairs = recorded_experts()
    first = pairs[QWEN].default[0]
    return {
        "repack_advice": advice(pairs[QWEN]),
        "repack_pairs": min(len(pair.default) for pair in pairs.values()),
        "repack_prompt": first.n_prompt,
        "repack_threads": first.settings.n_threads,
    }


def expert_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: for each model with experts, rates without repacking and with it, and what repacking changes."""
    arrow = "`--no-repack` → repacked"
    heads = "model", f"prefill, {arrow}", f"decode, {arrow}", "repacked is, in prefill", "in decode"
    return heads, [
        (
            shown,
            *(f"{pair.rate(phase, 'without'):.3g} → {pair.rate(phase):.3g}" for phase in PHASES),
            *(pair.compared(phase).verdict for phase in PHASES),
        )
        for shown, pair in recorded_experts().items()
    ]
