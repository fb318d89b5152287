"""What quantized files hold: the types that a mix uses, one super-block, and the error of its rounding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inferlab.engine.quantize import quantize
from inferlab.model.catalog import known_model
from inferlab.model.find import tiny_imatrix, tiny_model
from inferlab.model.ggml_types import TYPES
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.imatrix import read_imatrix
from inferlab.model.synthetic_model import shape
from inferlab.units import GB
from studies.block_formats.dequantize import Q4KSuperBlock, Weights, open_q4_k, tensor_bytes, tensor_weights
from studies.block_formats.quantize_numpy import absmax, k_means, q4_k
from studies.block_formats.quantize_q4_k import Trial, q4_k_bytes, trials

KNOWN = {"mistral": "mistral-7b", "llama8": "llama-3.1-8b", "llama1": "llama-3.2-1b", "qwen": "qwen2.5-0.5b"}
"""Key of a number -> shape."""
ROUNDED, OPENED, WEIGHED = "blk.0.ffn_down.weight", "blk.3.ffn_up.weight", "blk.0.attn_q.weight"
"""Matrices of the embedded model: rounded in several ways, opened block by block, rounded with an importance matrix."""


def shapes() -> dict[str, Model]:
    """The shapes of four models in Q4_K_M, by the keys of their numbers."""
    return {key: shape(name, "Q4_K_M") for key, name in KNOWN.items()}


def size_numbers() -> dict[str, float | int]:
    """Sizes of the shapes and shares of types in a small one: bytes in GB, the header in MB, shares in percent."""
    models = shapes()
    small, numbers = models["qwen"], dict[str, float | int]()
    for key, model in models.items():
        full = shape(KNOWN[key], "F16").tensor_bytes
        numbers |= {
            f"{key}_bpw": 8 * model.tensor_bytes / model.n_params,
            f"{key}_gb": model.tensor_bytes / GB,
            f"{key}_f16_gb": full / GB,
            f"{key}_factor": full / model.tensor_bytes,
        }
    for kind in ("Q5_0", "Q8_0", "Q4_K", "Q6_K"):
        n_bytes = sum(tensor.n_bytes for tensor in small.tensors if tensor.type == kind)
        numbers[f"qwen_{kind.lower()}"] = 100 * n_bytes / small.tensor_bytes
    published = known_model("mistral-7b").files["Q4_K_M"].value
    return {
        **numbers,
        "q8_0_bits": TYPES["Q8_0"].bits_per_weight,
        "q4_k_bits": TYPES["Q4_K"].bits_per_weight,
        "qwen_width": small.n_embd,
        "published_gb": published / GB,
        "header_mb": (published - models["mistral"].tensor_bytes) / 1e6,
        "tiny_millions": read_gguf(tiny_model()).n_params / 1e6,
    }


def tables_table() -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Heads and rows: bits per weight of two models, and the part and types of their tables of tokens."""
    models, rows = shapes(), []
    for model in (models["llama1"], models["llama8"]):
        own = [tensor for tensor in model.tensors if tensor.name in ("token_embd.weight", "output.weight")]
        share = 100 * sum(tensor.n_elements for tensor in own) / model.n_params
        bits, types = 8 * model.tensor_bytes / model.n_params, ", ".join(tensor.type for tensor in own)
        rows.append((model.name, f"{bits:.2f}", f"{share:.0f} %", types))
    return ("model", "bits", "tables", "types of the tables"), rows


def rounding_numbers() -> dict[str, float | int]:
    """Errors of other ways to round one matrix: of free values in units of Q4_K's, of coarse scales in finer ones'."""
    weights = _weights_of(ROUNDED)
    shuffled = np.random.default_rng(5).permutation(weights.reshape(-1)).reshape(weights.shape)
    return {
        "n_weights": weights.size,
        "free_over_q4k": k_means(weights).rmse(weights) / q4_k(weights).rmse(weights),
        "free_over_q4k_shuffled": k_means(shuffled).rmse(shuffled) / q4_k(shuffled).rmse(shuffled),
        "row_over_block": absmax(weights).rmse(weights) / absmax(weights, group=32).rmse(weights),
    }


def search_trials() -> list[Trial]:
    """The search for scale and minimum of one block of the rounded matrix."""
    return list(trials(_weights_of(ROUNDED).reshape(-1, 32)[3]))


def opened_block(quantized: Model) -> Q4KSuperBlock:
    """The first super-block of a matrix in llama.cpp's own Q4_K file of the embedded model."""
    return open_q4_k(tensor_bytes(quantized, OPENED))


def block_numbers(quantized: Model) -> dict[str, float | int]:
    """One weight of that super-block by its formula, and how many bytes of the matrix the NumPy code makes alike."""
    block, original, theirs = opened_block(quantized), _weights_of(OPENED), tensor_bytes(quantized, OPENED)
    return {
        "block_d": block.d,
        "block_dmin": block.dmin,
        "by_hand": float(block.d * block.scales[5] * block.codes[5, 7] - block.dmin * block.minima[5]),
        "unquantized": float(original.reshape(-1, 8, 32)[0, 5, 7]),
        "n_bytes": len(theirs),
        "n_equal": sum(a == b for a, b in zip(q4_k_bytes(original), theirs, strict=True)),
    }


def imatrix_numbers() -> dict[str, float | int]:
    """What an importance matrix changes in one super-block, and how uneven it is; errors in units of those without.

    Weighted, a squared error counts as often as its column's importance says.
    """
    original, columns = _weights_of(WEIGHED).reshape(-1)[:256], read_imatrix(tiny_imatrix()).columns[WEIGHED][0]
    files = (read_gguf(quantize("tiny", "Q4_K_S", imatrix=matrix)) for matrix in (None, tiny_imatrix()))
    plain, weighted = (open_q4_k(tensor_bytes(model, WEIGHED)) for model in files)
    before, after = ((original - block.weights.reshape(-1).astype(np.float64)) ** 2 for block in (plain, weighted))
    importance = columns[:256].astype(np.float64)
    return {
        "codes": int(np.sum(plain.codes != weighted.codes)),
        "error_plain": float(after.sum() / before.sum()),
        "error_weighted": float((importance * after).sum() / (importance * before).sum()),
        "ten_share": 100 * float(np.sort(columns)[-10:].sum() / columns.sum()),
        "n_columns": columns.size,
    }


def _weights_of(name: str) -> Weights:
    """A matrix of the embedded model."""
    return tensor_weights(read_gguf(tiny_model()), name)
