"""Computes cells and bytes of a cache in blocks beside llama.cpp's; nothing of vLLM runs here.

    cells in blocks     sum over conversations of ceil(tokens / block) * block
    cells in slots      conversations * ceil256(n_ctx of a slot)
    bytes for a pool    share * memory of the card - weights

The last is an upper bound: vLLM also takes off what a test run needs for activations, and CUDA graphs.
Block and share are vLLM's defaults, in data/facts/vllm.toml with their source; ceil256 is llama.cpp's (`memory.cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferlab.errors import InvalidSettings
from inferlab.facts import cited_facts
from inferlab.prediction.memory.cache import cells
from inferlab.settings import Settings


def default(name: str) -> float:
    """A default of vLLM by its name in data/facts/vllm.toml, such as `memory-share`."""
    return cited_facts("vllm")[name].value


def cells_in_blocks(lengths: Sequence[int], block_tokens: int | None = None) -> int:
    """Cells of the blocks that hold conversations of so many tokens, each beginning a block of its own.

    Raises InvalidSettings for a block of no tokens.
    """
    block = int(default("block-tokens")) if block_tokens is None else block_tokens
    if block < 1:
        raise InvalidSettings(f"block_tokens={block} holds no token. A block holds at least one.")
    return sum(-(-n // block) * block for n in lengths)


def cells_in_slots(lengths: Sequence[int], n_ctx: int) -> int:
    """Cells that llama.cpp reserves for a slot of `n_ctx` tokens for each conversation, whatever its length.

    Raises InvalidSettings where a conversation is longer than its slot.
    """
    if not lengths:
        return 0
    if max(lengths) > n_ctx:
        raise InvalidSettings(f"A conversation of {max(lengths)} tokens does not fit a slot of {n_ctx}. Raise n_ctx.")
    streams, each = cells(Settings(n_ctx=n_ctx * len(lengths), n_seq_max=len(lengths)))
    return streams * each


@dataclass(frozen=True)
class MemoryShare:
    """A card of which vLLM takes a share, and a model's weights on it; all in bytes but the share."""

    card_bytes: int
    weights_bytes: int
    share: float

    @property
    def share_bytes(self) -> int:
        """Bytes that the process may use: `gpu_memory_utilization` times the card's memory."""
        return round(self.share * self.card_bytes)

    @property
    def pool_bytes(self) -> int:
        """Most bytes for cache and activations; 0 where the weights exceed the share, and vLLM does not start."""
        return max(0, self.share_bytes - self.weights_bytes)

    @property
    def fits(self) -> bool:
        """Whether the weights leave anything of the share."""
        return self.weights_bytes < self.share_bytes

    @property
    def factor(self) -> float:
        """Bytes of the share over bytes of the weights."""
        return self.share_bytes / self.weights_bytes

    def tokens(self, bytes_per_token: int, block_tokens: int | None = None) -> int:
        """Most tokens in whole blocks that the pool holds, before activations take their part."""
        block = block_tokens or int(default("block-tokens"))
        return self.pool_bytes // (block * bytes_per_token) * block


def memory_share(card_bytes: int, weights_bytes: int, share: float | None = None) -> MemoryShare:
    """The share of a card that vLLM takes; without `share` its default. Raises InvalidSettings outside 0 to 1."""
    share = default("memory-share") if share is None else share
    if not 0 < share <= 1:
        raise InvalidSettings(f"share={share} is no share of a card's memory. It lies above 0 and is at most 1.")
    return MemoryShare(card_bytes, weights_bytes, share)


def steps_of_prompt(n_prompt: int, budget: int, n_running: int = 0) -> int:
    """Steps that read a prompt while `n_running` answers take one token each of a budget of tokens for a step.

    ceil(n_prompt / (budget - n_running)). Raises InvalidSettings where the answers leave nothing.
    """
    if budget <= n_running:
        raise InvalidSettings(f"{n_running} answers leave nothing of {budget} tokens for a step. Raise the budget.")
    return -(-n_prompt // (budget - n_running))
