"""Flash attention and cache types on a CPU: compute buffers, changes of rates, and the same switch in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any

from inferlab.machine import Machine
from inferlab.measurement.depth import DepthScaling
from inferlab.measurement.memory import reserved_bytes
from inferlab.measurement.sweep import Sweep
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.prediction.predict import predict_memory
from inferlab.records import load, load_all
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.statistics import UNDECIDED, compared
from inferlab.units import KIB, MIB

Table = tuple[Sequence[str], Sequence[Sequence[str | int | float]]]

SIZES = 16_384, 32_768
"""Contexts whose compute buffers the page compares, in tokens."""
CHOICES: dict[str, dict[str, Any]] = {
    "off, f16": {"flash_attn": "off", "type_k": "f16", "type_v": "f16"},
    "on, f16": {"flash_attn": "on", "type_k": "f16", "type_v": "f16"},
    "on, q8_0": {"flash_attn": "on", "type_k": "q8_0", "type_v": "q8_0"},
    "on, q4_0": {"flash_attn": "on", "type_k": "q4_0", "type_v": "q4_0"},
    "on, q8_0 and f16": {"flash_attn": "on", "type_k": "q8_0", "type_v": "f16"},
}
"""Settings that took turns: the switch of flash attention and the types of keys and values."""
TO_Q8, TO_Q4 = "cache from f16 to q8_0", "cache from f16 to q4_0"
CHANGES = {
    "flash attention from off to on": ("off, f16", "on, f16"),
    TO_Q8: ("on, f16", "on, q8_0"),
    TO_Q4: ("on, f16", "on, q4_0"),
    "only keys from f16 to q8_0": ("on, f16", "on, q8_0 and f16"),
}
WIDTHS, DEPTH, N_PROMPT, N_ROUND = (128, 64), 4096, 2048, 8
"""Values of a head; cells in use, tokens of a prompt and tokens of a round in the comparison."""


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
        heads = f"{self.n_head} heads of {self.head_dim}"
        return f"measured: {self.machine.cpu}, {self.date}, PyTorch {self.torch}, {heads}"

    def by_tokens(self, way: str) -> dict[int, Timing]:
        """The timings of one backend, by number of tokens."""
        return {timing.n_tokens: timing for timing in self.timings if timing.way == way}


def in_pytorch() -> Timings:
    """Attention in PyTorch, with the flash kernel and with plain matrix products."""
    return load("xeon-2c/pytorch-attention", Timings)


@cache
def depths(width: int) -> dict[str, DepthScaling]:
    """Tokens decoded behind few and many cells with each of CHOICES, for heads of `width` values."""
    return dict(zip(CHOICES, load_all(f"epyc-2c/depth-{width}", DepthScaling), strict=True))


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *Flash attention and cache types* that come from records.

    How many times as fast a smaller cache made decode and prefill, with heads of 128; two Xeon cores with FP16
    instructions, heads of 64: tokens per second, and factors of a q8_0 cache; attention in PyTorch over the most
    tokens: MiB by which the process grew, seconds, and MiB of one score table.
    """
    values: dict[str, float | int | str] = {}
    for key, change in (("q8", TO_Q8), ("q4", TO_Q4)):
        values[f"{key}_deep"], values[f"{key}_deep_sure"], values[f"{key}_prefill"], _ = _changed(128, *CHANGES[change])
    switch, types = load("xeon-2c/tune-flash_attn", Sweep), load("xeon-2c/tune-kv_types", Sweep)
    q8, f16 = ({"type_k": kind, "type_v": kind} for kind in ("q8_0", "f16"))
    timings = in_pytorch()
    longest = max(timings.by_tokens("math"))
    ways = {way: timings.by_tokens(way)[longest] for way in ("flash", "math")}
    return {
        **values,
        **{f"amx_{s}": switch.at(flash_attn=s, n_prompt=1024).decode_tokens_per_second for s in ("on", "off")},
        **{f"amx_q8_{phase}": 1 + types.gain(phase, q8, f16) for phase in ("decode", "prefill")},
        "sdpa_tokens": longest,
        "sdpa_scores": 4 * timings.n_head * longest**2 / MIB,
        **{f"sdpa_{way}_mib": timing.extra_bytes / MIB for way, timing in ways.items()},
        **{f"sdpa_{way}_seconds": median(timing.seconds) for way, timing in ways.items()},
    }


