"""Computes what Ollama asks of its llama-server where you set nothing, and how much of a long prompt it keeps.

    n_ctx of llama-server   = parallel * min(num_ctx, trained context)
    tokens kept of a prompt = num_ctx - max(1, (num_ctx - keep) // 2), where it has num_ctx tokens or more

Read in Ollama's source; versions, lines and thresholds are in data/facts/ollama.toml. Ollama itself was not run.
How many layers then go to the card is llama-server's decision: `prediction.fit` computes it.
"""

from __future__ import annotations

from inferlab.errors import InvalidSettings
from inferlab.facts import cited_facts
from inferlab.model.gguf import Model
from inferlab.prediction.budget import cache_bytes
from inferlab.settings import Settings
from inferlab.units import GIB


def default(name: str) -> float:
    """A number of data/facts/ollama.toml by its name, such as `context-small`."""
    return cited_facts("ollama")[name].value


def default_context(vram_bytes: float) -> int:
    """Tokens of num_ctx for so many bytes of memory of all GPUs together (server/routes.go:2050)."""
    for tier in ("large", "medium"):
        if vram_bytes >= default(f"vram-{tier}") * GIB:
            return int(default(f"context-{tier}"))
    return int(default("context-small"))


def request_context(model: Model, num_ctx: int) -> int:
    """Tokens of one request: num_ctx, at most the trained context (llm/server.go:113)."""
    return min(num_ctx, model.n_ctx_train or num_ctx)


def batch(model: Model, n_cells: int, free_bytes: float) -> int:
    """Tokens of num_batch where nobody sets it, with flash attention (server/sched.go:822).

    n_cells are those of all requests, free_bytes the card's. The larger batches need room beside weights and cache.
    Ollama estimates the cache in F16 without sliding windows, so a quantized cache changes nothing.
    """
    needed = model.file_bytes + cache_bytes(model, n_cells, swa_full=True)
    for size, above in (("large", "medium"), ("medium", "small")):
        room = default("planned-share") * free_bytes - default(f"batch-{size}-more") * GIB
        has_room = needed <= min(room, default(f"batch-{size}-share") * free_bytes)
        if n_cells > default(f"context-{above}") and has_room:
            return int(default(f"batch-{size}"))
    return int(default("batch-small"))


def launched(
    model: Model, free_bytes: float, num_ctx: int | None = None, parallel: int = 1, cache_type: str = "f16"
) -> Settings:
    """The settings that llama-server gets for one card with so many free bytes, with flash attention on.

    num_ctx is the context of one request (None: the default for that card), parallel OLLAMA_NUM_PARALLEL, and
    cache_type OLLAMA_KV_CACHE_TYPE. The number of layers stays open (-1). Raises InvalidSettings for parallel below 1.
    """
    if parallel < 1:
        raise InvalidSettings(f"parallel={parallel} serves no request. Give 1 or more.")
    n_cells = parallel * request_context(model, num_ctx or default_context(free_bytes))
    size = batch(model, n_cells, free_bytes)
    return Settings(
        n_ctx=n_cells, n_seq_max=parallel, n_batch=size, n_ubatch=size, flash_attn="on", swa_full=False,
        type_k=cache_type, type_v=cache_type,
    )  # fmt: skip


def kept_of_prompt(n_prompt: int, num_ctx: int, keep: int | None = None) -> int:
    """Tokens that reach the model of a prompt which Ollama renders itself (llm/llama_server.go:279, 321).

    keep is num_keep, and one more where the tokenizer adds a first token (None: both defaults). What is cut stands
    after the kept beginning. Raises InvalidSettings for a context of fewer than 2 tokens.
    """
    if num_ctx < 2:
        raise InvalidSettings(f"num_ctx={num_ctx} leaves no room for a prompt and an answer. Give 2 or more.")
    if n_prompt < num_ctx:
        return n_prompt
    kept = min(int(default("kept-tokens")) + 1 if keep is None else keep, num_ctx - 1)
    return num_ctx - max(1, (num_ctx - kept) // 2)
