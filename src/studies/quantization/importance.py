"""What an importance matrix changes: the loss of each quantization without one, with one, with one of the wrong text.

Every file reads the same held-out text, so two files are compared token by token: the mean difference of their
divergences has a much smaller standard error than either divergence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.protocol import ignore_progress
from inferlab.engine.quantize import WITHOUT_SEARCH, quantize
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.machine import Machine
from inferlab.measurement.fidelity import Estimate, Fidelity, fidelities
from inferlab.model.find import cache_folder, find_model, tiny_imatrix
from inferlab.model.gguf import ModelCard
from inferlab.model.quant_mixes import NEEDS_IMATRIX
from inferlab.progress import track
from inferlab.shown import Shown

MATRICES = ("training", "one-chunk", "code", "random", "even", "shuffled", "held-out")
"""The embedded model's matrices by the text that they were made from (data/tiny/matrices.py)."""
RIGHT, NONE, EVEN, LEAKED = "training", "", "even", "held-out"
MXFP4 = "MXFP4"
MXFP4_TENSORS = (r"blk\.\d+\.(attn|ffn)_.*weight=MXFP4",)  # of a dense model, where MXFP4_MOE would write Q8_0
TYPES = (
    "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "IQ4_NL", "IQ4_XS", "Q4_0", MXFP4, "Q3_K_M", "IQ3_M", "IQ3_S", "IQ3_XXS",
    "Q2_K", "IQ2_M", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S",
)  # fmt: skip
COMPARED = ("Q4_K_M", "IQ3_XXS", "Q2_K", "IQ2_XXS")
TRIED = {NONE: TYPES, RIGHT: TYPES, **dict.fromkeys(MATRICES[1:], COMPARED)}
"""Matrix -> quantizations that are tried with it."""


@dataclass(frozen=True)
class Loss:
    """The loss of one file against the unquantized model, on the held-out text.

    matrix           text of the importance matrix, a name of `MATRICES`; "" for none
    tensor_bytes     of all tensors of the file
    change           mean change of the divergence from that of the same quantization without a matrix (where llama.cpp
                     makes it without one), token by token; None for the file without a matrix itself
    """

    type: str
    matrix: str
    tensor_bytes: int
    kl_divergence: Estimate
    log_perplexity_ratio: Estimate
    same_top_share: Estimate
    change: Estimate | None = None


@dataclass(frozen=True, kw_only=True)
class MatrixLosses(Shown):
    """The losses of one model in several quantizations, with several importance matrices.

    n_tokens  scored tokens, the same for all
    """

    model: ModelCard
    machine: Machine
    date: str
    n_tokens: int
    losses: tuple[Loss, ...]

    @property
    def badge(self) -> str:
        return f"{self.machine.badge(self.date)}; {self.n_tokens:,} tokens scored on {self.model.name}"

    def of(self, type: str, matrix: str = NONE) -> Loss | None:
        """One file's loss; None where it was not measured or is not made."""
        return next((one for one in self.losses if (one.type, one.matrix) == (type, matrix)), None)

    def types(self, matrix: str) -> tuple[str, ...]:
        """The quantizations that were measured with one matrix, "" for none."""
        return tuple(one.type for one in self.losses if one.matrix == matrix)

    def bits_per_weight(self, loss: Loss) -> float:
        return 8 * loss.tensor_bytes / self.model.n_params

    def less_percent(self, type: str, matrix: str = RIGHT) -> float:
        """By how many percent a matrix lowers the divergence; negative where it raises it.

        Raises InvalidSettings where one of the two files was not measured.
        """
        without, helped = self.of(type), self.of(type, matrix)
        if without is None or helped is None:
            raise InvalidSettings(f"{type} was not measured both without a matrix and with {matrix!r}.")
        return 100 * (1 - helped.kl_divergence.value / without.kl_divergence.value)


def quantized(
    model: str | Path, type: str, matrix: str | Path | None = None, engine: LlamaEngine | None = None
) -> Path:
    """The file of one of `TYPES`, in the cache folder; MXFP4 for the matrices of a dense model's layers too."""
    if type == MXFP4:
        path = cache_folder() / f"{find_model(model).stem}-{MXFP4}.gguf"
        return quantize(model, "MXFP4_MOE", path, ignore_progress, tensor_types=MXFP4_TENSORS, engine=engine)
    return quantize(model, type, imatrix=matrix, progress=ignore_progress, engine=engine)


def matrix_losses(
    tried: Mapping[str, Sequence[str]] = TRIED,
    n_chunks: int | None = None,
    model: str | Path = "tiny",
    files: Mapping[str, str | Path] | None = None,
    engine: LlamaEngine | None = None,
) -> MatrixLosses:
    """Quantize a model with each matrix into each type, and compare every file with the original.

    tried     matrix -> quantizations, "" for no matrix; what llama.cpp does not make without a matrix, or rounds
              without a search, is left out
    n_chunks  512-token chunks of the held-out text (None: all)
    files     matrix -> its file, for another model than the embedded one
    """
    engine, full = engine or default_engine(), find_model(model)
    files = files or {name: tiny_imatrix(name) for name in tried if name}
    wanted = [(type, matrix) for matrix, types in tried.items() for type in types if _is_made(type, matrix)]
    made = [
        quantized(full, type, files.get(matrix), engine) for type, matrix in track(wanted, len(wanted), "quantizing")
    ]
    compared = fidelities([(file, None) for file in made], full, n_chunks=n_chunks, engine=engine)
    found, first = dict(zip(wanted, compared, strict=True)), compared[0]
    return MatrixLosses(
        model=first.reference, machine=first.machine, date=date.today().isoformat(), n_tokens=first.n_tokens,
        losses=tuple(_loss(*key, one, found.get((key[0], NONE))) for key, one in found.items()),
    )  # fmt: skip


def _is_made(type: str, matrix: str) -> bool:
    """Whether llama.cpp makes the file, and uses the matrix for it."""
    if matrix:
        return type != MXFP4 and type not in WITHOUT_SEARCH
    return type not in NEEDS_IMATRIX


def _loss(type: str, matrix: str, found: Fidelity, without: Fidelity | None) -> Loss:
    change = found.change_from(without) if matrix and without else None
    estimates = found.kl_divergence, found.log_perplexity_ratio, found.same_top_share
    return Loss(type, matrix, found.model.tensor_bytes, *estimates, change)
