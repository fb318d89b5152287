"""llama.cpp's own --fit beside `lab.fit`: one question to both, and how much of the card each answer leaves unused.

`lab.fit` is asked for a device of the same kind with as much free memory, and its answers are taken in the order in
which --fit lowers settings (common/fit.cpp): the context, where the user has not set it; then experts in RAM, or layers
in RAM for a model without experts.
The bytes of both answers are estimates of llama.cpp's tool (--fit-print), each rounded down to whole MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from inferlab.engine.dry_run import STAND_IN
from inferlab.machine import Device, Machine
from inferlab.model.catalog import known_model
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.fit import RESERVE_BYTES
from inferlab.prediction.memory.placement import device_overrides, has_experts, moved_tensors, placed_layers
from inferlab.prediction.speed import drawn_on_host, placed_matrices
from inferlab.records import load
from inferlab.settings import Settings
from inferlab.shown import Shown
from inferlab.units import GB, GIB, MIB

BASE = Settings(swa_full=False, devices=(STAND_IN,))
"""llama.cpp's own defaults: `swa_full` is off in its programs (common/common.h)."""
BOTH = ("llama", "lab")


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


@dataclass(frozen=True)
class Placement:
    """One answer, and llama.cpp's estimate of its bytes on the card.

    What is on the host is not here: the tool leaves out weights that it repacks for the processor (common/fit.cpp:78).
    """

    settings: Settings
    weights_bytes: int
    kv_cache_bytes: int
    compute_bytes: int


@dataclass(frozen=True)
class BothAnswers:
    """A question, the settings as llama-fit-params printed them, and the answers of --fit and of `lab.fit`."""

    question: Question
    printed: str
    by_llama: Placement
    by_lab: Placement

    def unused_bytes(self, who: str) -> int:
        """Bytes that the answer of "llama" or "lab" leaves beside the reserve; negative where it takes part of that."""
        placed: Placement = getattr(self, f"by_{who}")
        held = placed.weights_bytes + placed.kv_cache_bytes + placed.compute_bytes
        return self.question.free_bytes - RESERVE_BYTES - held

    def ram_bytes_per_token(self, who: str) -> int:
        """Bytes of weights in RAM that one token reads with the answer of "llama" or "lab"."""
        return ram_bytes_per_token(self.question.model, getattr(self, f"by_{who}").settings)


@dataclass(frozen=True, kw_only=True)
class FitAnswers(Shown):
    """Both answers to several questions, on one machine with one llama.cpp."""

    machine: Machine
    date: str
    answers: tuple[BothAnswers, ...]


def ram_bytes_per_token(model: Model, settings: Settings) -> int:
    """Bytes of matrices in RAM that one token reads, with one card; of experts those that it uses.

    The embedding counts where it is the output matrix; else a token reads one row of it.
    """
    layers = placed_layers(model.n_layer, settings, [1.0])
    moved = moved_tensors(model, layers, device_overrides(settings, [Device(STAND_IN, "", "gpu")]))
    return round(drawn_on_host(placed_matrices(model, layers, moved), model, 1))


# --- the page -----------------------------------------------------------------------------------


@cache
def recorded() -> FitAnswers:
    """Twenty questions to both."""
    return load("epyc-2c/fit-params", FitAnswers)


def of_mixtures() -> list[BothAnswers]:
    """The answers about models with experts."""
    return [both for both in recorded().answers if has_experts(both.question.model)]


def again_numbers() -> dict[str, int | str]:
    """What the same questions gave when they were asked again: how many answers were others."""
    before, again = recorded(), load("epyc-2c/fit-params-again", FitAnswers)
    pairs = zip(before.answers, again.answers, strict=True)
    return {
        "fit_first": before.date,
        "fit_again": again.date,
        "fit_other": sum(first != second for first, second in pairs),
    }


def numbers() -> dict[str, float]:
    """The numbers of the page *Experts in RAM* about --fit."""
    answers = recorded().answers
    dense = [both for both in answers if not has_experts(both.question.model)]
    moved = [both for both in of_mixtures() if both.by_llama.settings.override_tensor]
    cut = [both for both in moved if both.question.n_ctx is None]
    unused = [both.unused_bytes("llama") / MIB for both in moved]
    differs = [abs(both.ram_bytes_per_token("llama") / both.ram_bytes_per_token("lab") - 1) for both in moved]
    return {
        "n_questions": len(answers),
        "n_dense": len(dense),
        "n_same": sum(_layers(both.by_llama) == _layers(both.by_lab) for both in dense),
        "fit_moved": len(moved),
        "fit_fewer": sum(
            0 <= both.by_llama.settings.n_gpu_layers <= both.question.model.n_layer
            and both.by_lab.settings.n_gpu_layers < 0
            for both in moved
        ),
        "fit_cut": min(both.by_llama.settings.n_ctx for both in cut),
        "fit_trained": max(both.question.model.n_ctx_train for both in cut),
        "fit_differs": 100 * max(differs),
        "fit_least": min(unused),
        "fit_most": max(unused),
    }


def _layers(placed: Placement) -> tuple[int | None, int]:
    """The context, and the layers on the card."""
    return placed.settings.n_ctx, placed.settings.n_gpu_layers


def mixtures_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: both answers to each question about a mixture, as `llama / lab`."""
    heads = ("model, card", "context", "layers on the card", "with experts in RAM", "GB read from RAM", "unused, MiB")
    return heads, [_row(both) for both in of_mixtures()]


def _row(both: BothAnswers) -> Sequence[str]:
    question, n_layer = both.question, both.question.model.n_layer
    llama, lab = both.by_llama.settings, both.by_lab.settings
    by_lab = lab.n_cpu_moe or (n_layer if lab.cpu_moe else 0)
    return (
        f"{known_model(question.shape).name}, {question.free_bytes / GIB:.0f} GiB",
        f"{llama.n_ctx:,}" + ("" if question.n_ctx else ", chosen"),
        " / ".join(str(n_layer + 1 if n < 0 else n) for n in (llama.n_gpu_layers, lab.n_gpu_layers)),
        f"{len(llama.override_tensor)} / {by_lab}",
        " / ".join(f"{both.ram_bytes_per_token(who) / GB:.3f}" for who in BOTH),
        " / ".join(f"{both.unused_bytes(who) / MIB:,.0f}" for who in BOTH),
    )
