"""The compute and output buffers, in closed form where that is exact.

The compute buffer holds what one batch needs while it passes through the widest stage of the model.  With
ub = n_ubatch, D = n_embd, F = n_ff, q = n_head * head_dim, kv = n_head_kv * head_dim, n = cells of one stream:

    mask       flash attention: 2 n ub        without: 4 n ub
    ffn        mask + (3F + 2D + q) ub * 4
    attention  with:    mask + 4D ub * 4
               without: mask + 4 n_head n ub + (2D + 2q + 2kv) ub * 4
    head       (n_vocab + D) outputs * 4
    device     max(ffn, attention, head)
    host       beside a device: mask + 2D ub * 4 (the embedded tokens, and where they arrive); alone: device + D ub * 4

To these come some bytes for each token (its id, position and cell). The sum is exact, at the 0.01 MiB that llama.cpp
prints, when the stages fill the buffer without holes: `compute_bytes` answers only inside the proportions where that
held for every random shape tried (tests/benchmarks/test_closed_form.py), and None elsewhere.
Derived from the simulation's outputs; llama-graph.cpp, llama-context.cpp:640-757, ggml-alloc.c.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.model.gguf import Model
from inferlab.prediction.memory.cache import batches, cells
from inferlab.settings import Settings

DENSE = frozenset(["llama", "qwen2", "qwen3", "gemma", "granite"])
LEAST_FEED_FORWARD = 2.6  # n_ff / n_embd, below which the feed-forward stage leaves holes
LEAD_WITH_FLASH_ATTENTION = 1.1  # the widest stage over the next: closer ones are laid out in each other's holes
LEAD_WITHOUT = 1.3
F32, F16, IDS = 4, 2, 4


@dataclass(frozen=True)
class Stages:
    """Bytes that each stage of the model wants at once, for one batch."""

    mask: int
    feed_forward: int
    attention: int
    head: int
    embedded: int
    inputs: int

    @property
    def widest(self) -> int:
        return max(self.feed_forward, self.attention, self.head)

    @property
    def next(self) -> int:
        return sorted((self.feed_forward, self.attention, self.head))[1]


def stages(model: Model, settings: Settings, n_outputs: int) -> Stages:
    """The terms of the sum above, for a dense model, with the numbers that a batch brings along.

    inputs: token ids, positions, and the cells that keys and values go to, as the host prepares them.
    """
    tokens = tokens_reserved(settings)
    q, kv = model.n_head * model.head_dim_k, model.n_head_kv * model.head_dim_k
    n_scores = cells(settings)[1] * tokens
    row = tokens * F32
    wide = (3 * model.n_ff + 2 * model.n_embd + q) * row
    numbers = 12 * tokens + 4 * n_outputs  # positions, cells for the keys, which outputs are wanted
    if uses_flash_attention(settings):
        mask, attention, cells_of_values = F16 * n_scores, 4 * model.n_embd * row, 8 * tokens
        held = mask + numbers + cells_of_values
    else:
        mask, cells_of_values = F32 * n_scores, 8 * kv * tokens  # values are written one by one, then the numbers go
        attention = F32 * model.n_head * n_scores + 2 * (model.n_embd + q + kv) * row
        held = mask + numbers
    head, embedded = head_bytes(model, n_outputs), embedded_bytes(model, settings)
    inputs = IDS * tokens + numbers + cells_of_values
    return Stages(mask, held + wide, held + attention, head, embedded, inputs)


def head_bytes(model: Model, n_outputs: int) -> int:
    """The last stage: logits of every output, and the vectors that they are made from."""
    return (n_vocab(model) + model.n_embd) * n_outputs * F32


def embedded_bytes(model: Model, settings: Settings) -> int:
    """One batch as it enters the first block: a vector for each token."""
    return model.n_embd * tokens_reserved(settings) * F32


def compute_bytes(model: Model, settings: Settings, n_outputs: int, on_device: bool) -> dict[str, int] | None:
    """Compute buffer of the host and, if the whole model and its cache are on one device, of "gpu0".

    None where the closed form is not exact: another architecture, a quantized cache, proportions that leave holes.
    """
    if not _covers(model, settings, on_device):
        return None
    one = stages(model, settings, n_outputs)
    flash = uses_flash_attention(settings)
    lead = LEAD_WITH_FLASH_ATTENTION if flash else LEAD_WITHOUT
    if one.widest < lead * one.next or not (flash or one.widest == one.attention):
        return None
    if one.widest == one.head and n_outputs < tokens_reserved(settings):
        return None
    if on_device:
        return {"host": one.mask + 2 * one.embedded + one.inputs, "gpu0": one.widest}
    return {"host": one.widest + one.embedded + IDS * tokens_reserved(settings)}


def output_bytes(model: Model, settings: Settings) -> int:
    """The output buffer: one row of logits for each sequence, always in host memory (llama-context.cpp:2116-2171)."""
    return n_vocab(model) * settings.n_seq_max * F32


def outputs_reserved(settings: Settings, per_sequence: bool) -> int:
    """Rows of logits that the compute buffer has room for.

    llama-cpp-python, like this library's engine, leaves n_outputs_max open: a row for each token of a batch.
    llama-server asks for one row for each of its sequences (`per_sequence`).
    """
    n_batch, _ = batches(settings)
    wanted = settings.n_seq_max if per_sequence else n_batch
    streams, n_cells = cells(settings)
    return min(wanted, batches(settings)[1], streams * n_cells)


def tokens_reserved(settings: Settings) -> int:
    """Tokens of the largest batch that the buffers are made for: a multiple of n_seq_max (llama-context.cpp:2528)."""
    streams, n_cells = cells(settings)
    tokens = min(batches(settings)[1], streams * n_cells)
    return -(-tokens // settings.n_seq_max) * settings.n_seq_max


def uses_flash_attention(settings: Settings) -> bool:
    """Whether attention is computed without storing its scores; "auto" means yes wherever a device can."""
    return settings.flash_attn != "off"


def n_vocab(model: Model) -> int:
    """Rows of the embedding: as many logits come out."""
    embedding = next((tensor for tensor in model.tensors if tensor.name == "token_embd.weight"), None)
    return embedding.shape[1] if embedding else model.n_vocab


def _covers(model: Model, settings: Settings, on_device: bool) -> bool:
    if model.architecture not in DENSE or model.number("expert_count"):
        return False
    if {settings.type_k, settings.type_v} != {"f16"} or model.head_dim_k != model.head_dim_v:
        return False
    if batches(settings)[1] < settings.n_seq_max:
        return False
    d, q, kv = model.n_embd, model.n_head * model.head_dim_k, model.n_head_kv * model.head_dim_k
    return d <= q <= (2 * d if on_device else d) and kv <= d and model.n_ff >= LEAST_FEED_FORWARD * d
