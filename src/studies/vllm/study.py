"""The numbers of the page about vLLM: blocks beside slots, the share of a card, formats, and what a rate allows."""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.facts import cited_facts
from inferlab.model.architectures import n_params
from inferlab.model.catalog import known_model
from inferlab.model.ggml_types import TYPES
from inferlab.model.synthetic_model import shape
from inferlab.prediction.decode_bound import most_token_bytes, token_bytes
from inferlab.prediction.memory import kv_cache_bytes_per_token
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import GB, GIB, KIB, MIB
from studies.vllm.block_pool import (
    MemoryShare,
    block_tokens,
    cells_in_blocks,
    cells_in_slots,
    default,
    steps_of_prompt,
    tokens_in,
)
from studies.vllm.weight_formats import WeightFormat, weight_formats, weights_bytes

Table = tuple[Sequence[str], Sequence[Sequence[str]]]

MISTRAL = "mistral-7b"
LENGTHS, SLOT = (300, 700, 1500, 4000), 4096
"""Tokens of the page's four conversations, and of llama.cpp's slots for them."""
CARDS = 8, 12, 24, 32
"""Memory of cards, in GiB."""
WHOLE, AWQ = "{} GB, 16 bits", "{} GB, AWQ"
CONTEXTS = 512, *range(1024, 4097, 256), 32768
PROMPT, RUNNING, SMALL_BUDGET = 6000, 32, 512
DDR5 = 2 * 8 * 6000e6
"""Bytes per second of two channels of DDR5-6000."""
CPU_RATE, GPU_RATE = 35, 287
"""Tokens per second that were published without a model."""
READ_MODELS = "llama-3.2-1b", "qwen3-30b-a3b", "gemma-3-4b", MISTRAL
MIX = "Q4_K_M"


def mistral_token_bytes() -> int:
    """Bytes of Mistral 7B's cache for each token."""
    return kv_cache_bytes_per_token(known_model(MISTRAL))


def card_shares() -> dict[str, MemoryShare]:
    """Mistral 7B in 16 bits and in AWQ on each card."""
    mistral = known_model(MISTRAL)
    sizes = {WHOLE: weights_bytes(mistral), AWQ: weights_bytes(mistral, "awq")}
    return {name.format(n): MemoryShare(n * GIB, size) for n in CARDS for name, size in sizes.items()}


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *vLLM beside llama.cpp*."""
    cards, budget = cited_facts("cards"), int(default("step-tokens"))
    rate = cards["rtx-4080-decode"].value
    on_cpu, on_gpu = _most_bytes()
    return {
        **_share_numbers(),
        **_logged_numbers(),
        **_factor_numbers(),
        "budget": budget,
        "budget_large": default("step-tokens-large"),
        "n_batch": Settings().n_batch,
        "steps_default": steps_of_prompt(PROMPT, budget, RUNNING),
        "steps_small": steps_of_prompt(PROMPT, SMALL_BUDGET, RUNNING),
        "ddr5": DDR5 / GB,
        "rtx_rate": rate,
        "card": float(cards["rtx-5090-bandwidth"].value),
        "rtx_most": most_token_bytes(cards["rtx-4080-bandwidth"].value * GB, rate) / GB,
        "rtx_needed": token_bytes(shape("qwen2.5-7b", MIX)) / GB,
        "cpu_gb": on_cpu / GB,
        "gpu_gb": on_gpu / GB,
    }


def _share_numbers() -> dict[str, float | int | str]:
    """Blocks and slots in cells, vLLM's share in percent, the cards on which it starts, and weights in GiB and GB."""
    block, per_token, used = block_tokens(), mistral_token_bytes(), sum(LENGTHS)
    shares = card_shares()
    starts = [str(n) for n in CARDS if shares[WHOLE.format(n)].fits]
    whole, awq = (weights_bytes(known_model(MISTRAL), name) for name in (None, "awq"))
    return {
        "block": block,
        "block_mib": block * per_token / MIB,
        "token_kib": per_token / KIB,
        "last_block": block - 1,
        "empty_slots": cells_in_slots(LENGTHS, SLOT) - used,
        "empty_blocks": cells_in_blocks(LENGTHS) - used,
        "share": 100 * default("memory-share"),
        "share_before": 100 * default("memory-share-before"),
        "tokens_24": shares[AWQ.format(24)].tokens(per_token),
        "tokens_8": shares[AWQ.format(8)].tokens(per_token),
        "starts": " and ".join(starts),
        "fails": " and ".join(str(n) for n in CARDS if str(n) not in starts),
        "whole_gib": whole / GIB,
        "awq_gib": awq / GIB,
        "awq_gb": awq / GB,
        "awq_published": default("mistral-7b-awq"),
        "awq_4096": (awq + 4096 * per_token) / GIB,
        "capability": default("compute-capability"),
        "fp8_capability": default("fp8-capability"),
    }


