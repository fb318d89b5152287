"""How many bytes a model takes, from its shape alone: weights and KV cache, exact.

Compute buffers are not here yet, and neither are sliding windows, shared or latent caches;
`kv_cache_bytes` refuses a model whose header names one of those instead of guessing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inferlab.errors import InvalidSettings, UnsupportedArchitecture
from inferlab.facts import KnownModel
from inferlab.gguf import TENSOR_TYPES, Model, ModelCard
from inferlab.settings import Settings

CELLS = 256
TYPES = {kind.name.lower(): kind for kind in TENSOR_TYPES.values()}
OTHER_CACHES = ("attention.sliding_window", "attention.kv_lora_rank", "attention.shared_kv_layers", "ssm.state_size")


@dataclass(frozen=True)
class DeviceBytes:
    """Bytes that one device holds: of weights, KV cache, compute buffer and output buffer; None where unknown."""

    weights_bytes: int | None = 0
    kv_cache_bytes: int | None = 0
    compute_bytes: int | None = 0
    output_bytes: int | None = 0

    @property
    def parts(self) -> dict[str, int | None]:
        """The four kinds under the names that `Run.bytes_on` uses."""
        return {
            "weights": self.weights_bytes,
            "kv_cache": self.kv_cache_bytes,
            "compute": self.compute_bytes,
            "output": self.output_bytes,
        }

    @property
    def total_bytes(self) -> int | None:
        """Their sum; None as long as one of them is unknown."""
        parts = self.parts.values()
        return None if None in parts else sum(parts)


@dataclass(frozen=True)
class LayerBytes:
    """One layer: where its weights lie and where its share of the KV cache does.

    name  "input" (the token embedding and what belongs to no block), "block 0" ..., "output"
    """

    name: str
    device: str
    weights_bytes: int
    kv_cache_device: str
    kv_cache_bytes: int
    index: int | None = None


@dataclass(frozen=True)
class MemoryPlan:
    """What a model takes under given settings, on each device, before anything is loaded.

    method         "closed form", "oracle" (llama.cpp's own simulation) or "bound"
    devices        "host" first, then "gpu0", ... in llama.cpp's order
    layers         the input, each block, the output: where their bytes are
    compute_range  for a bound: least and most compute bytes of a device whose compute_bytes is None
    notes          what the reader should know, such as second copies of repacked weights
    settings       as planned: n_ctx filled in and rounded as llama.cpp rounds it
    """

    model: ModelCard
    settings: Settings
    method: str
    devices: dict[str, DeviceBytes]
    layers: tuple[LayerBytes, ...] = ()
    notes: tuple[str, ...] = ()
    compute_range: dict[str, tuple[int, int]] = field(default_factory=dict)

    def least_bytes(self, device: str) -> int:
        """Bytes that the device needs in any case."""
        return self._total(device, 0)

    def most_bytes(self, device: str) -> int:
        """Bytes that suffice; equal to `least_bytes` unless the plan is a bound."""
        return self._total(device, 1)

    def bytes_of(self, kind: str) -> int | None:
        """Bytes of one kind over all devices: weights, kv_cache, compute or output; None if one is unknown."""
        found = [device.parts[kind] for device in self.devices.values()]
        return None if None in found else sum(found)

    def _total(self, device: str, end: int) -> int:
        known = sum(filter(None, self.devices[device].parts.values()))
        return known + self.compute_range.get(device, (0, 0))[end]


def n_params(model: KnownModel) -> int:
    """Weights of a dense Llama-shaped model: attention, feed-forward, embedding, output, norms."""
    return n_matrix_weights(model) + n_norm_weights(model)


def n_matrix_weights(model: KnownModel) -> int:
    """Weights in matrices, the part that a quantization type applies to."""
    queries_and_output = 2 * model.n_embd * model.n_head * model.head_dim_k
    keys = model.n_embd * model.n_head_kv * model.head_dim_k
    values = model.n_embd * model.n_head_kv * model.head_dim_v
    feed_forward = 3 * model.n_embd * model.n_ff
    embeddings = (1 if model.tied_embeddings else 2) * model.n_vocab * model.n_embd
    return model.n_layer * (queries_and_output + keys + values + feed_forward) + embeddings


def n_norm_weights(model: KnownModel) -> int:
    """Weights of the norms: two a layer and one at the end, kept in F32 whatever the type."""
    return (2 * model.n_layer + 1) * model.n_embd


def weights_bytes(model: Model | KnownModel, type: str | None = None) -> int:
    """Bytes of all tensors: read from a file's header, or of a known model with every matrix in one `type`.

    A named mix such as Q4_K_M is not one type; `known_model(...).files` has the sizes of published files.
    Raises InvalidSettings for a type that ggml does not have.
    """
    if isinstance(model, Model):
        return model.tensor_bytes
    return row_bytes(type or "f16", n_matrix_weights(model)) + row_bytes("f32", n_norm_weights(model))


def kv_cache_bytes_per_token(model: Model | KnownModel, type_k: str = "f16", type_v: str = "f16") -> int:
    """Bytes that one cell of the KV cache takes over all layers: KV heads count, query heads do not.

    n_layer * (row(type_k, n_head_kv * head_dim_k) + row(type_v, n_head_kv * head_dim_v)); llama-kv-cache.cpp.
    """
    _require_plain_cache(model)
    keys = row_bytes(type_k, model.n_head_kv * model.head_dim_k)
    values = row_bytes(type_v, model.n_head_kv * model.head_dim_v)
    return model.n_layer * (keys + values)


def kv_cache_bytes(model: Model | KnownModel, settings: Settings) -> int:
    """Bytes of the KV cache that llama.cpp allocates when it makes the context; it never grows.

    n_ctx is rounded up to 256 cells, then each sequence's share of it (llama-context.cpp, lines 290-305);
    a unified cache is one share for all.
    Raises InvalidSettings without n_ctx, UnsupportedArchitecture for caches of other kinds.
    """
    if settings.n_ctx is None:
        raise InvalidSettings("n_ctx=None leaves the size of the KV cache open; say how many tokens it must hold.")
    streams = 1 if settings.kv_unified else settings.n_seq_max
    cells = streams * _padded(_padded(settings.n_ctx) // streams)
    return cells * kv_cache_bytes_per_token(model, settings.type_k, settings.type_v)


def row_bytes(type: str, n_weights: int) -> int:
    """Bytes of `n_weights` in one ggml type. Raises InvalidSettings when they do not fill its blocks."""
    kind = TYPES.get(type.lower())
    if kind is None:
        raise InvalidSettings(f"ggml has no type {type!r}. It has: {', '.join(TYPES)}.")
    if n_weights % kind.block:
        raise InvalidSettings(f"{n_weights} weights do not fill blocks of {kind.block}, which {type!r} needs.")
    return n_weights // kind.block * kind.block_bytes


def _padded(cells: int) -> int:
    return -(-cells // CELLS) * CELLS


def _require_plain_cache(model: Model | KnownModel) -> None:
    if not isinstance(model, Model):
        return
    named = [key for key in OTHER_CACHES if model.number(key)]
    per_layer = not isinstance(model.metadata.get(f"{model.architecture}.attention.head_count_kv", 0), int)
    if named or per_layer:
        raise UnsupportedArchitecture(
            f"{model.name} ({model.architecture}) has {named[0] if named else 'a KV head count for each layer'}; "
            "the closed form for plain attention does not hold for it."
        )
