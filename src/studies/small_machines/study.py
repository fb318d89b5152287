"""Budgets of memory in weights, and upper bounds of decode from rated bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.model.catalog import known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction import budget
from inferlab.prediction.cards import known_card
from inferlab.prediction.decode_bound import token_bytes
from inferlab.units import GB, GIB, KIB, MIB, bytes_text

Table = tuple[Sequence[str], Sequence[Sequence[str]]]

N_CTX, Q4_0_BITS, MIX = 4096, 4.5, "Q4_K_M"
BUDGETS = {
    "microcontroller": 512 * KIB,
    "microcontroller with flash": 8 * MIB,
    "program on a phone": 2 * GIB,
    "single-board computer": 8 * GIB,
    "laptop": 16 * GIB,
}
"""Assumed budgets, in bytes."""
MODELS = {"Llama 3.2 1B": "llama-3.2-1b", "Llama 3.1 8B": "llama-3.1-8b", "Qwen3 30B A3B": "qwen3-30b-a3b"}
DEVICES = ("jetson-orin-nano", "apple-m4", "jetson-agx-orin", "dgx-spark")


def numbers() -> dict[str, float]:
    """A mixture of experts beside a dense model: gigabytes that a token reads, and GiB of the weights."""
    numbers: dict[str, float] = {}
    for key, name in (("moe", "qwen3-30b-a3b"), ("dense", "llama-3.1-8b")):
        model = shape(name, MIX)
        numbers |= {f"{key}_token": token_bytes(model) / GB, f"{key}_gib": model.tensor_bytes / GIB}
    return numbers


def budget_table() -> Table:
    """Heads and rows: million weights that each budget can hold if nothing else needs memory."""
    return ("device", "budget", "at most, million weights"), [
        (name, bytes_text(n_bytes), f"{float(f'{budget.most_weights(n_bytes, Q4_0_BITS) / 1e6:.3g}'):,g}")
        for name, n_bytes in BUDGETS.items()
    ]


def bounds_table() -> Table:
    """Heads and rows: for each device, its most memory, its bandwidth, and upper bounds of decode in tokens/s."""
    rows = []
    for card in map(known_card, DEVICES):
        memory, rate, bounds = max(card.memory_bytes), card.bandwidth_bytes_per_second, []
        for name in MODELS.values():
            fits = budget.needed_bytes(known_models()[name], N_CTX) <= memory
            bounds.append(f"{rate / token_bytes(shape(name, MIX)):.0f}" if fits else "too large")
        facts = f"{memory / GIB:.0f}", f"{rate / GB:.0f}", f"{{cite}}`{card.source}`"
        rows.append((card.title.split(",")[0], *facts, *bounds))
    return ("device", "at most, GB", "GB/s", "source", *MODELS), rows
