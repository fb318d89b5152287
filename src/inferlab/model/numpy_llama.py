"""A Llama model in NumPy, written to be read: the transformer block and its KV cache.

It computes with the embedded model's weights in float32; the book and a test compare it with llama.cpp.
It is slow and never used to measure speed; only F16 and F32 files are read.
The order of operations is that of llama.cpp's src/models/llama.cpp.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from inferlab.errors import UnsupportedArchitecture
from inferlab.model.dimensions import dimensions_of
from inferlab.model.gguf import Model

FLOATS = {"F32": np.float32, "F16": np.float16}
ORDERS = NORM_FIRST, NORM_LAST, NO_RESIDUAL = "norm first", "norm last", "norm last, nothing added"


class InPlace:
    """One layer's cache as llama.cpp keeps it: `n_cells` are allocated once, new rows are written into them."""

    def __init__(self, n_cells: int) -> None:
        self.n_cells, self.n_used = n_cells, 0
        self.keys = self.values = np.empty(0)

    def add(self, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Write rows (n, ...) after the last ones; returns views of all rows in use. Raises IndexError when full."""
        if not self.n_used:
            self.keys = np.zeros((self.n_cells, *keys.shape[1:]), keys.dtype)
            self.values = np.zeros((self.n_cells, *values.shape[1:]), values.dtype)
        end = self.n_used + len(keys)
        if end > self.n_cells:
            raise IndexError(f"{end} rows do not fit into {self.n_cells} cells.")
        self.keys[self.n_used : end], self.values[self.n_used : end] = keys, values
        self.n_used = end
        return self.keys[:end], self.values[:end]


class Llama:
    """A dense Llama-shaped model read from a GGUF file with F16 or F32 tensors.

    `order` says where the norms stand: NORM_FIRST as in the models of this book; NORM_LAST for attention,
    feed-forward network, norm; NO_RESIDUAL for the same without residual connections.
    Raises UnsupportedArchitecture for another architecture or for quantized tensors.
    """

    def __init__(self, model: Model, order: str = NORM_FIRST) -> None:
        types = {tensor.type for tensor in model.tensors} - FLOATS.keys()
        if model.architecture != "llama" or types:
            found = f"{model.architecture}, {', '.join(sorted(types)) or 'unquantized'}"
            raise UnsupportedArchitecture(f"{model.name} is {found}; the miniature runs llama files in F16 or F32.")
        self.size, self.order = dimensions_of(model), order
        self.weights = {t.name.removesuffix(".weight"): _array(model, t) for t in model.tensors}
        self.epsilon = model.metadata["llama.attention.layer_norm_rms_epsilon"]
        self.base = model.metadata.get("llama.rope.freq_base", 10000.0)

    def caches(self, n_cells: int) -> list[InPlace]:
        """An empty cache of `n_cells` for each layer."""
        return [InPlace(n_cells) for _ in range(self.size.n_layer)]

    def logits(self, tokens: Sequence[int], caches: Sequence[InPlace] | None = None, first: int = 0) -> np.ndarray:
        """Logits (n_tokens, n_vocab) after each of `tokens`, at positions `first`, `first` + 1, …

        `caches`, one for each layer, have the keys and values of earlier tokens; those of `tokens` are added.
        """
        caches = caches or self.caches(len(tokens))
        positions = first + np.arange(len(tokens))
        x = self.weights["token_embd"][list(tokens)]
        for layer, cache in enumerate(caches):
            x = self.block(x, layer, positions, cache)
        head = self.weights.get("output", self.weights["token_embd"])
        return self.norm(x, "output_norm") @ head.T

    def nats(self, tokens: Sequence[int]) -> np.ndarray:
        """Negative log-likelihood in nats of each token after the first, given the tokens before it."""
        rows = self.logits(tokens)[:-1].astype(np.float64)
        highest = rows.max(-1)
        normalizer = highest + np.log(np.exp(rows - highest[:, None]).sum(-1))
        return normalizer - rows[np.arange(len(rows)), list(tokens[1:])]

    def block(self, x: np.ndarray, layer: int, positions: np.ndarray, cache: InPlace) -> np.ndarray:
        """One transformer block: attention and feed-forward network, each added to its input."""
        name = f"blk.{layer}."
        if self.order == NORM_FIRST:
            x = x + self.attention(self.norm(x, name + "attn_norm"), name, positions, cache)
            return x + self.feed_forward(self.norm(x, name + "ffn_norm"), name)
        residual = self.order == NORM_LAST
        x = residual * x + self.attention(x, name, positions, cache)
        return self.norm(residual * x + self.feed_forward(x, name), name + "ffn_norm")

    def norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """Root mean square norm over each row, times its weights."""
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + self.epsilon) * self.weights[name]

    def feed_forward(self, x: np.ndarray, name: str) -> np.ndarray:
        """down(silu(gate(x)) * up(x)): each token by itself."""
        gate, up = x @ self.weights[name + "ffn_gate"].T, x @ self.weights[name + "ffn_up"].T
        return (gate / (1 + np.exp(-gate)) * up) @ self.weights[name + "ffn_down"].T

    def attention(self, x: np.ndarray, name: str, positions: np.ndarray, cache: InPlace) -> np.ndarray:
        """Causal attention: values weighted by softmax(query keys / sqrt(width)), over each token and those before."""
        queries, keys, values = (self.heads(x, name + part) for part in ("attn_q", "attn_k", "attn_v"))
        keys, values = cache.add(self.rotated(keys, positions), values)
        scores = np.einsum("qhd,khd->hqk", self.rotated(queries, positions), self.shared(keys))
        scores = scores / np.sqrt(keys.shape[-1])
        masked = np.arange(len(keys)) > positions[:, None]
        mixed = np.einsum("hqk,khd->qhd", _softmax(np.where(masked, -np.inf, scores)), self.shared(values))
        return mixed.reshape(len(x), -1) @ self.weights[name + "attn_output"].T

    def heads(self, x: np.ndarray, name: str) -> np.ndarray:
        """A projection cut into heads: (n_tokens, n_head or n_head_kv, width)."""
        return (x @ self.weights[name].T).reshape(len(x), -1, self.size.head_dim_k)

    def shared(self, rows: np.ndarray) -> np.ndarray:
        """Keys or values as the query heads see them: each KV head serves n_head / n_head_kv of them."""
        return np.repeat(rows, self.size.n_head // self.size.n_head_kv, axis=1)

    def rotated(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """RoPE: neighbouring values of each head rotated by an angle proportional to the position."""
        width = rows.shape[-1]
        angles = positions[:, None, None] * self.base ** (-np.arange(0, width, 2) / width)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        even, odd = rows[..., 0::2], rows[..., 1::2]
        return np.stack([even * cos - odd * sin, even * sin + odd * cos], -1).reshape(rows.shape)


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _array(model: Model, tensor) -> np.ndarray:
    """A tensor's weights as float32; NumPy's last axis is ggml's first."""
    kind = np.dtype(FLOATS[tensor.type])
    flat = np.fromfile(model.path, kind, tensor.n_elements, offset=tensor.offset)
    return flat.reshape(tensor.shape[::-1]).astype(np.float32)
