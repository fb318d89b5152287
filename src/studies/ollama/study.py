"""Computes what Ollama asks of its llama-server where you set nothing, and how much of a long prompt it keeps.

    n_ctx of llama-server   = parallel * min(num_ctx, trained context)
    tokens kept of a prompt = num_ctx - max(1, (num_ctx - keep) // 2), where it has num_ctx tokens or more

Read in Ollama's source; versions, lines and thresholds are in data/facts/ollama.toml. Ollama itself was not run.
How many layers then go to the card is llama-server's decision: `prediction.fit` computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from inferlab.facts import cited_facts
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.budget import cache_bytes
from inferlab.prediction.fit import Fit, fit
from inferlab.settings import Settings
from inferlab.units import GIB, KIB

NAMES = {
    "mistral-7b-v0.3": "Mistral 7B v0.3",
    "llama-3.1-8b": "Llama 3.1 8B",
    "qwen2.5-7b": "Qwen2.5 7B",
    "gemma-3-4b": "Gemma 3 4B",
}
LLAMA, QWEN, MOE = "llama-3.1-8b", "qwen2.5-7b", "qwen3-30b-a3b"
TIERS = ("small", "medium", "large")
SHOWN = ("vram-medium", "vram-large", "said-in-modelfile", "said-in-faq", "kept-tokens")
CARD_GIB = 8


# --- what Ollama asks -------------------------------------------------------------------------


def default(name: str) -> float:
    """A number of data/facts/ollama.toml by its name, such as `context-small`."""
    return cited_facts("ollama")[name].value


def default_contexts() -> list[int]:
    """Tokens of num_ctx on a small, a medium and a large card."""
    return [int(default(f"context-{tier}")) for tier in TIERS]


def default_context(vram_bytes: float) -> int:
    """Tokens of num_ctx for so many bytes of memory of all GPUs together (server/routes.go:2050)."""
    reached = [tier for tier in TIERS[1:] if vram_bytes >= default(f"vram-{tier}") * GIB]
    return default_contexts()[len(reached)]


def request_context(model: Model, num_ctx: int) -> int:
    """Tokens of one request: num_ctx, at most the trained context (llm/server.go:113)."""
    return min(num_ctx, model.n_ctx_train or num_ctx)


def batch(model: Model, n_cells: int, free_bytes: float) -> int:
    """Tokens of num_batch where nobody sets it, with flash attention (server/sched.go:822).

    n_cells are those of all requests, free_bytes the card's. The larger batches need space beside weights and cache.
    Ollama estimates the cache in F16 without sliding windows, so a quantized cache changes nothing.
    """
    needed = model.file_bytes + cache_bytes(model, n_cells, swa_full=True)
    for size, above in (("large", "medium"), ("medium", "small")):
        space = default("planned-share") * free_bytes - default(f"batch-{size}-more") * GIB
        fits = needed <= min(space, default(f"batch-{size}-share") * free_bytes)
        if n_cells > default(f"context-{above}") and fits:
            return int(default(f"batch-{size}"))
    return int(default("batch-small"))


def launched(
    model: Model, free_bytes: float, num_ctx: int | None = None, parallel: int = 1, cache_type: str = "f16"
) -> Settings:
    """The settings that llama-server gets for one card with so many free bytes, with flash attention on.

    num_ctx is the context of one request (None: the default for that card), parallel OLLAMA_NUM_PARALLEL, and
    cache_type OLLAMA_KV_CACHE_TYPE. The number of layers stays open (-1).
    """
    n_cells = parallel * request_context(model, num_ctx or default_context(free_bytes))
    size = batch(model, n_cells, free_bytes)
    return Settings(
        n_ctx=n_cells,
        n_seq_max=parallel,
        n_batch=size,
        n_ubatch=size,
        flash_attn="on",
        swa_full=False,
        type_k=cache_type,
        type_v=cache_type,
    )


def kept_of_prompt(n_prompt: int, num_ctx: int, keep: int | None = None) -> int:
    """Tokens that reach the model of a prompt which Ollama renders itself (llm/llama_server.go:279, 321).

    keep is num_keep, and one more where the tokenizer adds a first token (None: both defaults). What is cut stands
    after the kept beginning.
    """
    if n_prompt < num_ctx:
        return n_prompt
    kept = min(int(default("kept-tokens")) + 1 if keep is None else keep, num_ctx - 1)
    return num_ctx - max(1, (num_ctx - kept) // 2)


# --- what the page shows ----------------------------------------------------------------------


def numbers() -> dict[str, float | str]:
    """The numbers of the page *Ollama and LM Studio*: defaults, and layers of a few loads on the card."""
    small, medium, _ = default_contexts()
    less = _fitted(LLAMA, medium, cache_type="q8_0", gib=CARD_GIB - 1)
    return {
        **{f"ctx_{tier}": n_ctx for tier, n_ctx in zip(TIERS, default_contexts(), strict=True)},
        **{name.replace("-", "_"): default(name) for name in (*SHOWN, *(f"batch-{tier}" for tier in TIERS))},
        "card": CARD_GIB,
        "layers_medium": _layers_text(LLAMA, _fitted(LLAMA, medium)),
        "llama_q8": _layers_text(LLAMA, _fitted(LLAMA, medium, cache_type="q8_0")),
        "less_gib": CARD_GIB - 1,
        "less_layers": _layers_text(LLAMA, less),
        "less_longest": less.largest_n_ctx.value,
        "reserve_gib": less.reserve_bytes / GIB,
        "kept": kept_of_prompt(10_000, small),
        "eight_layers": _layers_text(LLAMA, _fitted(LLAMA, small, parallel=8)),
        "llama_kib": cache_bytes(_model(LLAMA), 256) / 256 / KIB,
        "qwen_kib": cache_bytes(_model(QWEN), 256) / 256 / KIB,
        "llama_file": _model(LLAMA).file_bytes / GIB,
        "qwen_file": _model(QWEN).file_bytes / GIB,
        "moe_small": _cache_gib(MOE, small),
        "moe_medium": _cache_gib(MOE, medium),
    }


def layer_shares() -> dict[str, list[tuple[int, float]]]:
    """For each model: (context of one request, percent of its layers on the card), up to the trained context."""
    steps = sorted({256 * round(2 ** (11 + step / 3) / 256) for step in range(22)} | set(default_contexts()))
    shares = {}
    for key, name in NAMES.items():
        every, lengths = _model(key).n_layer + 1, [n_ctx for n_ctx in steps if n_ctx <= _model(key).n_ctx_train]
        shares[name] = [(n_ctx, 100 * _layers(_fitted(key, n_ctx)) / every) for n_ctx in lengths]
    return shares


def layers_table(longest_context: Callable[..., int]) -> tuple[Sequence[str], Sequence[Sequence[str]]]:
    """Heads and rows: layers on the card for two defaults, the cache, and `longest_context(model, cache_type)`."""
    small, medium, _ = default_contexts()
    rows = []
    for key, name in NAMES.items():
        layers = (_layers_text(key, _fitted(key, n_ctx)) for n_ctx in (small, medium))
        longest = (f"{longest_context(key, cache_type):,}" for cache_type in ("f16", "q8_0"))
        rows.append((name, *layers, f"{_cache_gib(key, medium):.2f}", *longest))
    return ("model", f"{small:,}", f"{medium:,}", "its cache, GiB", "longest, f16", "longest, q8_0"), rows


@cache
def _model(key: str) -> Model:
    return shape(key, "Q4_K_M")


def _fitted(key: str, num_ctx: int, parallel: int = 1, cache_type: str = "f16", gib: int = CARD_GIB) -> Fit:
    """What llama-server fits of Ollama's settings on a card with so many GiB free."""
    asked = launched(_model(key), gib * GIB, num_ctx, parallel, cache_type)
    return fit(_model(key), asked, vram=f"{gib}GiB", simulate=False)


def _layers(fitted: Fit) -> int:
    """Layers on the card, the output layer counted."""
    return int(fitted.most_layers.value or 0)


def _layers_text(key: str, fitted: Fit) -> str:
    every = _model(key).n_layer + 1
    return "all" if _layers(fitted) == every else f"{_layers(fitted)} of {every}"


def _cache_gib(key: str, num_ctx: int) -> float:
    return cache_bytes(_model(key), request_context(_model(key), num_ctx)) / GIB