def change_table() -> Table:
    """Heads and rows: what each change does to decode and to prefill, by width of a head, and how sure that is."""
    heads = "heads of", "change", "decode", "rounds of decode", "prefill", "passes of prefill"
    return heads, [(width, change, *_changed(width, *pair)) for width in WIDTHS for change, pair in CHANGES.items()]


def _changed(width: int, old: str, new: str) -> tuple[float, str, float, str]:
    """How many times as fast decode and prefill are after a change, each with how sure that is."""
    before, after = (depths(width)[name] for name in (old, new))
    prompts = load(f"epyc-2c/attention-{width}", Sweep)
    first, second = (prompts.at(n_prompt=N_PROMPT, **CHOICES[name]) for name in (old, new))
    return (
        before.median_seconds(DEPTH) / after.median_seconds(DEPTH),
        rounds_text(_rounds(before), _rounds(after)),
        second.prefill_tokens_per_second / first.prefill_tokens_per_second,
        passes_text(*(run.points("prefill_tokens_per_second") for run in (first, second))),
    )


def _rounds(depths: DepthScaling) -> list[float]:
    """Median seconds of a token of each round."""
    tokens = depths.seconds[DEPTH]
    return [median(tokens[i : i + N_ROUND]) for i in range(0, len(tokens), N_ROUND)]


def rounds_text(before: Sequence[float], after: Sequence[float]) -> str:
    """`slower in 9 of 10`: in how many rounds the seconds grew or fell, and whether the sign test leaves it open."""
    comparison = compared(after, before)
    slower = sum(ratio < 1 for ratio in comparison.ratios)
    word, agree = ("slower", slower) if 2 * slower >= len(before) else ("faster", len(before) - slower)
    return f"{word} in {agree} of {len(before)}" + (": undecided" if comparison.verdict == UNDECIDED else "")


def passes_text(before: Sequence[float], after: Sequence[float]) -> str:
    """Whether all rates after a change are below or above all rates before it."""
    if max(after) < min(before):
        return "all slower"
    return "all faster" if min(after) > max(before) else "overlap: undecided"


Buffers = Mapping[tuple[str, str], Sequence[int]]


def compute_buffers() -> Buffers:
    """("plan" or "log", switch of flash attention) -> bytes of the compute buffer for each of SIZES, on the host.

    Planned for Mistral 7B, logged by the engine for a small model with the same 32 heads. Raises ModelError or
    EngineError.
    """
    mistral, buffers = shape("mistral-7b"), {}
    heads = make_shape("mistral-7b", "Q4_K_M", n_layer=1, n_ff=1024, n_vocab=1024)
    for switch in ("off", "on"):
        wanted = [Settings(n_ctx=n, flash_attn=switch) for n in SIZES]
        buffers["plan", switch] = [predict_memory(mistral, asked).devices["host"].compute_bytes for asked in wanted]
        buffers["log", switch] = [reserved_bytes(heads, asked, "compute") for asked in wanted]
    return buffers


def per_token(buffers: Buffers, how: str, switch: str) -> float:
    """KiB that each further token of context adds to a compute buffer."""
    small, large = buffers[how, switch]
    return (large - small) / (SIZES[1] - SIZES[0]) / KIB


def buffer_table(buffers: Buffers) -> Table:
    """Heads and rows: KiB for each token of context, planned and logged, without flash attention and with it."""
    heads = "compute buffer for each token of context, KiB", "flash attention off", "on"
    rows = (("planned", "plan"), ("logged", "log"))
    return heads, [(name, *(per_token(buffers, how, switch) for switch in ("off", "on"))) for name, how in rows]


def buffer_numbers(buffers: Buffers) -> dict[str, float]:
    """What flash attention saves: KiB for each token, and MiB of the planned buffers at the longest context."""
    off, on = (buffers["plan", switch][1] for switch in ("off", "on"))
    saved = per_token(buffers, "plan", "off") - per_token(buffers, "plan", "on")
    return {
        "flash_per_token": saved,
        "flash_off_mib": off / MIB,
        "flash_on_mib": on / MIB,
        "flash_ratio": off / on,
    }
