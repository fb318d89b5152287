"""The losses of the embedded model in many types, with importance matrices and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path

from inferlab.engine.protocol import ignore_progress
from inferlab.engine.quantize import WITHOUT_SEARCH, quantize
from inferlab.measurement.fidelity import fidelities
from inferlab.measurement.run import Run, measure
from inferlab.model.find import cache_folder, tiny_imatrix
from inferlab.model.quant_mixes import NEEDS_IMATRIX
from inferlab.model.synthetic_model import make_shape
from inferlab.progress import track
from inferlab.settings import Settings
from studies import recipes
from studies.quantization.study import COMPARED, MATRICES, NONE, RIGHT, Loss, MatrixLosses
from studies.recipes import Recipe

MXFP4 = "MXFP4"
MXFP4_TENSORS = (r"blk\.\d+\.(attn|ffn)_.*weight=MXFP4",)  # of a dense model, where MXFP4_MOE would write Q8_0
TYPES = (
    "Q8_0",
    "Q6_K",
    "Q5_K_M",
    "Q4_K_M",
    "IQ4_NL",
    "IQ4_XS",
    "Q4_0",
    MXFP4,
    "Q3_K_M",
    "IQ3_M",
    "IQ3_S",
    "IQ3_XXS",
    "Q2_K",
    "IQ2_M",
    "IQ2_XS",
    "IQ2_XXS",
    "IQ1_M",
    "IQ1_S",
)
TRIED = {NONE: TYPES, RIGHT: TYPES, **dict.fromkeys(MATRICES[1:], COMPARED)}
"""Matrix -> quantizations that are tried with it."""


def matrix_losses(tried: Mapping[str, Sequence[str]], n_chunks: int | None = None) -> MatrixLosses:
    """Quantize the embedded model with each matrix into each type, and compare every file with the original.

    tried     matrix -> quantizations, "" for no matrix; what llama.cpp does not make without a matrix, or rounds
              without a search, is left out
    n_chunks  512-token chunks of the held-out text (None: all)
    Raises ModelNotFound for a matrix that the embedded model does not have.
    """
    wanted = [(type, matrix) for matrix, types in tried.items() for type in types if _is_made(type, matrix)]
    files = [_quantized(type, matrix) for type, matrix in track(wanted, len(wanted), "quantizing")]
    compared = dict(zip(wanted, fidelities([(file, None) for file in files], "tiny", n_chunks=n_chunks), strict=True))
    losses = []
    for (type, matrix), file in compared.items():
        without = compared.get((type, NONE)) if matrix else None
        estimates = file.kl_divergence, file.log_perplexity_ratio, file.same_top_share
        change = file.change_from(without) if without else None
        losses.append(Loss(type, matrix, file.model.tensor_bytes, *estimates, change))
    return MatrixLosses(
        model=file.reference,
        machine=file.machine,
        date=date.today().isoformat(),
        n_tokens=file.n_tokens,
        losses=tuple(losses),
    )


def _is_made(type: str, matrix: str) -> bool:
    """Whether llama.cpp makes the file, and uses the matrix for it."""
    return type != MXFP4 and type not in WITHOUT_SEARCH if matrix else type not in NEEDS_IMATRIX


def _quantized(type: str, matrix: str) -> Path:
    """The file in the cache folder; MXFP4 for the matrices of a dense model's layers too."""
    if type == MXFP4:
        path = cache_folder() / f"tiny-{MXFP4}.gguf"
        return quantize("tiny", "MXFP4_MOE", path, ignore_progress, tensor_types=MXFP4_TENSORS)
    return quantize("tiny", type, imatrix=tiny_imatrix(matrix) if matrix else None, progress=ignore_progress)


def measure_mix(mix: str) -> Run:
    """Rates of the shape of Llama 3.2 1B in one mix."""
    path = make_shape("llama-3.2-1b", mix)
    return measure(path, Settings(n_ctx=512, n_batch=512), n_prompt=256, n_gen=32, repeats=5)


MIXES = ("F16", "Q2_K", "Q3_K_M", "Q4_0", "Q4_K_M", "Q5_0", "Q5_K_M", "Q6_K", "Q8_0")
RECIPES: Mapping[str, Recipe] = {
    **dict.fromkeys(("matrix-losses", "matrix-losses-again"), partial(matrix_losses, TRIED)),
    **{f"llama-3.2-1b-{mix}": partial(measure_mix, mix) for mix in MIXES},
}

if __name__ == "__main__":
    recipes.main(RECIPES)
