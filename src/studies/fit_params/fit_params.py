"""llama.cpp's own --fit beside `lab.fit`: one question to both, and how much of the card each answer leaves unused.

llama-fit-params prints the settings that --fit chooses where a user has not set them. It is given a loopback device
that reports the free memory of the question (`engine.loopback.reported_memory`), and the header of a model; nothing is
loaded. `lab.fit` is asked for a device of the same kind with as much free memory, and its answers are taken in the
order in which --fit lowers settings (common/fit.cpp): the context, where the user has not set it; then experts in RAM,
or layers in RAM for a model without experts.
The bytes of both answers are the tool's estimates (--fit-print), each rounded down to whole MiB.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from inferlab.engine.dry_run import STAND_IN, header_file
from inferlab.engine.loopback import LoopbackDevice, loopback_device
from inferlab.engine.programs import built_program
from inferlab.engine.session import this_machine
from inferlab.errors import EngineRefused, EngineUnavailable
from inferlab.machine import Device, Machine
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.options.lines.llama_server import flag
from inferlab.prediction.fit import DEFAULT_N_CTX, RESERVE_BYTES, Fit, fit
from inferlab.prediction.memory.placement import device_overrides, moved_tensors, placed_layers
from inferlab.prediction.speed import drawn_on_host, placed_matrices
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import GIB, MIB
from studies.fit_params.reported_memory import reporting_memory

PROGRAM = "llama-fit-params"
BASE = Settings(swa_full=False, devices=(STAND_IN,))
"""llama.cpp's own defaults: `swa_full` is off in its programs (common/common.h)."""
SECONDS = 120.0
LAST_LINES = 12
FAILED = "llama-fit-params has no answer. Read its last lines."


@dataclass(frozen=True)
class Question:
    """What a user has set, and the card: the rest is for --fit.

    shape, mix  a known model and the type of its weights
    free_bytes  of the card
    n_ctx       None: not set
    type_kv     of keys and values
    """

    shape: str
    mix: str
    free_bytes: int
    n_ctx: int | None = None
    type_kv: str = "f16"

    @property
    def model(self) -> Model:
        return shape(self.shape, self.mix)

    @property
    def settings(self) -> Settings:
        return BASE.but(n_ctx=self.n_ctx, type_k=self.type_kv, type_v=self.type_kv)

    @property
    def usable_bytes(self) -> int:
        """Free bytes of the card but for the reserve, which is the same for both."""
        return self.free_bytes - RESERVE_BYTES


@dataclass(frozen=True)
class Placement:
    """One answer, and llama.cpp's estimate of its bytes on the card.

    What is on the host is not here: the tool leaves out weights that it repacks for the processor (common/fit.cpp:78).
    """

    settings: Settings
    weights_bytes: int
    kv_cache_bytes: int
    compute_bytes: int

    @property
    def card_bytes(self) -> int:
        return self.weights_bytes + self.kv_cache_bytes + self.compute_bytes


@dataclass(frozen=True)
class BothAnswers:
    """A question, the settings as llama-fit-params printed them, and the answers of --fit and of `lab.fit`."""

    question: Question
    printed: str
    by_llama: Placement
    by_lab: Placement

    def unused_bytes(self, who: str) -> int:
        """Usable bytes that the answer of "llama" or "lab" leaves; negative where it takes part of the reserve."""
        return self.question.usable_bytes - self._of(who).card_bytes

    def ram_bytes_per_token(self, who: str) -> int:
        """Bytes of weights in RAM that one token reads with the answer of "llama" or "lab"."""
        return ram_bytes_per_token(self.question.model, self._of(who).settings)

    def _of(self, who: str) -> Placement:
        return {"llama": self.by_llama, "lab": self.by_lab}[who]


@dataclass(frozen=True, kw_only=True)
class FitAnswers(Shown):
    """Both answers to several questions, on one machine with one llama.cpp."""

    machine: Machine
    date: str
    answers: tuple[BothAnswers, ...]

    @property
    def badge(self) -> str:
        return self.machine.badge(self.date)


def compare_fits(questions: Sequence[Question] = ()) -> FitAnswers:
    """Ask both every question; `QUESTIONS` where none are given. Raises EngineUnavailable, EngineRefused."""
    with loopback_device(n_threads=1) as one, loopback_device(n_threads=1) as other:
        answers = tuple(both_answers(question, one, other) for question in questions or QUESTIONS)
    return FitAnswers(machine=this_machine(), date=date.today().isoformat(), answers=answers)


def both_answers(question: Question, for_tool: LoopbackDevice, for_lab: LoopbackDevice) -> BothAnswers:
    """Ask both one question; each has a device of its own, because a device serves one client."""
    file = header_file(question.model)
    with reporting_memory(for_tool, question.free_bytes) as endpoint:
        line = printed_line(_run(file, endpoint, flags(question.settings)))
        by_lab = lab_settings(question, for_lab.endpoint)
        asked = fitted_settings(line, question.settings), by_lab
        return BothAnswers(question, line, *(estimated(file, endpoint, settings) for settings in asked))


def ram_bytes_per_token(model: Model, settings: Settings) -> int:
    """Bytes of matrices in RAM that one token reads, with one card; of experts those that it uses.

    The embedding counts where it is the output matrix; else a token reads one row of it.
    """
    layers = placed_layers(model.n_layer, settings, [1.0])
    moved = moved_tensors(model, layers, device_overrides(settings, [Device(STAND_IN, "", "gpu")]))
    return round(drawn_on_host(placed_matrices(model, layers, moved), model, 1))


# --- llama.cpp's answer -------------------------------------------------------------------------


