"""Sizes of caches, by formulas and as llama.cpp reserves them, and the work that a cache saves.

What a page measures is an argument; the rest is computed from headers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.engine.protocol import Engine
from inferlab.measurement.memory import reserved_bytes
from inferlab.measurement.run import Run
from inferlab.model.catalog import known_model
from inferlab.model.find import tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.prediction import cost
from inferlab.prediction.memory import kv_cache_bytes, kv_cache_bytes_per_token
from inferlab.prediction.memory.cache import cache_layers, state_bytes
from inferlab.settings import Settings
from inferlab.units import GIB, KIB, MIB

NARROW: dict[str, Any] = {"n_embd": 256, "n_ff": 256, "n_vocab": 512}
"""Dimensions of a small file that has another model's layers and heads."""
FORMULAS = {
    "right": "",
    "query heads": "Query heads are not stored. Here four of them share one KV head.",
    "hidden width": "All KV heads together need not be as wide as the hidden state. For the real Llama 3.1 8B, "
    "4096 wide, the result is four times too large.",
    "whole bytes": "The scales of the blocks are missing.",
    "cells as asked": "The engine rounds 1000 up to 1024.",
}
"""Readings of the formula (`cost.kv_readings`) -> what is wrong with them."""
PLAIN = Settings(n_ctx=1024)
CHANGES = {
    "none": PLAIN,
    "keys and values in Q8_0": PLAIN.but(type_k="q8_0", type_v="q8_0"),
    "keys and values in Q4_0": PLAIN.but(type_k="q4_0", type_v="q4_0"),
    "four sequences, a quarter of the cells each": PLAIN.but(n_seq_max=4),
    "four sequences, one pool": PLAIN.but(n_seq_max=4, kv_unified=True),
    "`n_ctx` = 512": PLAIN.but(n_ctx=512),
}
GROUPED = ("llama-2-7b", "mistral-7b-v0.3", "llama-3.1-8b", "qwen2.5-7b", "llama-3.2-1b")

Rows = tuple[Sequence[str], Sequence[Sequence[str | float]]]


def numbers() -> dict[str, float]:
    """The numbers of the page *KV cache* that follow from headers: sizes, and how the work of a text grows."""
    row, mistral = kv_cache_bytes_per_token(known_model("llama-3.1-8b")), shape("mistral-7b-v0.3", "Q4_K_M")
    values = {
        "llama_kib": row / KIB,
        "llama_8k_gib": 8192 * row / GIB,
        "even_mistral": cost.break_even_cells(mistral.tensor_bytes, mistral),
    }
    for key, cached in (("kept", True), ("again", False)):
        for far, n_tokens in (("", 1000), ("_far", 1_000_000)):
            long, short = (cost.total_operations(mistral, n, cached) for n in (10 * n_tokens, n_tokens))
            values[f"ten_{key}{far}"] = long / short
    return values


def formula_table(reserved: int, readings: Mapping[str, int]) -> Rows:
    """Heads and rows: MiB by each formula, beside what the engine reserved."""
    rows = [(name, f"{readings[name] / MIB:.2f}", why) for name, why in FORMULAS.items()]
    return ("formula", "MiB", "what is wrong"), [("*reserved by the engine*", f"{reserved / MIB:.2f}", ""), *rows]


def sizes_by_change() -> dict[str, float]:
    """Change of a setting -> MiB that the embedded model's cache takes then."""
    return {name: reserved_bytes(None, settings) / MIB for name, settings in CHANGES.items()}


def sizes_by_weights() -> dict[str, float]:
    """Type of the weights -> MiB of the cache of two layers of the small file."""
    paths = {kind: make_shape("llama-3.1-8b", kind, n_layer=2, **NARROW) for kind in ("F16", "Q8_0", "Q4_0")}
    return {kind: reserved_bytes(path, PLAIN) / MIB for kind, path in paths.items()}


def size_numbers(
    readings: Mapping[str, int], by_change: Mapping[str, float], by_weights: Mapping[str, float]
) -> dict[str, float | str]:
    """Formulas in MiB, quantized caches in per cent of a plain one, and the sizes by type of the weights."""
    return {
        "kv_right": readings["right"] / MIB,
        "kv_heads": readings["query heads"] / MIB,
        "kv_whole": readings["whole bytes"] / MIB,
        "kv_asked": readings["cells as asked"] / MIB,
        "q8_share": 100 * by_change["keys and values in Q8_0"] / by_change["none"],
        "q4_share": 100 * by_change["keys and values in Q4_0"] / by_change["none"],
        "by_weights": ", ".join(f"{mib:.2f}" for mib in by_weights.values()),
    }


