"""Budgets of memory in weights, and upper bounds of decode from rated bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.model.catalog import known_models
from inferlab.model.synthetic_model import shape
from inferlab.prediction import budget
from inferlab.prediction.cards import KnownCard, known_card
from inferlab.prediction.decode_bound import token_bytes
from inferlab.units import GB, GIB, KIB, MIB, bytes_text

Table = tuple[Sequence[str], list[Sequence[str]]]

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
    found = {}
    for key, name in (("moe", "qwen3-30b-a3b"), ("dense", "llama-3.1-8b")):
        model = shape(name, MIX)
        found |= {f"{key}_token": token_bytes(model) / GB, f"{key}_gib": model.tensor_bytes / GIB}
    return found


def budget_table() -> Table:
    """Heads and rows: million weights that each budget can hold if nothing else needs memory."""
    return ("device", "budget", "at most, million weights"), [
        (name, bytes_text(n_bytes), f"{float(f'{budget.most_weights(n_bytes, Q4_0_BITS) / 1e6:.3g}'):,g}")
        for name, n_bytes in BUDGETS.items()
    ]


def bounds_table() -> Table:
    """Heads and rows: for each device, its most memory, its bandwidth, and upper bounds of decode in tokens/s."""
    return ("device", "at most, GB", "GB/s", "source", *MODELS), [_bounds_row(known_card(name)) for name in DEVICES]


def _bounds_row(card: KnownCard) -> Sequence[str]:
    return (
        card.title.split(",")[0],
        f"{max(card.memory_bytes) / GIB:.0f}",
        f"{card.bandwidth_bytes_per_second / GB:.0f}",
        f"{{cite}}`{card.source}`",
        *(_bound(card, name) for name in MODELS.values()),
    )


def _bound(card: KnownCard, name: str) -> str:
    if budget.needed_bytes(known_models()[name], N_CTX) > max(card.memory_bytes):
        return "too large"
    return f"{card.bandwidth_bytes_per_second / token_bytes(shape(name, MIX)):.0f}"
