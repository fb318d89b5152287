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
    """The numbers of the page *Why is it slow?*.

    What an RTX 4080 allows a 7B model, in tokens per second, and the percent of it that were published; then what two
    contexts of Mistral 7B need, and the layers that fit a card of 8 GiB beside the longer one.
    """
    cards, mistral = cited_facts("cards"), shape("mistral-7b-v0.3", "Q4_K_M")
    weights = fit("qwen2.5-7b", vram="16GiB").plan.devices["gpu0"].weights_bytes
    bound = 1e9 * cards["rtx-4080-bandwidth"].value / weights
    longer = fit(mistral, Settings(n_ctx=LONG, flash_attn="on"), vram="8GiB")
    layers, every, cell_bytes = int(longer.most_layers.value), mistral.n_layer + 1, kv_cache_bytes_per_token(mistral)
    return {
        "bound": bound,
        "share": 100 * cards["rtx-4080-decode"].value / bound,
        "long_cache_gib": cell_bytes * LONG / GIB,
        "short_cache_gib": cell_bytes * SHORT / GIB,
        "layers_left": f"only {layers} of {every} layers fit" if layers < every else "all layers still fit",
        "break_even": break_even_cells(mistral.tensor_bytes, mistral),
    }
