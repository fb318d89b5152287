"""Replays how ggml-alloc places the tensors of one batch of a dense model: its compute buffer, to the byte.

A tensor takes the smallest free block that holds it, of equal ones the last; where none does, the open end behind them
all. The buffer is as large as the highest end of a tensor:

    size = max over tensors (offset + bytes)

So the widest stage of the model is not all: holes decide what lies behind what. SmolLM2 135M at n_ctx = 2048: the
hole that the last mask leaves, 3.14 MiB, takes the product of the feed-forward network, 3 MiB. The last hidden state
finds no hole then, and the logits begin 4.26 MiB higher than with 1,792 or 2,304.

The order of the operations is that of llama_model_llama::graph (src/models/llama.cpp), which qwen2, qwen3, gemma and
granite share. What they add is computed in place: biases, scales, norms of the heads. Rotated queries and keys are not,
because their source is a view (ggml_gallocr_is_own, ggml-alloc.c:641).
Sources: ggml_dyn_tallocr_alloc, ggml_gallocr_allocate_node and ggml_gallocr_alloc_graph_impl (ggml-alloc.c:202, 623,
718), build_attn and build_ffn (llama-graph.cpp:2868, 1762), the inputs that a device copies (ggml-backend.cpp:1520).
"""

from __future__ import annotations

from dataclasses import dataclass

Block = tuple[int, int]  # offset and bytes
F32, F16, I32, I64 = 4, 2, 4, 8
ALIGNMENT = 32  # of host memory and of a loopback device (TENSOR_ALIGNMENT, ggml-impl.h:44); CUDA has 128
ENDLESS = 1 << 62


@dataclass(frozen=True)
class Batch:
    """The dimensions that decide the sizes of a batch's tensors.

    q, kv    values of one token's queries, and of its keys
    n_cells  cells of one stream of the cache
    """

    n_layer: int
    n_embd: int
    n_ff: int
    n_vocab: int
    n_head: int
    q: int
    kv: int
    n_tokens: int
    n_outputs: int
    n_cells: int
    flash_attn: bool


class GrowingBuffer:
    """A buffer that grows as tensors are allocated; `size` is the highest end that one had."""

    def __init__(self) -> None:
        self.free_blocks: list[Block] = [(0, ENDLESS)]
        self.size = 0

    def allocate(self, n_bytes: int) -> Block:
        n_bytes = -(-n_bytes // ALIGNMENT) * ALIGNMENT
        at = len(self.free_blocks) - 1
        fitting = [(size, -i) for i, (_, size) in enumerate(self.free_blocks[:-1]) if size >= n_bytes]
        if fitting:
            at = -min(fitting)[1]
        offset, size = self.free_blocks[at]
        self.free_blocks[at : at + 1] = [(offset + n_bytes, size - n_bytes)] if size > n_bytes else []
        self.size = max(self.size, offset + n_bytes)
        return offset, n_bytes

    def free(self, *blocks: Block) -> None:
        """Make the blocks free again, as one with the free blocks beside them."""
        merged: list[Block] = []
        for offset, size in sorted([*self.free_blocks, *blocks]):
            if merged and sum(merged[-1]) == offset:
                offset, size = merged[-1][0], merged.pop()[1] + size
            merged.append((offset, size))
        self.free_blocks = merged


@dataclass(frozen=True)
class Inputs:
    """What every layer reads: positions, the cells for keys and values, the mask; and the rows of the outputs."""

    positions: Block
    key_cells: Block
    value_cells: Block
    mask: Block
    outputs: Block


def buffer_bytes(batch: Batch, on_device: bool) -> int:
    """Bytes of the compute buffer of the host alone, or of the device that has the whole model and its cache."""
    buffer, hidden_bytes = GrowingBuffer(), F32 * batch.n_embd * batch.n_tokens
    if on_device:
        hidden = buffer.allocate(hidden_bytes)
        inputs = _inputs(buffer, batch)
    else:
        tokens = buffer.allocate(I32 * batch.n_tokens)
        buffer.allocate(hidden_bytes)  # for a batch of vectors in place of tokens: reserved, never freed
        inputs = _inputs(buffer, batch)
        hidden = buffer.allocate(hidden_bytes)
        buffer.free(tokens)
    for _ in range(batch.n_layer - 1):
        before = hidden, buffer.free_blocks
        hidden = _block(buffer, batch, hidden)
        if (hidden, buffer.free_blocks) == before:
            break
    _block(buffer, batch, hidden, inputs)  # whose result is normalized in place
    buffer.allocate(F32 * batch.n_vocab * batch.n_outputs)
    return buffer.size


def _inputs(buffer: GrowingBuffer, batch: Batch) -> Inputs:
    n, value_cells = batch.n_tokens, 1 if batch.flash_attn else batch.kv
    mask_type = F16 if batch.flash_attn else F32
    sizes = I32 * n, I64 * n, I64 * n * value_cells, mask_type * n * batch.n_cells, I32 * batch.n_outputs
    return Inputs(*map(buffer.allocate, sizes))


def _block(buffer: GrowingBuffer, batch: Batch, hidden: Block, last: Inputs | None = None) -> Block:
    """The hidden state after one block. The last one frees the inputs, and computes only the rows of the outputs."""
    attended = _attention(buffer, batch, last)
    n = batch.n_tokens
    if last:
        n = batch.n_outputs
        for_outputs = []
        for whole in (attended, hidden):
            for_outputs.append(buffer.allocate(F32 * batch.n_embd * n))
            buffer.free(whole)
        attended, hidden = for_outputs
        buffer.free(last.outputs)
    buffer.free(hidden)  # added to what attention computed, in place
    result = _feed_forward(buffer, batch, n)
    buffer.free(attended)
    return result


def _attention(buffer: GrowingBuffer, batch: Batch, last: Inputs | None) -> Block:
    def values(n_per_token: int) -> Block:
        return buffer.allocate(F32 * n_per_token * batch.n_tokens)

    normed, unturned = values(batch.n_embd), values(batch.q)
    queries = values(batch.q)
    buffer.free(unturned)
    of_values, unturned = values(batch.kv), values(batch.kv)
    buffer.free(normed)
    keys = values(batch.kv)
    buffer.free(unturned, keys, of_values)
    buffer.free(*((last.positions, last.key_cells, last.value_cells) if last else ()))
    mask = (last.mask,) if last else ()
    if batch.flash_attn:
        heads = values(batch.q)
        buffer.free(queries, *mask)
    else:
        scores = values(batch.n_head * batch.n_cells)
        buffer.free(queries, *mask)
        permuted = values(batch.q)
        buffer.free(scores)
        heads = values(batch.q)
        buffer.free(permuted)
    attended = values(batch.n_embd)
    buffer.free(heads)
    return attended


def _feed_forward(buffer: GrowingBuffer, batch: Batch, n: int) -> Block:
    normed = buffer.allocate(F32 * batch.n_embd * n)
    gate, up = buffer.allocate(F32 * batch.n_ff * n), buffer.allocate(F32 * batch.n_ff * n)
    buffer.free(normed)
    product = buffer.allocate(F32 * batch.n_ff * n)
    buffer.free(gate, up)
    down = buffer.allocate(F32 * batch.n_embd * n)
    buffer.free(product)
    return down
