"""Computes the compute and output buffers: exactly where llama.cpp's graph was followed, else within a range.

`compute_bytes` replays how ggml places the tensors of one batch (`decoder`, `graph`). It is exact, at the 0.01 MiB that
llama.cpp prints, in every try on settings and models that had been set aside (tests/benchmarks/test_closed_form.py).
`compute_range` has a range for any other architecture: its graph as the tensors of the header tell it, give or take
what llama.cpp may order otherwise:

    least  LEAST_SHARE of that graph's bytes       most  MOST_SHARE of them

Where the graph is unlike llama's, the range is that of `wide`.
Sources: llama-context.cpp:640-757, 2116-2171, 2528; llama-graph.cpp; ggml-alloc.c.
"""

from __future__ import annotations

from collections.abc import Sequence

from inferlab.errors import UnsupportedArchitecture
from inferlab.machine import HOST_DEVICE
from inferlab.model.architecture_table import COMPRESSED, NONE, architecture
from inferlab.model.dimensions import heads_of, trunk_layers
from inferlab.model.gguf import Model
from inferlab.prediction.memory.altup import AltupDecoder
from inferlab.prediction.memory.cache import batches, cache_layers, cells, windowed_cells
from inferlab.prediction.memory.decoder import Batch, Decoder, layers_of
from inferlab.prediction.memory.graph import device_bytes, host_bytes
from inferlab.prediction.memory.kept import kept_by_graph
from inferlab.prediction.memory.traits import Traits, known_traits
from inferlab.prediction.memory.wide import wide_range
from inferlab.prediction.memory.windows import windows_of
from inferlab.settings import UNQUANTIZED, Settings

F32 = 4
TRIED_CACHES = frozenset(["f16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"])  # types that were tried
ROTATED_HEADS = 64  # llama-kv-cache.cpp:321-339: heads of a multiple of 64 values are rotated before they are quantized
LEAST_SHARE, MOST_SHARE = 0.75, 1.4
ODD_HEADER = KeyError, IndexError, TypeError, ValueError, StopIteration, ZeroDivisionError, UnsupportedArchitecture
ROUNDS = ((2, 1), (2, 2))  # of repeated layers, and how many count as one, tried before all of them


def compute_bytes(model: Model, settings: Settings, n_outputs: int, on_device: bool) -> dict[str, int] | None:
    """Compute buffer of the host and, if the whole model and its cache are on one device, of "gpu0".

    None where that is not known to be exact: architectures whose graph was not followed, and a cache of f32 or bf16.
    """
    return near_bytes(model, settings, n_outputs, on_device) if is_exact(model, settings) else None


def compute_range(
    model: Model, settings: Settings, n_outputs: int, on_device: bool
) -> dict[str, tuple[int, int]] | None:
    """Least and most bytes of the buffers of `compute_bytes`; None for a header without widths, and a cache of f32."""
    exact = compute_bytes(model, settings, n_outputs, on_device)
    if exact is not None:
        return {name: (n_bytes, n_bytes) for name, n_bytes in exact.items()}
    near = near_bytes(model, settings, n_outputs, on_device) if _is_near(model, settings) else None
    if near is None:
        return _wide_range(model, settings, n_outputs, on_device)
    return {name: (int(LEAST_SHARE * n), int(MOST_SHARE * n)) for name, n in near.items()}


@kept_by_graph
def _is_near(model: Model, settings: Settings) -> bool:
    """Whether the graph is like llama's but for its order: not where an indexer chooses cells, nor without a cache."""
    kind, traits = architecture(model.architecture), known_traits(model.architecture)
    like_llama = not kind.indexer and kind.cache not in (NONE, COMPRESSED) and not (traits and traits.far)
    return like_llama and {settings.type_k, settings.type_v} <= TRIED_CACHES


@kept_by_graph
def _wide_range(model: Model, settings: Settings, n_outputs: int, on_device: bool) -> dict[str, tuple[int, int]] | None:
    """The range by the widths of the tensors; None for a cache of f32, and where the header lacks what tells them."""
    if not {settings.type_k, settings.type_v} <= TRIED_CACHES:
        return None
    try:
        decoder = decoder_of(model, settings, n_outputs)
        caches = cache_layers(model)
        states = settings.n_seq_max * max(layer.state_values for layer in caches)
        return wide_range(decoder, states, max(layer.index_key for layer in caches), on_device)
    except ODD_HEADER:
        return None


def near_bytes(model: Model, settings: Settings, n_outputs: int, on_device: bool) -> dict[str, int] | None:
    """The buffers by what the tensors of the header tell; None where one is missing, or of a shape of no use."""
    try:
        return _replayed(model, settings, n_outputs, on_device)
    except ODD_HEADER:
        return None


