"""Points of a roofline: FLOP and bytes per second that runs achieved, and the batch size at the ridge.

Two FLOP count for each weight and token, and the bytes of the weights once for each pass of at most n_ubatch tokens.
Attention, norms and activations are left out of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inferlab.engine.session import this_machine
from inferlab.machine import Ceiling
from inferlab.measurement.ceilings import COLUMNS, allowed, ceiling, highest
from inferlab.measurement.run import Run, measure, measure_each
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.kernels import kernel
from inferlab.model.synthetic_model import cache_note, make_shape
from inferlab.prediction.speed import intensity, matrices
from inferlab.settings import Settings

Rows = tuple[Sequence[str], Sequence[Sequence[str | float]]]

KINDS = {"F16": "F16", "Q4_K_M": "Q4_K"}
"""Mix of a file -> the type of most of its weights."""
LENGTHS = {"Q4_K_M": (1, 2, 4, 8, 16, 32, 64, 256), "F16": (1, 8, 256)}
WIDE = Settings(n_batch=2048, n_ubatch=2048, flash_attn="on")
CLOSE = 75
"""Per cent of the memory roof from which decode runs close to it."""


@dataclass(frozen=True)
class Achieved:
    """One phase of a run: tokens in the prompt, FLOP per byte of weights read, and FLOP per second."""

    name: str
    n_prompt: int
    flop_per_byte: float
    flops_per_second: float

    @property
    def bytes_per_second(self) -> float:
        """Bytes of weights read in a second."""
        return self.flops_per_second / self.flop_per_byte

    @property
    def point(self) -> tuple[str, float, float]:
        """(name, FLOP per byte, FLOP per second) for `figures.roofline`."""
        return self.name, self.flop_per_byte, self.flops_per_second

    def shares(self, ceiling: Ceiling, type: str) -> tuple[float, float]:
        """Shares that it reached of the memory roof and of the matrix roof of a type of weights; 1 is the roof."""
        memory, matrix = ceiling.bandwidth_bytes_per_second, ceiling.matrix_flops_per_second[type]
        return self.bytes_per_second / memory, self.flops_per_second / matrix


def achieved(runs: Iterable[Run], model: Model) -> list[Achieved]:
    """The prefill of every run, then the decode of the run with the fewest cells in use.

    `model` is the model of the runs: its file read, or `lab.shape` of the same name.
    """
    runs = sorted(runs, key=lambda run: run.n_prompt)
    with_decode = [run for run in runs if run.decode_tokens_per_second]
    return [_prefill(run, model) for run in runs] + [_decode(run, model) for run in with_decode[:1]]


def _prefill(run: Run, model: Model) -> Achieved:
    n_passes = -(-run.n_prompt // run.settings.n_ubatch)
    each = intensity(model, min(run.n_prompt, run.settings.n_ubatch))
    flops = each * _read_bytes(model) * n_passes / run.prefill_seconds
    return Achieved(f"prefill of {run.n_prompt}", run.n_prompt, each, flops)


def _decode(run: Run, model: Model) -> Achieved:
    each = intensity(model, 1)
    return Achieved("decode", run.n_prompt, each, each * _read_bytes(model) * run.decode_tokens_per_second)


def _read_bytes(model: Model) -> int:
    """Bytes of the matrices that a pass reads, the same as `speed.intensity` counts."""
    return sum(tensor.n_bytes for tensor, _ in matrices(model))


def kernel_of(ceiling: Ceiling, type: str) -> str | None:
    """The CPU kernel that set the roof of a type (see model.kernels); None on a card, or where it was not recorded."""
    if ceiling.device != "host" or type not in ceiling.buffers:
        return None
    return kernel(type, ceiling.buffers[type], COLUMNS)


def ridge_tokens(ceiling: Ceiling, type: str, model: Model) -> float:
    """Tokens in a pass above which arithmetic takes longer than reading the weights."""
    return ceiling.ridge(type) / intensity(model, 1)


# --- the run of a page -------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """Prompts of several lengths with weights in two types, and the ceilings of the host before and after them.

    models, runs  by mix
    """

    before: Ceiling
    after: Ceiling
    models: Mapping[str, Model]
    runs: Mapping[str, Sequence[Run]]

    @property
    def roof(self) -> Ceiling:
        """The higher of both values of each rate."""
        return highest(self.before, self.after)

    @property
    def ridges(self) -> dict[str, float]:
        """Mix -> tokens at the ridge."""
        return {mix: ridge_tokens(self.roof, kind, self.models[mix]) for mix, kind in KINDS.items()}

    @property
    def quantized(self) -> list[Achieved]:
        """The passes with Q4_K_M, decode last."""
        return achieved(self.runs["Q4_K_M"], self.models["Q4_K_M"])

    @property
    def full(self) -> list[Achieved]:
        """The passes with F16, which their names say."""
        phases = achieved(self.runs["F16"], self.models["F16"])
        return [replace(phase, name=f"F16, {phase.name}") for phase in phases]


def shape_path(mix: str) -> Path:
    """Four layers of Llama 3.2 1B in a mix."""
    return make_shape("llama-3.2-1b", mix, n_layer=4, n_vocab=8192)


def measured() -> Measured:
    """Measure prompts and ceilings on this machine, in about half a minute.

    Raises EngineRefused or EngineCrashed.
    """
    paths, types = {mix: shape_path(mix) for mix in KINDS}, ("Q4_K", "F16")
    before = ceiling(types=types)
    runs = {mix: measure_each(paths[mix], WIDE, lengths, n_gen=5, repeats=3) for mix, lengths in LENGTHS.items()}
    return Measured(before, ceiling(types=types), {mix: read_gguf(path) for mix, path in paths.items()}, runs)


def with_half_the_threads() -> tuple[Run, Run]:
    """A short prompt and some tokens with Q4_K_M, on all cores and on half of them."""
    path, cores = shape_path("Q4_K_M"), this_machine().n_cores or 2
    threads = cores, max(1, cores // 2)
    whole, half = (measure(path, WIDE.but(n_threads=n), n_prompt=64, n_gen=9, repeats=2) for n in threads)
    return whole, half


def roof_table(trial: Measured) -> Rows:
    """Heads and rows: the rate of memory and of each type's products, and the ridge in tokens."""
    roof, ridges = trial.roof, trial.ridges
    rows = [("memory", "", f"{roof.bandwidth_bytes_per_second / 1e9:.1f} GB/s", "")]
    for mix, kind in KINDS.items():
        rate = f"{roof.matrix_flops_per_second[kind] / 1e9:.0f} GFLOP/s"
        rows.append((f"arithmetic, {kind}", kernel_of(roof, kind) or "not recorded", rate, f"{ridges[mix]:.1f}"))
    return ("limit", "kernel", "rate", "ridge, tokens"), rows


