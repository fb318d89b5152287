"""One training step beside one inference step of the same model: bytes that each keeps, and seconds.

llama.cpp makes the inference steps `engine_decode` and `engine_prefill`; PyTorch makes the steps of `torch_steps`.
All have the same weights, tokens and number of threads; PyTorch's weights are 32-bit floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from inferlab.facts import cited_facts
from inferlab.measurement.base import Measurement
from inferlab.model.architectures import n_params
from inferlab.model.catalog import known_model
from inferlab.records import load
from inferlab.units import GB, MIB

PARTS = "weights", "gradients", "Adam's averages", "copy in 32 bits"


@dataclass(frozen=True)
class LedgerRow:
    """One step: bytes by kind, the seconds of each repetition, and the peak growth of a process that made only it.

    step         `engine_decode`, `engine_prefill`, or a step of `torch_steps`
    sizes        of llama.cpp its buffers: weights, kv_cache, compute, output;
                 of PyTorch the tensors kept: weights, gradients, adam, saved, kv_cache
    seconds      engine time of llama.cpp's steps, wall time of PyTorch's
    grown_bytes  from before the model was opened; None if the system does not report it
    """

    step: str
    sizes: dict[str, int]
    seconds: tuple[float, ...]
    grown_bytes: int | None = None

    @property
    def median_seconds(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True, kw_only=True)
class TrainingLedger(Measurement):
    """The steps of a model in llama.cpp and in PyTorch, timed in turns.

    torch              PyTorch's version
    n_tokens           tokens of a step; a decode step has one, after n_tokens - 1 cached ones
    logits_difference  largest difference between PyTorch's logits and those of `model.numpy_llama`
    largest_logit      the largest of those logits without its sign, to compare it with
    same_picks         tokens after which PyTorch and llama.cpp find the same next token the likeliest
    """

    torch: str
    n_tokens: int
    logits_difference: float
    largest_logit: float
    same_picks: int
    rows: tuple[LedgerRow, ...]

    @property
    def badge(self) -> str:
        """As for every measurement, with PyTorch's version."""
        return f"{super().badge}; PyTorch {self.torch}"

    def row(self, step: str) -> LedgerRow:
        """The row of one step."""
        return next(row for row in self.rows if row.step == step)


@cache
def recorded() -> TrainingLedger:
    """The six steps of the embedded model."""
    return load("epyc-2c/training-ledger", TrainingLedger)


def numbers() -> dict[str, float | int | str]:
    """The numbers about training of the page *Inference engines*: MiB, milliseconds, and ratios."""
    ledger = recorded()
    prefill, inference, kept = ledger.row("engine_prefill"), ledger.row("inference"), ledger.row("recorded")
    one_token, engine_token = ledger.row("decode"), ledger.row("engine_decode")
    weights = inference.sizes["weights"]
    return {
        **{f"{row.step}_ms": 1e3 * row.median_seconds for row in ledger.rows},
        **{f"{row.step}_grown": row.grown_bytes / MIB for row in ledger.rows},
        "engine_compute": prefill.sizes["compute"] / MIB,
        "n_tokens": ledger.n_tokens,
        "repeats": len(inference.seconds),
        "cpu": ledger.machine.cpu,
        "recorded_saved": kept.sizes["saved"] / MIB,
        "recorded_more_weights": (kept.grown_bytes - inference.grown_bytes) / weights,
        "recorded_slower": 100 * (kept.median_seconds / inference.median_seconds - 1),
        "prefill_factor": inference.median_seconds / prefill.median_seconds,
        "decode_factor": one_token.median_seconds / engine_token.median_seconds,
        "weights_factor": weights / prefill.sizes["weights"],
        "tiny_millions": ledger.model.n_params / 1e6,
    }


def bytes_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: bytes for each weight in training and inference, by part, and GB of Mistral 7B."""
    mistral, ledger, cited = known_model("mistral-7b-v0.3"), recorded(), cited_facts("training")
    n_mistral, sizes, kinds = n_params(mistral), ledger.row("training").sizes, ("weights", "gradients", "adam")
    columns = {
        "training, 32 bits": (*(sizes[kind] / ledger.model.n_params for kind in kinds), 0),
        "training, mixed": tuple(cited[f"mixed-{kind}"].value for kind in (*kinds, "copy")),
        "inference, F16": (2, 0, 0, 0),
        "inference, Q4_K_M": (mistral.files["Q4_K_M"].value / n_mistral, 0, 0, 0),
    }
    sums = [sum(sizes) for sizes in columns.values()]
    rows: list[Sequence[str]] = [
        (part, *(f"{sizes[i]:.2g}" if sizes[i] else "–" for sizes in columns.values())) for i, part in enumerate(PARTS)
    ]
    rows.append(("sum", *(f"{n:.2g}" for n in sums)))
    rows.append(("Mistral 7B, GB", *(f"{n * n_mistral / GB:.3g}" for n in sums)))
    return ("bytes for each weight", *columns), rows