def is_exact(model: Model, settings: Settings) -> bool:
    """Whether the order of the operations and the types are those that `decoder` follows."""
    traits = known_traits(model.architecture)
    if (
        traits is None
        or traits.far
        or not trunk_layers(model)
        or not {settings.type_k, settings.type_v} <= TRIED_CACHES
    ):
        return False
    caches = cache_layers(model)
    windows_beside_states = any(cache.window for cache in caches) and any(cache.state_values for cache in caches)
    unsplit = any(tensor.name.endswith("attn_kv_b.weight") for tensor in model.tensors)
    return batches(settings)[1] >= settings.n_seq_max and not windows_beside_states and not unsplit


def _replayed(model: Model, settings: Settings, n_outputs: int, on_device: bool) -> dict[str, int]:
    """The buffers of the largest batch; of repeated layers as many as it takes until they find the same holes."""
    begun = decoder_of(model, settings, n_outputs)
    for rounds in (*ROUNDS, ()):
        decoder = begun.again()
        try:
            graph = decoder.build(*rounds)
            if on_device and (sizes := device_bytes(graph)):
                return {HOST_DEVICE: sizes[0], "gpu0": sizes[1]}
            if not on_device and (alone := host_bytes(graph)):
                return {HOST_DEVICE: alone}
        finally:
            decoder.graph.unlink()
    raise AssertionError("a whole graph has a size")


def least_of_layers(model: Model, settings: Settings, n_outputs: int, numbers: Sequence[int]) -> int:
    """Bytes that any device needs which computes these layers; 0 where the graph was not followed or lacks a tensor."""
    if not numbers or not is_exact(model, settings):
        return 0
    alive = _alive(model, settings, n_outputs)
    return max((alive[i] for i in numbers if i < len(alive)), default=0)


@kept_by_graph
def _alive(model: Model, settings: Settings, n_outputs: int) -> list[int]:
    try:
        decoder = decoder_of(model, settings, n_outputs)
    except ODD_HEADER:
        return []
    try:
        return decoder.alive_in_layers()
    except ODD_HEADER:
        return []
    finally:
        decoder.graph.unlink()


def decoder_of(model: Model, settings: Settings, n_outputs: int) -> Decoder:
    """What builds them. Raises UnsupportedArchitecture for a cache that has no formula here, and without layers."""
    n_layer = trunk_layers(model)
    if not n_layer:
        raise UnsupportedArchitecture(f"{model.name} has no layers but those that predict further tokens.")
    windows = windows_of(model)[:n_layer]
    caches = cache_layers(model)[:n_layer]
    keeps_keys, indexes = [cache.key_width > 0 for cache in caches], [cache.index_key > 0 for cache in caches]
    layers = layers_of(model, windows, keeps_keys, indexes)
    batch = _batch(model, settings, n_outputs, max(windows))
    builder = AltupDecoder if "altup_router.weight" in layers[0] else Decoder
    return builder(model, batch, layers, known_traits(model.architecture) or Traits())


def _batch(model: Model, settings: Settings, n_outputs: int, window: int) -> Batch:
    heads, (n_streams, n_cells) = heads_of(model), cells(settings)
    latent = bool(model.number("attention.key_length_mla"))
    return Batch(
        n_tokens=tokens_reserved(settings),
        n_outputs=n_outputs,
        n_sequences=settings.n_seq_max,
        n_streams=n_streams,
        n_vocab=n_vocab(model),
        n_cells=n_cells,
        n_windowed=windowed_cells(settings, window),
        flash_attn=uses_flash_attention(settings),
        rotates_k=_rotates(settings.type_k, heads.key) and not latent,
        rotates_v=_rotates(settings.type_v, heads.value) and not latent,
    )


def _rotates(cache_type: str, head_dim: int) -> bool:
    return cache_type not in UNQUANTIZED and head_dim % ROTATED_HEADS == 0


def head_bytes(model: Model, n_outputs: int) -> int:
    """Bytes of the last stage: the logits of every output, and the vectors that they are computed from."""
    return (n_vocab(model) + model.n_embd) * n_outputs * F32


def embedded_bytes(model: Model, settings: Settings) -> int:
    """Bytes of one batch at the first block: a vector of n_embd values for each token."""
    return model.n_embd * tokens_reserved(settings) * F32


def fused_bytes(model: Model, settings: Settings) -> int:
    """The most that CUDA's backend keeps of a mixture's operands until it has computed several operations as one.

    4 (used experts * (D + 4) + 4 experts) ub * 4: the experts' results and what chose the experts
    (ggml_backend_cuda_graph_optimize), four times, because what follows then takes places of its own, and leaves holes;
    no try needed more. 0 without experts.
    """
    used, n_experts = model.number("expert_used_count") or 0, model.number("expert_count") or 0
    return 4 * (used * (model.n_embd + 4) + 4 * n_experts) * tokens_reserved(settings) * F32


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
    tables = (tensor.shape for tensor in model.tensors if tensor.name == "token_embd.weight")
    rows = (shape[1] for shape in tables if len(shape) > 1)
    n_rows = next(rows, model.n_vocab)
    if n_rows is None:
        raise UnsupportedArchitecture(f"The header of {model.name} tells no size of its vocabulary.")
    return n_rows
