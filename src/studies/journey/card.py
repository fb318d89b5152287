"""A conversation on a card of 8 GiB, computed: what fits, three ways to a longer context, the least time of it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from inferlab.facts import cited_facts
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction import decode_bound
from inferlab.prediction.fit import Fit, fit
from inferlab.prediction.free_memory import machine_for
from inferlab.prediction.link_rates import cited_rungs
from inferlab.prediction.memory import MemoryPlan, kv_cache_bytes_per_token
from inferlab.prediction.predict import predict_memory
from inferlab.settings import Settings
from inferlab.units import GB, GIB, KIB
from studies.journey.chain import CARD, Places, least_clock, least_start, least_token

MODELS = {"Mistral 7B v0.3": "mistral-7b-v0.3", "Llama 3.1 8B": "llama-3.1-8b", "Gemma 3 4B": "gemma-3-4b"}
MISTRAL, LLAMA = "mistral-7b-v0.3", "llama-3.1-8b"
N_NEW, N_ANSWER, LONG = 1500, 500, 32_768
"""Tokens of each prompt and answer, and of the longer context."""
ON = Settings(flash_attn="on", swa_full=False)
Q8 = {"type_k": "q8_0", "type_v": "q8_0"}


def numbers(longest: int) -> dict[str, float | str | None]:
    """The numbers of the page that are computed for the card; `longest` context of Mistral 7B with a cache in F16."""
    mistral, first = _model(MISTRAL), _first(longest)
    lines = [_fit(name, **Q8).plan.most_bytes(CARD) / GIB for name in (MISTRAL, LLAMA)]
    display = fit(
        _model(LLAMA), ON.but(n_ctx=LONG, **Q8), vram="8GiB", simulate=False, reserve_bytes=2 * GIB, within_trained=True
    )
    turns, too_long = _turns(longest), _fit(MISTRAL)
    return {
        "line_gib": min(lines),
        "line_most_gib": max(lines),
        "longest_display": display.largest_n_ctx.value,
        "rate_first": _most_rate(first, N_NEW),
        "rate_last": _most_rate(first, longest - 1),
        "n_turns": len(turns) // 2,
        "n_tokens": turns[-1][1],
        "all_s": turns[-1][0],
        "missing_gib": -too_long.margin_bytes / GIB,
        "most_layers": too_long.most_layers.value,
        "all_layers": mistral.n_layer + 1,
        "token_kib": kv_cache_bytes_per_token(mistral) / KIB,
        "n_ubatches": -(-N_NEW // 512),
        "share": _reached_share(),
    }


def models_table(longest_context: Callable[..., int]) -> tuple[Sequence[str], list[Sequence[str | float]]]:
    """Heads and rows: each model's file and its longest contexts, as `longest_context(model, cache_type)` says."""
    heads = "model in Q4_K_M", "file, GiB", "longest, `f16` cache", "longest, `q8_0` cache", "trained for"
    models = {name: _model(key) for name, key in MODELS.items()}
    return heads, [
        (name, model.tensor_bytes / GIB, longest_context(key), longest_context(key, "q8_0"), model.n_ctx_train)
        for (name, model), key in zip(models.items(), MODELS.values(), strict=True)
    ]


def ways_table(longest: int) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: three ways to the longer context, with bytes on the card and most tokens/s at three depths."""
    ways: dict[str, dict[str, Any]] = {
        "`q8_0` cache": Q8,
        "fewer layers on the card": {"n_gpu_layers": _fit(MISTRAL).most_layers.value},
        "cache in RAM": {"offload_kqv": False},
    }
    plans = {name: _plan(n_ctx=LONG, **changes) for name, changes in ways.items()}
    return ("way", "card, GiB", "at most, 1,500 tokens deep", f"{longest:,} deep", "full"), [
        (
            name,
            f"{plan.most_bytes(CARD) / GIB:.2f}",
            *(f"{_most_rate(plan, depth):.1f}" for depth in (N_NEW, longest, LONG - 1)),
        )
        for name, plan in plans.items()
    ]


def phases_table(longest: int) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: each phase of the conversation, its bytes and least seconds, and what then is on the card."""
    mistral, first, turns = _model(MISTRAL), _first(longest), _turns(longest)
    card, start = first.devices[CARD], least_start(first, mistral, _places())
    prompt, answer, more = turns[1][0] - turns[0][0], turns[2][0] - turns[1][0], turns[-1][0] - turns[2][0]
    weights = f"{card.weights_bytes / GIB:.2f} GiB of weights"
    rest, whole = (card.kv_cache_bytes + card.compute_bytes) / GIB, f"{first.most_bytes(CARD) / GIB:.2f} GiB in all"
    readings = f"weights of the layers, {-(-N_NEW // 512)} times"
    return ("phase", "bytes", "at least, s", "then on the card"), [
        ("read the file into RAM", f"{mistral.file_bytes / GB:.2f} GB", f"{start['read']:.2f}", "nothing"),
        ("copy the weights", f"{card.weights_bytes / GB:.2f} GB", f"{start['copy']:.2f}", weights),
        ("make the context", f"{rest:.2f} GiB", "no limit", whole),
        ("first prompt", readings, f"{prompt:.3f}", "no change"),
        ("first answer", "weights and cells, 500 times", f"{answer:.2f}", "no change"),
        (f"{len(turns) // 2 - 1} more turns", "the same, with more cells", f"{more:.1f}", "no change"),
    ]


def ratings_table() -> tuple[Sequence[str], list[Sequence[str]]]:
    """Heads and rows: the cited rate of each place that bytes cross, with its source."""
    places = _places()
    rungs = {"the disk": places.disk, "the bus": places.bus, "host RAM": places.ram, "the card's memory": places.card}
    return ("the bytes cross", "rating of the example", "GB/s", "source"), [
        (name, rung.name, f"{rung.bytes_per_second / GB:.4g}", f"{{cite}}`{rung.source}`")
        for name, rung in rungs.items()
    ]


def _model(name: str) -> Model:
    return shape(name, "Q4_K_M")


def _fit(name: str, **changes: str) -> Fit:
    """Whether the longer context fits on the card."""
    return fit(_model(name), ON.but(n_ctx=LONG, **changes), vram="8GiB", simulate=False)


def _plan(**changes: Any) -> MemoryPlan:
    return predict_memory(_model(MISTRAL), ON.but(**changes), machine_for(vram="8GiB"), simulate=False)


def _first(longest: int) -> MemoryPlan:
    """The plan of the conversation that the page times: a cache in F16 as long as the card holds."""
    return _plan(n_ctx=longest)


def _turns(longest: int) -> list[tuple[float, int]]:
    return least_clock(_first(longest), _model(MISTRAL), N_NEW, N_ANSWER, _places())


def _most_rate(plan: MemoryPlan, depth: int) -> float:
    """Most tokens/s on top of `depth` cells."""
    return 1 / least_token(plan, _model(MISTRAL), depth, _places())


def _places() -> Places:
    cited = {rung.name: rung for rung in cited_rungs()}
    return Places(
        disk=cited["NVMe SSD (990 PRO)"],
        bus=cited["PCIe 4.0, 8 lanes"],
        ram=cited["DDR5-5600, two channels"],
        card=cited["GeForce RTX 4060"],
    )


def _reached_share() -> float:
    """Percent of its bandwidth that a cited RTX 4080 reached in decode."""
    facts = {name: fact.value for name, fact in cited_facts("cards").items()}
    read = decode_bound.token_bytes(shape("qwen2.5-7b", "Q4_K_M"))
    return 100 * facts["rtx-4080-decode"] * read / (GB * facts["rtx-4080-bandwidth"])
