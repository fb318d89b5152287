"""Computes the compute and output buffers where that is exact, and bounds for them where it is not.

`compute_bytes` replays how llama.cpp places the tensors of a dense model's batch (`allocation`). Beside a device, the
host has the inputs, the embedded tokens and their copy:

    host       mask + 2D ub * 4 + inputs

It is exact, at the 0.01 MiB that llama.cpp prints, for every shape tried (tests/benchmarks/test_closed_form.py).
`most_compute_bytes` has bytes that suffice for more architectures and for a quantized cache: the two widest stages of
the model at once. No random shape tried needed more (same file). With
ub = n_ubatch, D = n_embd, F = n_ff, q = n_head * head_dim, kv = n_head_kv * head_dim, n = cells of one stream:

    mask       flash attention: 2 n ub        without: 4 n ub
    ffn        mask + (3F + 2D + q) ub * 4
    attention  with:    mask + 4D ub * 4
               without: mask + 4 n_head n ub + (2D + 2q + 2kv) ub * 4
    head       (n_vocab + D) outputs * 4

Some bytes for each token (its id, position and cell) are added.
A model with recurrent states has one stage more, the mixer, and its bound is room for all stages at once:

    mixer      Mamba 2: (2 inner + 2gs + heads) + 3 (inner + 2gs) + 3 inner + 2D, times ub * 4, and twice the states
               a short convolution: 9D ub * 4, and twice the states

Derived from the simulation's outputs; llama-graph.cpp, llama-context.cpp:640-757, ggml-alloc.c.
"""

from __future__ import annotations

from dataclasses import dataclass

from inferlab.errors import UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE
from inferlab.model.architecture_table import FULL, STATE, architecture
from inferlab.model.dimensions import dimensions_of
from inferlab.model.gguf import Model
from inferlab.prediction.memory.allocation import Batch, buffer_bytes
from inferlab.prediction.memory.cache import batches, cells
from inferlab.prediction.memory.recurrent import STATE_BYTES, kv_heads, numbers, state_values
from inferlab.settings import Settings

