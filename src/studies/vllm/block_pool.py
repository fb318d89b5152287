"""Computes cells and bytes of a cache in blocks beside llama.cpp's; nothing of vLLM runs here.

    cells in blocks     sum over conversations of ceil(tokens / block) * block
    cells in slots      conversations * ceil256(n_ctx of a slot)
    bytes for a pool    share * memory of the card - weights
    steps of a prompt   ceil(tokens / (budget of a step - running answers))

The pool is an upper bound: vLLM also takes off what a test run needs for activations, and CUDA graphs.
Block and share are vLLM's defaults, in data/facts/vllm.toml with their source; ceil256 is llama.cpp's (`memory.cache`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inferlab.facts import cited_facts
from inferlab.prediction.memory.cache import cells
from inferlab.settings import Settings


def default(name: str) -> float:
    """A default of vLLM by its name in data/facts/vllm.toml, such as `memory-share`."""
    return cited_facts("vllm")[name].value


def block_tokens() -> int:
    """Tokens of a block."""
    return int(default("block-tokens"))


def cells_in_blocks(lengths: Sequence[int]) -> int:
    """Cells of the blocks that hold conversations of so many tokens, each beginning a block of its own."""
    block = block_tokens()
    return sum(-(-n // block) * block for n in lengths)


def cells_in_slots(lengths: Sequence[int], n_ctx: int) -> int:
    """Cells that llama.cpp reserves for a slot of `n_ctx` tokens for each conversation, whatever its length."""
    streams, each = cells(Settings(n_ctx=n_ctx * len(lengths), n_seq_max=len(lengths)))
    return streams * each


@dataclass(frozen=True)
class MemoryShare:
    """A card of which vLLM takes its default share, and a model's weights on it, in bytes."""

    card_bytes: int
    weights_bytes: int

    @property
    def share_bytes(self) -> int:
        """Bytes that the process may use: `gpu_memory_utilization` times the card's memory."""
        return round(default("memory-share") * self.card_bytes)

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

    def tokens(self, bytes_per_token: int) -> int:
        """Most tokens in whole blocks that the pool holds, before activations take their part."""
        return tokens_in(self.pool_bytes, bytes_per_token)


def tokens_in(n_bytes: int, bytes_per_token: int) -> int:
    """Most tokens in whole blocks that a pool of so many bytes holds."""
    return n_bytes // (block_tokens() * bytes_per_token) * block_tokens()


def steps_of_prompt(n_prompt: int, budget: int, n_running: int) -> int:
    """Steps that read a prompt while `n_running` answers take one token each of a budget of tokens for a step."""
    return -(-n_prompt // (budget - n_running))
