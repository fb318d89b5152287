"""A Llama model in PyTorch: the network of `model.numpy_llama` on tensors, so that autograd can follow it.

Weights are 32-bit floats, as PyTorch's default; attention is PyTorch's own `scaled_dot_product_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from inferlab.measurement.pytorch import required
from inferlab.model import numpy_llama
from inferlab.model.gguf import Model


class TensorCache:
    """One layer's KV cache in tensors (n_cells, KV heads, width), allocated once; new rows are written into them."""

    def __init__(self, n_cells: int, n_head_kv: int, width: int) -> None:
        torch = required()
        self.n_used = 0
        self.keys, self.values = (torch.zeros(n_cells, n_head_kv, width) for _ in range(2))

    def add(self, keys: Any, values: Any) -> tuple[Any, Any]:
        """Write rows (n, KV heads, width) after those in use; returns views of all rows in use."""
        end = self.n_used + len(keys)
        self.keys[self.n_used : end], self.values[self.n_used : end] = keys, values
        self.n_used = end
        return self.keys[:end], self.values[:end]


class TorchLlama:
    """A dense Llama-shaped model read from a GGUF file with F16 or F32 tensors; its weights are trainable.

    Raises PyTorchUnavailable, and UnsupportedArchitecture for other files.
    """

    def __init__(self, model: Model) -> None:
        self.torch, read = required(), numpy_llama.Llama(model)
        self.shape, self.epsilon, self.base = model, read.epsilon, read.base
        self.weights = {name: self.torch.from_numpy(array).requires_grad_() for name, array in read.weights.items()}

    def caches(self, n_cells: int) -> list[TensorCache]:
        """An empty cache of `n_cells` for each layer."""
        return [TensorCache(n_cells, self.shape.n_head_kv, self.shape.head_dim_k) for _ in range(self.shape.n_layer)]

    def logits(
        self, tokens: Sequence[int], caches: Sequence[TensorCache] | None = None, last_only: bool = False
    ) -> Any:
        """Logits (n_tokens, n_vocab) after each of `tokens`, or (1, n_vocab) after the last.

        With `caches` the tokens follow those cached: several tokens into empty caches, or one token into any.
        """
        caches = caches or [None] * self.shape.n_layer
        turns = self.turns(caches[0].n_used if caches[0] else 0, len(tokens))
        x = self.weights["token_embd"][self.torch.as_tensor(tokens)]
        for layer, cache in enumerate(caches):
            name = f"blk.{layer}."
            x = x + self.attention(self.norm(x, name + "attn_norm"), name, turns, cache)
            x = x + self.feed_forward(self.norm(x, name + "ffn_norm"), name)
        x = self.norm(x[-1:] if last_only else x, "output_norm")
        return x @ self.weights.get("output", self.weights["token_embd"]).T

    def loss(self, tokens: Sequence[int]) -> Any:
        """Mean negative log-likelihood in nats of each token after the first, given the tokens before it."""
        targets = self.torch.as_tensor(tokens[1:])
        return self.torch.nn.functional.cross_entropy(self.logits(tokens[:-1]), targets)

    def norm(self, x: Any, name: str) -> Any:
        """Root mean square norm over each row, times its weights."""
        return self.torch.nn.functional.rms_norm(x, x.shape[-1:], self.weights[name], self.epsilon)

    def feed_forward(self, x: Any, name: str) -> Any:
        """down(silu(gate(x)) * up(x)): each token by itself."""
        gate, up = x @ self.weights[name + "ffn_gate"].T, x @ self.weights[name + "ffn_up"].T
        return (self.torch.nn.functional.silu(gate) * up) @ self.weights[name + "ffn_down"].T

    def attention(self, x: Any, name: str, turns: tuple[Any, Any], cache: TensorCache | None) -> Any:
        """Causal attention over each token and those before it; KV heads are shared by groups of query heads."""
        queries, keys, values = (self.heads(x, name + part) for part in ("attn_q", "attn_k", "attn_v"))
        queries, keys = rotated(self.torch, queries, turns), rotated(self.torch, keys, turns)
        if cache:
            keys, values = cache.add(keys, values)
        mixed = self.torch.nn.functional.scaled_dot_product_attention(
            *(rows.transpose(0, 1)[None] for rows in (queries, keys, values)), is_causal=len(x) > 1, enable_gqa=True
        )
        return mixed[0].transpose(0, 1).reshape(len(x), -1) @ self.weights[name + "attn_output"].T

    def heads(self, x: Any, name: str) -> Any:
        """A projection cut into heads: (n_tokens, n_head or n_head_kv, width)."""
        return (x @ self.weights[name].T).reshape(len(x), -1, self.shape.head_dim_k)

    def turns(self, first: int, n_tokens: int) -> tuple[Any, Any]:
        """Cosine and sine (n_tokens, 1, width / 2) of RoPE's angles at the positions from `first` on."""
        width = self.shape.head_dim_k
        frequencies = self.base ** (-self.torch.arange(0, width, 2, dtype=self.torch.float64) / width)
        angles = self.torch.arange(first, first + n_tokens)[:, None, None] * frequencies
        return angles.cos().float(), angles.sin().float()


def rotated(torch: Any, rows: Any, turns: tuple[Any, Any]) -> Any:
    """RoPE: neighboring values of each head rotated by an angle proportional to the position."""
    cos, sin = turns
    even, odd = rows[..., 0::2], rows[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