F32, F16, IDS = 4, 2, 4
BOUNDED_CACHES = frozenset(["f16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])  # types that were tried
SMALL_INPUTS = 2**16  # bytes of what no stage counts


@dataclass(frozen=True)
class Stages:
    """Bytes that each stage of the model needs at once, for one batch."""

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
    def second_widest(self) -> int:
        return sorted((self.feed_forward, self.attention, self.head))[1]


def stages(model: Model, settings: Settings, n_outputs: int) -> Stages:
    """The terms of the sum above, for a dense model, and the inputs of a batch.

    inputs: token ids, positions, and the cells to which keys and values are written, as the host prepares them.
    """
    tokens, size = tokens_reserved(settings), dimensions_of(model)
    q, kv = size.n_head * size.head_dim_k, size.n_head_kv * size.head_dim_k
    n_scores = cells(settings)[1] * tokens
    row_bytes = tokens * F32
    feed_forward = (feed_forward_width(model) + 2 * size.n_embd + q) * row_bytes
    index_bytes = 12 * tokens + 4 * n_outputs  # positions, cells of the keys, indices of the outputs
    if uses_flash_attention(settings):
        mask, attention, value_index_bytes = F16 * n_scores, 4 * size.n_embd * row_bytes, 8 * tokens
        mask_and_inputs = mask + index_bytes + value_index_bytes
    else:
        mask = F32 * n_scores
        value_index_bytes = 8 * kv * tokens  # values are written one by one, then the indices are freed
        attention = F32 * size.n_head * n_scores + 2 * (size.n_embd + q + kv) * row_bytes
        mask_and_inputs = mask + index_bytes
    head, embedded = head_bytes(model, n_outputs), embedded_bytes(model, settings)
    inputs = IDS * tokens + index_bytes + value_index_bytes
    return Stages(mask, mask_and_inputs + feed_forward, mask_and_inputs + attention, head, embedded, inputs)


def feed_forward_width(model: Model) -> int:
    """Values that the feed-forward stage needs for one token: gate, up and their product, of each expert used.

    0 for a header without the width of one.
    """
    used = model.number("expert_used_count")
    if not used:
        return 3 * (model.n_ff or 0)
    n_ff = model.number("expert_feed_forward_length") or model.n_ff or 0
    return used * (3 * n_ff + model.n_embd) + 3 * (model.number("expert_count") or 0)


def feed_forward_is_known(model: Model) -> bool:
    """Whether the header of a model with experts has their width, or that of the layers without."""
    used = model.number("expert_used_count")
    return not used or bool(model.number("expert_feed_forward_length") or model.n_ff)


def head_bytes(model: Model, n_outputs: int) -> int:
    """Bytes of the last stage: the logits of every output, and the vectors that they are computed from."""
    return (n_vocab(model) + model.n_embd) * n_outputs * F32


def embedded_bytes(model: Model, settings: Settings) -> int:
    """Bytes of one batch at the first block: a vector of n_embd values for each token."""
    return model.n_embd * tokens_reserved(settings) * F32


def compute_bytes(model: Model, settings: Settings, n_outputs: int, on_device: bool) -> dict[str, int] | None:
    """Compute buffer of the host and, if the whole model and its cache are on one device, of "gpu0".

    None where that is not known to be exact: other architectures, experts, another cache than f16.
    """
    if not is_exact(model, settings):
        return None
    n_bytes = buffer_bytes(_batch(model, settings, n_outputs), on_device)
    if not on_device:
        return {HOST_DEVICE: n_bytes}
    needed = stages(model, settings, n_outputs)
    return {HOST_DEVICE: needed.mask + 2 * needed.embedded + needed.inputs, "gpu0": n_bytes}


def _batch(model: Model, settings: Settings, n_outputs: int) -> Batch:
    size = dimensions_of(model)
    return Batch(
        size.n_layer,
        size.n_embd,
        model.n_ff or 0,
        n_vocab(model),
        size.n_head,
        size.n_head * size.head_dim_k,
        size.n_head_kv * size.head_dim_k,
        tokens_reserved(settings),
        n_outputs,
        cells(settings)[1],
        uses_flash_attention(settings),
    )


def most_compute_bytes(model: Model, settings: Settings, n_outputs: int, on_device: bool) -> dict[str, int] | None:
    """Bytes that suffice for the compute buffers of `compute_bytes`: room for the two widest stages at once.

    device  widest + second widest stage + heads + rotation        beside it  mask + 2D ub * 4 + inputs + rotation
    alone   device + D ub * 4
    heads   2 (q + kv - D) ub * 4, where queries, keys and values are wider than the model
    The rotation matrices of a quantized cache are no wider than a head. With sliding windows there is a second mask,
    and a second set of inputs. None for other architectures, and for a cache of f32 or bf16.
    """
    if architecture(model.architecture).cache == STATE:
        return _most_with_states(model, settings, n_outputs, on_device)
    if not _has_stages(model, settings):
        return None
    needed, size = stages(model, settings, n_outputs), dimensions_of(model)
    rotation = F32 * (size.head_dim_k**2 + size.head_dim_v**2) + SMALL_INPUTS
    windowed = bool(architecture(model.architecture).window_every)
    more = rotation + (needed.mask + needed.inputs) * windowed
    q, kv = size.n_head * size.head_dim_k, size.n_head_kv * size.head_dim_k
    heads = 2 * F32 * tokens_reserved(settings) * max(0, q + kv - size.n_embd)
    device = needed.widest + needed.second_widest + heads + more
    if on_device:
        return {HOST_DEVICE: needed.mask + 2 * needed.embedded + needed.inputs + more, "gpu0": device}
    return {HOST_DEVICE: device + needed.embedded}


def _most_with_states(model: Model, settings: Settings, n_outputs: int, on_device: bool) -> dict[str, int] | None:
    """Room for all stages of a model with recurrent states at once; None where its header lacks a dimension."""
    heads = kv_heads(model)
    mixer = _mixer_bytes(model, settings)
    if (
        mixer is None
        or heads is None
        or not feed_forward_is_known(model)
        or not {settings.type_k, settings.type_v} <= BOUNDED_CACHES
    ):
        return None
    tokens, d, head_dim = tokens_reserved(settings), model.n_embd, model.head_dim_k or 0
    row, n_head, kv = F32 * tokens, model.n_head or 0, max(heads) * head_dim
    q, attends = n_head * head_dim, max(heads) > 0
    n_scores = attends * cells(settings)[1] * tokens
    flash = uses_flash_attention(settings)
    mask = (F16 if flash else F32) * n_scores
    scores = 0 if flash else F32 * n_head * n_scores
    attention = mask + scores + (4 * d + 2 * q + 2 * kv) * row
    feed_forward = feed_forward_width(model) + 2 * d + q
    inputs = 8 * kv * tokens + SMALL_INPUTS + F32 * 2 * head_dim**2
    device = head_bytes(model, n_outputs) + mixer + attention + feed_forward * row + inputs
    if on_device:
        return {HOST_DEVICE: mask + 2 * d * row + inputs, "gpu0": device}
    return {HOST_DEVICE: device + d * row}


def _mixer_bytes(model: Model, settings: Settings) -> int | None:
    """Bytes that the recurrent part of a layer needs for one batch; None where its header lacks a dimension."""
    states, d, row = state_values(model), model.n_embd, F32 * tokens_reserved(settings)
    if states is None:
        return None
    both = 2 * STATE_BYTES * states * settings.n_seq_max
    if model.number("shortconv.l_cache"):
        return 9 * d * row + both
    sizes = numbers(model, "ssm.inner_size", "ssm.time_step_rank", "ssm.group_count", "ssm.state_size")
    if sizes is None:
        return None
    inner, n_heads, groups, state = sizes
    conv = inner + 2 * groups * state
    return (inner + conv + n_heads + 3 * conv + 3 * inner + 2 * d) * row + both


def output_bytes(model: Model, settings: Settings) -> int:
    """The output buffer: one row of logits for each sequence, always in host memory (llama-context.cpp:2116-2171)."""
    return n_vocab(model) * settings.n_seq_max * F32


def outputs_reserved(settings: Settings, per_sequence: bool) -> int:
    """Rows of logits that the compute buffer has room for.

    llama-cpp-python, like this library's engine, does not set n_outputs_max: one row for each token of a batch.
    llama-server sets it to one row for each sequence (`per_sequence`).
    """
    n_batch, _ = batches(settings)
    n_requested = settings.n_seq_max if per_sequence else n_batch
    streams, n_cells = cells(settings)
    return min(n_requested, batches(settings)[1], streams * n_cells)


def tokens_reserved(settings: Settings) -> int:
    """Tokens of the largest batch that the buffers have room for: a multiple of n_seq_max (llama-context.cpp:2528)."""
    streams, n_cells = cells(settings)
    tokens = min(batches(settings)[1], streams * n_cells)
    return -(-tokens // settings.n_seq_max) * settings.n_seq_max


def uses_flash_attention(settings: Settings) -> bool:
    """Whether attention is computed without storing its scores; "auto" counts as yes."""
    return settings.flash_attn != "off"


def n_vocab(model: Model) -> int:
    """Rows of the embedding table, which is also the number of logits. Raises UnsupportedArchitecture without one."""
    rows = (tensor.shape[1] for tensor in model.tensors if tensor.name == "token_embd.weight")
    n_rows = next(rows, model.n_vocab)
    if n_rows is None:
        raise UnsupportedArchitecture(f"The header of {model.name} tells no size of its vocabulary.")
    return n_rows


def _has_stages(model: Model, settings: Settings) -> bool:
    """Whether the model's stages and the types of its cache are those of which a bound is known."""
    experts = model.number("expert_count"), model.number("expert_used_count")
    n_ff = model.number("expert_feed_forward_length") or model.n_ff if any(experts) else model.n_ff
    known = None not in (*_widths(model), n_ff) and (all(experts) or not any(experts))
    kind = architecture(model.architecture)
    return bool(
        known
        and (kind.cache == FULL or kind.window_every)
        and model.head_dim_k == model.head_dim_v
        and {settings.type_k, settings.type_v} <= BOUNDED_CACHES
    )


def _widths(model: Model) -> tuple[int | None, ...]:
    """The dimensions that every stage needs; None where the header does not have one number for all layers."""
    return model.n_layer, model.n_embd, model.n_head, model.n_head_kv, model.head_dim_k, model.head_dim_v


def is_exact(model: Model, settings: Settings) -> bool:
    """Whether the order of the operations and the types are those that `allocation` replays."""
    if not architecture(model.architecture).simple_compute or model.number("expert_count"):
        return False
    if None in (*_widths(model), model.n_ff):
        return False
    if {settings.type_k, settings.type_v} != {"f16"} or model.head_dim_k != model.head_dim_v:
        return False
    return batches(settings)[1] >= settings.n_seq_max
