"""The rate that a card's bandwidth allows, and the layers that a longer cache moves off a small card; by plans."""

from __future__ import annotations

from inferlab.facts import cited_facts
from inferlab.model.synthetic_model import shape
from inferlab.prediction.cost import break_even_cells
from inferlab.prediction.fit import fit
from inferlab.prediction.memory import kv_cache_bytes_per_token
from inferlab.settings import Settings
from inferlab.units import GIB

SHORT, LONG = 8_192, 32_768  # givens: tokens of context


def numbers() -> dict[str, float | str]:
    """The numbers of the page *Why is it slow?*."""
    return {**_bound_numbers(), **_context_numbers()}


def _bound_numbers() -> dict[str, float]:
    """Tokens per second that an RTX 4080 allows a 7B model, and the percent of them that were published."""
    cards = cited_facts("cards")
    weights = fit("qwen2.5-7b", vram="16GiB").plan.devices["gpu0"].weights_bytes
    bound = 1e9 * cards["rtx-4080-bandwidth"].value / weights
    return {"bound": bound, "share": 100 * cards["rtx-4080-decode"].value / bound}


def _context_numbers() -> dict[str, float | str]:
    """What two contexts of Mistral 7B need, and the layers that fit a card of 8 GiB beside the longer one."""
    mistral = shape("mistral-7b-v0.3", "Q4_K_M")
    found = fit(mistral, Settings(n_ctx=LONG, flash_attn="on"), vram="8GiB")
    layers, every = found.most_layers.value, mistral.n_layer + 1
    cell_bytes = kv_cache_bytes_per_token(mistral)
    return {
        "long_cache_gib": cell_bytes * LONG / GIB,
        "short_cache_gib": cell_bytes * SHORT / GIB,
        "layers_left": f"only {layers} of {every} layers fit" if layers < every else "all layers still fit",
        "break_even": break_even_cells(mistral.tensor_bytes, mistral),
    }