def threads_table(runs: Sequence[Run]) -> Rows:
    """Heads and rows: both rates of each run by its threads."""
    rows = [(run.settings.n_threads, run.prefill_tokens_per_second, run.decode_tokens_per_second) for run in runs]
    return ("threads", "prefill of 64, tokens/s", "decode, tokens/s"), rows


def numbers(trial: Measured) -> dict[str, float | str]:
    """The numbers of the page's own run; percent of the roofs that the longest prompt and decode reached."""
    quantized, full = (trial.models[mix].tensor_bytes for mix in ("Q4_K_M", "F16"))
    roofs = trial.roof.matrix_flops_per_second
    rate = {run.n_prompt: run.prefill_tokens_per_second for run in trial.runs["Q4_K_M"]}
    note = cache_note(trial.models["Q4_K_M"], trial.runs["Q4_K_M"][0].machine)
    *_, longest, decoded = trial.quantized
    works = 100 * longest.shares(trial.roof, "Q4_K")[1]
    decode_reads, decode_works = (100 * share for share in decoded.shares(trial.roof, "Q4_K"))
    return {
        "bytes_ratio": full / quantized,
        "rates_ratio": roofs["Q4_K"] / roofs["F16"],
        "roofs_apart": _apart_text(trial.before, trial.after),
        "roof_remark": _above_text(trial),
        "cache_note": note or "The weights exceed eight times this machine's last-level cache.",
        "longest_works": works,
        "decoded_reads": decode_reads,
        "decoded_works": decode_works,
        "decode_remark": _decode_text(decode_reads, decode_works),
        "sixteen_in_eight": rate[8] / rate[16] * 2,
        "first_octave": rate[8] / rate[1],
        "last_octave": rate[256] / rate[32],
        "two_in_one": rate[1] / rate[2] * 2,
        "eight_in_one": rate[1] / rate[8] * 8,
        "plateau": trial.runs["Q4_K_M"][-1].prefill_tokens_per_second / trial.runs["F16"][-1].prefill_tokens_per_second,
    }


def _decode_text(reads: float, works: float) -> str:
    if works >= reads:
        return "Decode is nearer to the arithmetic roof here: bandwidth is only its upper limit"
    if reads >= CLOSE:
        return "Decode runs close to the memory roof here"
    return "Decode is nearer to the memory roof here, but other costs than reading take a large part of its time"


def _above_text(trial: Measured) -> str:
    """How many points lie above the roofs."""
    drawn = [("Q4_K", phase) for phase in trial.quantized] + [("F16", phase) for phase in trial.full]
    above = sum(phase.flops_per_second > allowed(trial.roof, kind, phase.flop_per_byte) for kind, phase in drawn)
    if not above:
        return f"Here none of the {len(drawn)} points does"
    return f"Here {above} of the {len(drawn)} points {'lies' if above == 1 else 'lie'} above the roof"


def _apart_text(before: Ceiling, after: Ceiling) -> str:
    """How far both values of each rate lie apart, in per cent of the lower one."""
    first, second = (
        {"memory": roof.bandwidth_bytes_per_second, **roof.matrix_flops_per_second} for roof in (before, after)
    )
    apart = {name: max(rate, second[name]) / min(rate, second[name]) - 1 for name, rate in first.items()}
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in apart.items())