def flags(settings: Settings) -> Iterator[str]:
    """The arguments that make llama-fit-params take these settings as the user's; what is not set is left to it."""
    moved = [name for name in ("n_cpu_moe", "cpu_moe") if getattr(settings, name)]
    for name in ("type_k", "type_v", "devices", *moved):
        yield from flag(name, getattr(settings, name)).split()
    if settings.n_ctx is not None:
        yield from ("-c", str(settings.n_ctx))
    if settings.n_gpu_layers >= 0:
        yield from ("-ngl", str(settings.n_gpu_layers))
    if settings.override_tensor:
        yield from ("-ot", ",".join(settings.override_tensor))


def printed_line(output: str) -> str:
    """The line of settings in what llama-fit-params printed. Raises EngineRefused without one."""
    lines = [line for line in output.splitlines() if line.startswith("-c ")]
    if not lines:
        raise EngineRefused(FAILED, output)
    return lines[-1]


def fitted_settings(line: str, base: Settings = BASE) -> Settings:
    """`base` with what a printed line sets: `-c 4096 -ngl 49 -ts 3,1 -ot "pattern=CPU,pattern=CPU"`."""
    words = shlex.split(line)
    values = dict(zip(words[::2], words[1::2], strict=True))
    shares, overrides = values.get("-ts"), values.get("-ot")
    return base.but(
        n_ctx=int(values["-c"]),
        n_gpu_layers=int(values["-ngl"]),
        tensor_split=tuple(map(float, shares.split(","))) if shares else None,
        override_tensor=tuple(overrides.split(",")) if overrides else (),
    )


def estimated(file: Path, endpoint: str, settings: Settings) -> Placement:
    """The tool's own estimate of settings, from its line for the card: `RPC0 weights cache compute`, in MiB."""
    output = _run(file, endpoint, flags(settings), "--fit-print", "on")
    found = next((line.split()[1:] for line in output.splitlines() if line.startswith(f"{STAND_IN} ")), None)
    if found is None:
        raise EngineRefused(FAILED, output)
    return Placement(settings, *(MIB * int(n) for n in found))


def _run(file: Path, endpoint: str, arguments: Iterator[str], *others: str) -> str:
    """What llama-fit-params prints. Raises EngineUnavailable without it, EngineRefused where it fails."""
    program = built_program(PROGRAM)
    if program is None:
        raise EngineUnavailable(f"{PROGRAM} is not compiled. Compile it with `make tools`.")
    command = [str(program), "-m", str(file), "--rpc", endpoint, *arguments, *others]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=SECONDS)
    if done.returncode:
        raise EngineRefused(FAILED, "\n".join(done.stderr.splitlines()[-LAST_LINES:]))
    return done.stdout


# --- the answer of lab.fit ----------------------------------------------------------------------


def lab_settings(question: Question, endpoint: str) -> Settings:
    """What `lab.fit` answers for a loopback device with the question's free bytes, in the order of --fit."""
    asked = question.settings.but(rpc_servers=(endpoint,))
    n_bytes, model = question.free_bytes, question.model
    card = Device(STAND_IN, "a loopback device", "gpu", n_bytes, n_bytes, "RPC")
    machine = replace(this_machine(), ram_bytes=None, devices=(card,))
    found = fit(model, asked, machine, within_trained=True)
    least = min(DEFAULT_N_CTX, model.n_ctx_train or DEFAULT_N_CTX)
    if question.n_ctx is None and (found.largest_n_ctx.value or 0) >= least:
        return found.largest_n_ctx.settings.but(rpc_servers=())
    return _with_less_on_the_card(found, asked.but(n_ctx=question.n_ctx or least)).but(rpc_servers=())


def _with_less_on_the_card(found: Fit, asked: Settings) -> Settings:
    """The settings with as little in RAM as fits: nothing, experts, or layers; everything where nothing else fits."""
    if found.fits == "yes":
        return asked
    answer = found.expert_layers or found.most_layers
    return answer.settings or asked.but(n_gpu_layers=0)


# --- the questions ------------------------------------------------------------------------------

LLAMA_8B, LLAMA_70B = ("llama-3.1-8b", "Q4_K_M"), ("llama-3.1-70b", "Q4_K_M")
QWEN_32B, QWEN_30B, QWEN_235B = (("qwen3-32b", "Q4_K_M"), ("qwen3-30b-a3b", "Q4_K_M"), ("qwen3-235b-a22b", "Q4_K_M"))
QUESTIONS = (
    Question(*LLAMA_8B, 4 * GIB),
    Question(*LLAMA_8B, 6 * GIB),
    Question(*LLAMA_8B, 8 * GIB),
    Question(*LLAMA_8B, 8 * GIB, type_kv="q8_0"),
    Question(*LLAMA_8B, 8 * GIB, 32768),
    Question(*LLAMA_8B, 24 * GIB),
    Question("mistral-7b-v0.3", "Q4_K_M", 6 * GIB, 8192),
    Question("mistral-7b-v0.3", "Q8_0", 8 * GIB, type_kv="q8_0"),
    Question("gemma-2-2b", "Q8_0", 4659 * MIB),
    Question("gemma-3-4b", "Q4_K_M", 6 * GIB),
    Question(*QWEN_32B, 16 * GIB, 16384),
    Question(*QWEN_32B, 24 * GIB),
    Question(*LLAMA_70B, 24 * GIB, 8192, "q8_0"),
    Question(*LLAMA_70B, 48 * GIB),
    Question(*QWEN_30B, 8 * GIB),
    Question(*QWEN_30B, 12 * GIB, 32768),
    Question(*QWEN_30B, 16 * GIB, 16384, "q8_0"),
    Question(*QWEN_30B, 24 * GIB),
    Question(*QWEN_235B, 8 * GIB, 8192),
    Question(*QWEN_235B, 48 * GIB, 32768, "q8_0"),
)