def answer_numbers(answer: Run) -> dict[str, float]:
    """A long answer of the embedded model: cells in use at its ends, bytes reserved, and those of the process."""
    cell = kv_cache_bytes_per_token(read_gguf(tiny_model()))
    resident = [sample.rss_bytes for sample in answer.samples if sample.rss_bytes]
    return {
        "reserved_mib": answer.bytes_on("kv_cache") / MIB,
        "used_first_kib": answer.n_prompt * cell / KIB,
        "used_last_mib": (answer.n_prompt + answer.n_gen - 1) * cell / MIB,
        "rss_first": resident[0] / MIB,
        "rss_last": resident[-1] / MIB,
    }


def work_numbers(depths: Sequence[Run], kept: Run, forgot: Run) -> dict[str, float | str]:
    """The next token after the longest text, and a whole answer, with a cache and without."""
    last = depths[-1]
    again, token = last.prefill_seconds, median(s for each in last.passes for s in each.decode_seconds)
    (with_cache,), (without,) = kept.passes, forgot.passes
    rounding = "rounding in another order changed one choice, and the texts differ from there on"
    return {
        "again_ms": 1e3 * again,
        "kept_ms": 1e3 * token,
        "again_factor": again / token,
        "all_tokens": len(with_cache.tokens),
        "forgot_factor": without.token_seconds[-1] / with_cache.token_seconds[-1],
        "same_remark": "both answers are the same text" if with_cache.tokens == without.tokens else rounding,
    }


def heads_table() -> Rows:
    """Heads and rows: how many heads of models keep keys and values, and from where on their cache is the larger."""
    models = {known_model(name).name: shape(name, "Q4_K_M") for name in GROUPED}
    models["Mistral 7B, if it used MQA"] = shape("mistral-7b-v0.3", "Q4_K_M", n_head_kv=1)
    heads = (
        "model in Q4_K_M",
        "KV heads",
        "query heads per KV head",
        "KiB per token, 16 bits",
        "tokens of cache as large as the weights",
    )
    return heads, [
        (
            name,
            model.n_head_kv,
            model.n_head // model.n_head_kv,
            f"{kv_cache_bytes_per_token(model) / KIB:.0f}",
            f"{round(cost.break_even_cells(model.tensor_bytes, model)):,}",
        )
        for name, model in models.items()
    ]


@dataclass(frozen=True)
class PlannedCache:
    """One cache: bytes planned, of which those of recurrent states, and bytes that llama.cpp logged, to 0.01 MiB."""

    name: str
    n_ctx: int
    planned_bytes: int
    state_bytes: int
    logged_bytes: int


def planned_and_logged(
    models: Mapping[str, str | Path], contexts: Sequence[int], engine: Engine | None = None
) -> tuple[PlannedCache, ...]:
    """Each model at each context, planned and then opened, with windows that are not kept whole.

    Raises what `kv_cache_bytes` and `reserved_bytes` raise.
    """
    caches, settings = [], Settings(swa_full=False, flash_attn="on")
    for name, path in models.items():
        header = read_gguf(path)
        for asked in (settings.but(n_ctx=n_ctx) for n_ctx in contexts):
            states = sum(state_bytes(layer, asked) for layer in cache_layers(header))
            planned, logged = kv_cache_bytes(header, asked), reserved_bytes(path, asked, engine=engine)
            caches.append(PlannedCache(name, asked.n_ctx, planned, states, logged))
    return tuple(caches)


def caches_text(caches: Sequence[PlannedCache]) -> str:
    """One line for each cache, and one for the growth of each model."""
    lines = [
        f"{cache.name}, {cache.n_ctx:,} cells: planned {cache.planned_bytes / MIB:.2f} MiB, of which "
        f"{cache.state_bytes / MIB:.2f} MiB states; llama.cpp logged {cache.logged_bytes / MIB:.2f} MiB"
        for cache in caches
    ]
    for name in dict.fromkeys(cache.name for cache in caches):
        sizes = [cache.logged_bytes for cache in caches if cache.name == name]
        lines.append(f"{name}: the last is {sizes[-1] / sizes[0]:.2f} times the first")
    return "\n".join(lines)
