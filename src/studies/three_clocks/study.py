"""Requests with prompts of several lengths, prompts in passes of one token, and early and late tokens of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from inferlab.measurement.run import Run
from inferlab.model.catalog import known_model
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.units import KIB, MIB

EARLY, LATE = slice(16, 216), slice(800, 1000)
EARLY_MIDDLE, LATE_MIDDLE = 116, 900
"""Two stretches of the long answer, and their middle tokens."""
UBATCH = 512


def request_numbers(brief: Run, run: Run) -> dict[str, float]:
    """TTFT, TPOT and rates of a request with a short prompt and one with a longer one, and prompt tokens per token."""
    numbers = {
        "token_ratio": run.prefill_tokens_per_second / run.decode_tokens_per_second,
        "brief_ratio": brief.prefill_tokens_per_second / brief.decode_tokens_per_second,
        "prefill_factor": run.prefill_tokens_per_second / brief.prefill_tokens_per_second,
        "decode_factor": run.decode_tokens_per_second / brief.decode_tokens_per_second,
    }
    for prefix, request in (("", run), ("brief_", brief)):
        numbers |= {
            f"{prefix}ttft_ms": request.ttft_seconds * 1e3,
            f"{prefix}tpot_ms": request.inter_token_seconds * 1e3,
            f"{prefix}prefill_rate": _three_digits(request.prefill_tokens_per_second),
            f"{prefix}decode_rate": _three_digits(request.decode_tokens_per_second),
        }
    return numbers


def prompt_numbers(run: Run, runs: Sequence[Run], one_by_one: Run) -> dict[str, float]:
    """What doubling the prompt changes, third to fourth of `runs`, and one prompt token per pass beside `run`."""
    shorter, longer = runs[2:4]
    return {
        "ttft_doubling": longer.ttft_seconds / shorter.ttft_seconds,
        "tpot_doubling": longer.inter_token_seconds / shorter.inter_token_seconds,
        "single_ttft_ms": one_by_one.ttft_seconds * 1e3,
        "single_prefill_rate": _three_digits(one_by_one.prefill_tokens_per_second),
        "single_decode_rate": _three_digits(one_by_one.decode_tokens_per_second),
        "single_ratio": one_by_one.ttft_seconds / run.ttft_seconds,
    }


def answer_numbers(long_answer: Run) -> dict[str, float]:
    """Early and late tokens of a long answer: time, cells in use, and the ratio that their bytes would give."""
    seconds = long_answer.passes[0].decode_seconds
    early, late = median(seconds[EARLY]), median(seconds[LATE])
    cell_bytes = long_answer.bytes_on("kv_cache") / long_answer.settings.n_ctx
    weights = long_answer.model.tensor_bytes
    cells_early, cells_late = long_answer.n_prompt + EARLY_MIDDLE, long_answer.n_prompt + LATE_MIDDLE
    return {
        "early_ms": 1e3 * early,
        "late_ms": 1e3 * late,
        "late_ratio": late / early,
        "tensor_mib": weights / MIB,
        "cells_early": cells_early,
        "cells_late": cells_late,
        "window_early_mib": cells_early * cell_bytes / MIB,
        "window_late_mib": cells_late * cell_bytes / MIB,
        "bytes_ratio": (weights + cells_late * cell_bytes) / (weights + cells_early * cell_bytes),
    }


def embedding_numbers() -> dict[str, float]:
    """Bytes of the embeddings of a whole ubatch, in KiB of the embedded model and MiB of Mistral 7B."""
    tiny, mistral = read_gguf(tiny_model()), known_model("mistral-7b-v0.3")
    return {"embd_kib": UBATCH * tiny.n_embd * 4 / KIB, "embd_7b_mib": UBATCH * mistral.n_embd * 4 / MIB}


def _three_digits(value: float) -> float:
    return float(f"{value:.3g}")
