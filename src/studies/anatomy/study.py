"""The parts of Mistral 7B and of the embedded model, published vocabularies, and what the page measures live."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inferlab.engine.tokenizer import tokenize
from inferlab.measurement.run import Run
from inferlab.model.architectures import n_params
from inferlab.model.catalog import known_model, known_vocabularies
from inferlab.model.find import tiny_model
from inferlab.model.gguf import Model, read_gguf
from inferlab.model.synthetic_model import shape
from inferlab.prediction import cost
from inferlab.units import GIB, KIB, MIB

MISTRAL, MIX = "mistral-7b-v0.3", "Q4_K_M"
N_CELLS = 2000
"""Tokens of conversation before the token whose cost the page shows."""
TEXT = "Hello world"
TWO_IDS = 15496, 1917
"""Of which the table says what they mean in each vocabulary."""


def tiny() -> Model:
    """The header of the embedded model."""
    return read_gguf(tiny_model())


def numbers(placed: Run) -> dict[str, float | int]:
    """The numbers about files of the page *Anatomy of a model*; `placed` ran on a loopback device.

    Shares of Mistral 7B's parts in percent of its bytes and operations, sizes of its embedding table; the embedded
    model's sizes, and where the run placed its weights.
    """
    mistral, model = shape(MISTRAL, MIX), tiny()
    host = (b.n_bytes for b in placed.buffers if b.kind == "weights" and b.device.startswith("CPU"))
    parts = cost.parts(mistral, N_CELLS)
    table, cells = parts[0], parts[-1]
    read, operations = (sum(getattr(part, field) for part in parts) for field in ("read_bytes", "operations"))
    feed_forward = [part for part in parts if part.name.startswith("feed-forward")]
    projections = [part for part in parts if part.name.startswith("attention:")]
    return {
        "mistral_gib": mistral.tensor_bytes / GIB,
        "ffn_bytes": 100 * sum(part.n_bytes for part in feed_forward) / mistral.tensor_bytes,
        "ffn_operations": 100 * sum(part.operations for part in feed_forward) / operations,
        "projection_bytes": 100 * sum(part.n_bytes for part in projections) / mistral.tensor_bytes,
        "cells_bytes": 100 * cells.read_bytes / read,
        "cells_operations": 100 * cells.operations / operations,
        "table_mib": table.n_bytes / MIB,
        "row_kib": table.read_bytes / KIB,
        "llama1b_table_mib": cost.parts(shape("llama-3.2-1b", MIX))[0].n_bytes / MIB,
        "embedding_mib": next(t.n_bytes for t in model.tensors if t.name == "token_embd.weight") / MIB,
        "tiny_mib": model.tensor_bytes / MIB,
        "tiny_millions": model.n_params / 1e6,
        "placed_mib": placed.bytes_on("weights") / MIB,
        "host_mib": sum(host) / MIB,
        "mistral_width": known_model(MISTRAL).n_embd,
        "qwen_width": known_model("qwen2.5-0.5b").n_embd,
        "weights_ratio": n_params(known_model(MISTRAL)) / model.n_params,
    }


def vocabulary_table() -> tuple[Sequence[str], list[Sequence[str | int]]]:
    """Heads and rows: the ids of TEXT in published vocabularies and in the embedded model, and what TWO_IDS mean."""
    heads = "vocabulary", "kind", "entries", f"“{TEXT}”", *map(str, TWO_IDS)
    rows: list[Sequence[str | int]] = []
    for known in known_vocabularies().values():
        pieces = (f"`{known.pieces[n]!a}`" for n in TWO_IDS)
        rows.append((known.name, known.kind, known.n_vocab, ", ".join(map(str, known.hello_world)), *pieces))
    ours, ids = tiny(), ", ".join(map(str, tokenize(TEXT)))
    return heads, [*rows, ("embedded model", str(ours.metadata["tokenizer.ggml.model"]), ours.n_vocab, ids, "–", "–")]


def tokenizing_numbers(in_tokenizer: float, in_prefill: float) -> dict[str, float]:
    """Microseconds of a token in the tokenizer and in prefill, both given in seconds, and the first's share."""
    return {
        "tokenize_us": 1e6 * in_tokenizer,
        "prefill_us": 1e6 * in_prefill,
        "tokenize_share": 100 * in_tokenizer / (in_tokenizer + in_prefill),
    }


def expected_numbers(by_engine: float, norm_first: float, norm_last: float) -> dict[str, float]:
    """Geometric mean of the probability of the next token in percent, from mean costs in nats; and a blind guess."""
    nats = {"engine": by_engine, "first": norm_first, "last": norm_last, "guess": np.log(tiny().n_vocab)}
    return {f"percent_{name}": 100 * np.exp(-mean) for name, mean in nats.items()}