def _logged_numbers() -> dict[str, float | int]:
    """Tokens that a log of vLLM names, and those that its GiB, rounded to two decimals, can hold.

    The cache of Qwen3 1.7B has the dimensions of Qwen3 0.6B: 28 layers, 8 heads of 128 for keys and values.
    """
    per_token, gib = kv_cache_bytes_per_token(known_model("qwen3-0.6b")), default("logged-pool")
    return {
        "logged_gib": gib,
        "logged_tokens": default("logged-tokens"),
        "logged_least": tokens_in(round((gib - 0.005) * GIB), per_token),
        "logged_most": tokens_in(round((gib + 0.005) * GIB), per_token),
    }


def _factor_numbers() -> dict[str, float | int]:
    """Memory over the bytes of the weights: llama.cpp's with short and long contexts, vLLM's share on 24 GB."""
    factors, shares = {n: _factor(MISTRAL, n) for n in CONTEXTS}, card_shares()
    return {
        "factor_short": factors[CONTEXTS[0]],
        "factor_long": factors[CONTEXTS[-1]],
        "factor_qwen": _factor("qwen2.5-7b", CONTEXTS[-1]),
        "below": max(n for n, factor in factors.items() if factor <= 1.1),
        "share_factor_small": MemoryShare(24 * GIB, weights_bytes(known_model("qwen2.5-0.5b"))).factor,
        "share_factor_awq": shares[AWQ.format(24)].factor,
        "share_factor_whole": shares[WHOLE.format(24)].factor,
    }


def _factor(model: str, n_ctx: int) -> float:
    plan = predict_memory(model, Settings(n_ctx=n_ctx, flash_attn="on"), simulate=False)
    return plan.total_bytes / plan.bytes_of("weights")


def format_table() -> Table:
    """Heads and rows: each format's bits per weight, and GB of Mistral 7B."""
    mistral, formats, eight = known_model(MISTRAL), weight_formats(), TYPES["Q8_0"]
    eight_bytes, four_bytes = shape(MISTRAL, "Q8_0").tensor_bytes, mistral.files[MIX].value
    rows = [
        ("16 bits", "none", 16, weights_bytes(mistral)),
        *((f.title, _group_text(f), f.bits_per_weight(), weights_bytes(mistral, key)) for key, f in formats.items()),
        ("Q8_0", f"{eight.block} weights", eight.bits_per_weight, eight_bytes),
        (MIX, "16 or 32 weights", 8 * four_bytes / n_params(mistral), four_bytes),
    ]
    heads = "format", "a scale for", "bits per weight", "Mistral 7B, GB"
    return heads, [(title, group, f"{bits:.2f}", f"{n_bytes / GB:.2f}") for title, group, bits, n_bytes in rows]


def _group_text(format: WeightFormat) -> str:
    return f"{format.group} weights" if format.group else "a row"


def _most_bytes() -> tuple[float, float]:
    """Of a token at CPU_RATE from DDR5, and at GPU_RATE from an RTX 5090."""
    card = cited_facts("cards")["rtx-5090-bandwidth"].value * GB
    return most_token_bytes(DDR5, CPU_RATE), most_token_bytes(card, GPU_RATE)


def rate_table() -> Table:
    """Heads and rows: GB that a token of each model needs, and whether the two published rates allow them."""
    rows = []
    for known in map(known_model, READ_MODELS):
        needed = token_bytes(shape(known, MIX))
        verdicts = ("possible" if needed <= most else "too large" for most in _most_bytes())
        rows.append((known.name, f"{needed / GB:.2f}", *verdicts))
    return ("model", "GB for a token", f"{CPU_RATE} tokens/s from DDR5", f"{GPU_RATE} tokens/s from the card"), rows
