"""The operations of one batch of a decoder, as llama.cpp builds them from what its header names.

What a layer computes follows from its tensors: fused or separate queries, norms of heads, experts with their router,
shared experts, a state space, a convolution. Sizes are those of the tensors, for n tokens; q, k, v are the widths of
queries, keys and values of all heads, c the cells of one stream:

    attention       q, k, v; without flash attention 4 heads c n bytes of scores
    latent (MLA)    queries as wide as the latent keys: heads * (rank + rotated)
    feed-forward    gate, up and their product, of each expert used; the results of the experts
    delta net       a convolution over q, k, v; the states of all sequences before and after
    Mamba           the same over inner + 2 groups * state; the scan's result with the states
Sources: build_qkv, build_ffn, build_moe_ffn, build_attn_mha and build_rs (llama-graph.cpp:1640-3560), and
delta-net-base.cpp, mamba-base.cpp, and the graphs of src/models.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from inferlab.errors import UnsupportedArchitecture
from inferlab.model.dimensions import heads_of
from inferlab.model.gguf import Model
from inferlab.prediction.memory.graph import (
    CACHE,
    Graph,
    Tensor,
    alive_bytes,
    in_place,
    operation,
    reading,
    store,
    view,
)
from inferlab.prediction.memory.traits import ATTENTION, FEED_FORWARD, Traits

F32, F16, I32, I64 = 4, 2, 4, 8
BLOCK_TENSOR = re.compile(r"blk\.([0-9]{1,4})\.(.+)")
NORM, SCAN = "norm", "scan"  # the weight of any norm of a block, and of its scan, whose result is one row
NORMED = "normed"  # what a norm is before its weight, which llama.cpp may put where the block is
HEAD = -1  # in place of a block's number, for what follows the last one
SINKS, FREQUENCIES = "attn_sinks.weight", "frequencies"  # the latter of rotations, where the header has a table
LONGEST_ROUND = 12  # layers after which the kinds repeat, at most
Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Batch:
    """What one batch asks for: its tokens, rows of logits and sequences, and what it meets in the cache.

    n_cells, n_windowed   cells of one stream, of layers without and with a sliding window
    rotates_k, rotates_v  whether a quantized cache has its keys and values rotated
    """

    n_tokens: int
    n_outputs: int
    n_sequences: int
    n_streams: int
    n_vocab: int
    n_cells: int
    n_windowed: int
    flash_attn: bool
    rotates_k: bool
    rotates_v: bool


@dataclass(frozen=True)
class Layer:
    """One block: its tensors by their names in it, heads, and what kind of cache it keeps."""

    shapes: Shapes
    n_head: int
    windowed: bool
    keeps_keys: bool = True
    indexes: bool = False
    number: int = 0

    def __contains__(self, name: str) -> bool:
        return name in self.shapes

    def rows(self, name: str) -> int:
        """Values that this matrix makes of one token."""
        return self.shapes[name][1]


class Decoder:
    """Builds the graph of one batch."""

    def __init__(self, model: Model, batch: Batch, layers: list[Layer], traits: Traits) -> None:
        self.model, self.batch, self.layers, self.traits = model, batch, layers, traits
        self.by_window = any(layer.windowed for layer in layers)
        self.graph, self.n = Graph(), batch.n_tokens
        self.d = model.n_embd
        self.inputs: dict[str, Tensor] = {}
        self.heads = heads_of(model)
        self.per_layer: Tensor | None = None
        self.n_deepstack = model.number("n_deepstack_layers") or 0
        self.of_pictures = CACHE
        self.number = 0  # of the block that is being built
        self.chosen: Tensor | None = None  # the cells of the last indexer; layers without one take them, too

    def again(self) -> Decoder:
        """One for the same batch that has built nothing yet."""
        return type(self)(self.model, self.batch, self.layers, self.traits)

    def header(self, key: str) -> object:
        """What the header has under this key of the architecture."""
        return self.model.metadata.get(f"{self.model.architecture}.{key}")

    # --- inputs ---

    def input(self, name: str, n_bytes: int) -> Tensor:
        """An input of the batch; the same for all layers that name it."""
        if name not in self.inputs:
            self.inputs[name] = Tensor(n_bytes, is_input=True)
        return self.inputs[name]

    def positions(self) -> Tensor:
        """One number for each token; four where a picture's rows and columns count, too (n_pos_per_embd)."""
        four = self.traits.four_positions or (self.traits.positions_by_sections and self.has_sections)
        return self.input("positions", I32 * self.n * (4 if four else 1))

    @cached_property
    def has_sections(self) -> bool:
        """Whether the header splits positions into sections (use_mrope, llama-hparams.cpp:352)."""
        sections = self.model.per_layer("rope.dimension_sections") or ()
        return len(sections) > 1 and all(sections[:2])

    def outputs(self) -> Tensor:
        return self.input("outputs", I32 * self.batch.n_outputs)

    def cells(self, layer: Layer) -> int:
        return self.batch.n_windowed if layer.windowed else self.batch.n_cells

    def of_cache(self, layer: Layer, name: str, n_bytes: int) -> Tensor:
        return self.input(f"{name} {layer.windowed}", n_bytes)

    def mask(self, layer: Layer) -> Tensor:
        n_bytes = (F16 if self.batch.flash_attn else F32) * self.n * self.cells(layer)
        return self.of_cache(layer, "mask", n_bytes)

    # --- small pieces ---

    def wide(self, width: int, *sources: Tensor, n: int | None = None) -> Tensor:
        """An operation with `width` numbers for each token."""
        return operation(F32 * width * (self.n if n is None else n), *sources)

    def own(self, x: Tensor, *names: str) -> Tensor:
        """The same operation, which reads these weights or caches of the block."""
        return reading(x, *[f"blk.{self.number}.{name}" for name in names])

    def linear(self, layer: Layer, name: str, x: Tensor, n: int | None = None) -> Tensor:
        y = self.own(self.wide(layer.rows(f"{name}.weight"), x, n=n), f"{name}.weight")
        return self.own(in_place(y), f"{name}.bias") if f"{name}.bias" in layer else y

    def norm(self, x: Tensor, name: str = NORM) -> Tensor:
        """Normalized, and scaled in place by a weight, as wide as the state where it is not named."""
        normed = self.own(operation(x.n_bytes, x) if self.traits.layer_norm else in_place(x), NORMED)
        return self.own(in_place(normed), name)

    def stored(self, *sources: Tensor) -> Tensor:
        """Values written into the block's cache."""
        return store(*sources, block=self.number)

    # --- the whole ---

    def build(self, rounds: int | None = None, joined: int = 1) -> Graph:
        """The whole batch; of layers that repeat others, so many rounds, and the last (None: all).

        joined  rounds that count as one, where the holes are the same only after several
        """
        x, ends = self.begun(), []
        layers, joints = self.without_repeats(rounds, joined) if rounds else (self.layers, [])
        for layer in layers:
            self.number = layer.number
            x = self.block(layer, x, layer is layers[-1])
            ends.append(self.graph.nodes[-1])
        self.number = HEAD
        self.graph.joints = [(ends[before], ends[last]) for before, last in joints]
        self.head(x)
        return self.graph

    def begun(self) -> Tensor:
        """The state before the first layer."""
        x = self.embedded()
        self.per_layer = self.per_layer_embeddings(x)
        return x

    def alive_in_layers(self) -> list[int]:
        """Bytes that live at once in each layer, without what comes from others."""
        x, alive = self.begun(), []
        for layer in self.layers:
            begin = len(self.graph.nodes)
            x = self.block(layer, x, layer is self.layers[-1])
            self.graph.expand(x)
            alive.append(alive_bytes(self.graph.nodes[begin:]))
        return alive

    def kind_of(self, layer: Layer) -> tuple[object, ...]:
        """Equal for layers whose operations are of the same sizes."""
        shapes = *layer.shapes.items(), layer.number < self.n_deepstack
        return shapes, layer.n_head, layer.windowed, layer.keeps_keys, layer.indexes, self.has_positions(layer)

    def without_repeats(self, rounds: int, joined: int) -> tuple[list[Layer], list[tuple[int, int]]]:
        """The layers without every round that so many equal ones precede and one follows, and where some are missing.

        That is told by the last layer before, and the layer one round earlier, among those that are left.
        """
        kinds = [hash(self.kind_of(layer)) for layer in self.layers]
        few, joints, i = list(self.layers[:1]), [], 1
        while i < len(kinds):
            every = range(1, LONGEST_ROUND + 1)
            period = joined * next((p for p in every if _repeats(kinds, i, p, rounds * joined, joined)), 0)
            if period:
                joints.append((len(few) - 1 - period, len(few) - 1))
            else:
                few.append(self.layers[i])
            i += period or 1
        return few, joints

    def embedded(self) -> Tensor:
        tokens = self.input("tokens", I32 * self.n)
        x = operation(F32 * self.d * self.n, tokens)
        x.on_host = True
        width = self.d * (1 + self.n_deepstack)
        if self.n_deepstack:  # with room for what a picture adds to the first layers
            x = self.wide(width, x)
        self.graph.expand(x)
        self.graph.inputs.append(self.input("vectors", F32 * width * self.n))
        if self.n_deepstack:
            self.of_pictures = x
            x = view(x, F32 * self.d * self.n)
        if self.header("embedding_scale"):
            x = in_place(x)
            self.graph.expand(x)
        elif self.traits.scaled:
            x = in_place(x)
        return x

    def head(self, x: Tensor) -> None:
        if self.traits.outputs_last:
            x = self.norm(x)
            self.graph.kept.append(x)
            x = operation(F32 * self.d * self.batch.n_outputs, x, self.outputs())
        else:
            x = self.norm(x)
        self.graph.kept.append(x)
        logits = self.own(operation(F32 * self.batch.n_vocab * self.batch.n_outputs, x), "output")
        self.graph.expand(logits)

    def block(self, layer: Layer, x: Tensor, is_last: bool) -> Tensor:
        if self.traits.single:
            return self.single_block(layer, x)
        if self.traits.parallel:
            return self.parallel_block(layer, x, is_last)
        if "ssm_in.weight" in layer and "attn_q.weight" in layer:
            return self.hybrid_block(layer, x, is_last)
        early = is_last and not self.traits.outputs_last
        n = self.batch.n_outputs if early else self.n
        x = self.mixed(layer, x, early) if self.has_mixer(layer) else self.wanted(x) if early else x
        if not self.has_feed_forward(layer):
            return x
        if "ffn_gate_inp.scale" in layer:
            result = self.experts_beside(layer, x, n)
        else:
            normed = self.norm(x) if not self.traits.no_ffn_norm else x
            result = self.feed_forward(layer, normed, n)
        if FEED_FORWARD in self.traits.post_norms:
            result = self.norm(result)
        return self.finished(layer, self.added(result, x, FEED_FORWARD))

    def mixed(self, layer: Layer, x: Tensor, early: bool) -> Tensor:
        """With what the mixer makes of it."""
        normed = self.norm(x) if "attn_norm.weight" in layer else x
        mixed = self.mixer(layer, normed)
        if early:
            mixed, x = self.wanted(mixed), self.wanted(x)
        if ATTENTION in self.traits.post_norms:
            mixed = self.norm(mixed)
        return self.added(mixed, x, ATTENTION)

    def has_mixer(self, layer: Layer) -> bool:
        """Whether the block has more than a feed-forward network; some of deci's have not (deci.cpp)."""
        return not layer.shapes or any(not name.startswith("ffn_") for name in layer.shapes)

    def added(self, result: Tensor, x: Tensor, what: str) -> Tensor:
        return in_place(x, result) if what in self.traits.residual_first else in_place(result, x)

    def finished(self, layer: Layer, x: Tensor) -> Tensor:
        """With what a picture adds to it, and the layer's own embeddings."""
        if layer.number < self.n_deepstack:
            x = in_place(x, view(self.of_pictures, self.of_pictures.n_bytes - F32 * self.d * self.n_deepstack))
        if self.per_layer is None:
            return self.rescaled(layer, x)
        gated = in_place(
            in_place(self.linear(layer, "inp_gate", x)),
            view(self.per_layer, self.per_layer.n_bytes // self.model.n_layer),
        )
        return self.rescaled(layer, in_place(x, self.norm(self.linear(layer, "proj", gated))))

    def rescaled(self, layer: Layer, x: Tensor) -> Tensor:
        """Multiplied by the layer's own number, where it has one."""
        scale = "layer_output_scale.weight"
        return self.own(in_place(x), scale) if scale in layer else x

    def per_layer_embeddings(self, x: Tensor) -> Tensor | None:
        """Embeddings of each token for each layer: the host's rows, and what is projected of x."""
        width = (self.model.number("embedding_length_per_layer_input") or 0) * self.model.n_layer
        if not width:
            return None
        rows = self.wide(width, self.input("tokens of layers", I32 * self.n))
        rows.on_host = True
        selected = in_place(view(rows))
        self.graph.expand(selected)
        model_proj = reading(self.wide(width, x), "per_layer_model_proj.weight")
        projected = self.norm(view(in_place(model_proj)))
        return self.wide(width, view(in_place(in_place(projected, selected))))

    def wanted(self, x: Tensor) -> Tensor:
        """The rows of the tokens whose logits are wanted."""
        return operation(F32 * self.d * self.batch.n_outputs, x, self.outputs())

    def single_block(self, layer: Layer, x: Tensor) -> Tensor:
        """A block that is either a mixer or a feed-forward network."""
        normed = self.norm(x)
        result = self.feed_forward(layer, normed, self.n) if self.has_feed_forward(layer) else self.mixer(layer, normed)
        return in_place(result, x)

    def parallel_block(self, layer: Layer, x: Tensor, is_last: bool) -> Tensor:
        """A block whose feed-forward network reads what its attention reads."""
        normed = self.norm(x)
        mixed, n = self.mixer(layer, normed), self.n
        if is_last:
            mixed, x, n = self.wanted(mixed), self.wanted(x), self.batch.n_outputs
        if "ffn_norm.weight" in layer or "attn_norm_2.weight" in layer:
            normed = self.norm(x)
        elif is_last:
            normed = self.wanted(normed)
        result = self.feed_forward(layer, normed, n)
        if self.traits.residual_last:
            return in_place(in_place(mixed, result), x)
        return in_place(in_place(result, x), mixed)

    def hybrid_block(self, layer: Layer, x: Tensor, is_last: bool) -> Tensor:
        """A block with attention and a state space that read the same."""
        attended = self.attention(layer, self.norm(x))
        x = in_place(in_place(attended, self.state_space(layer, self.norm(x))), x)
        if is_last:
            x = self.wanted(x)
        n = self.batch.n_outputs if is_last else self.n
        return in_place(self.feed_forward(layer, self.norm(x), n), x)

    def mixer(self, layer: Layer, x: Tensor) -> Tensor:
        if "shortconv.conv.weight" in layer:
            return self.short_convolution(layer, x)
        if "ssm_alpha.weight" in layer or "ssm_ba.weight" in layer:
            return self.delta_net(layer, x)
        if "ssm_in.weight" in layer:
            return self.state_space(layer, x)
        if "attn_kv_a_mqa.weight" in layer:
            return self.latent_attention(layer, x)
        if "attn_qkv.weight" not in layer and "attn_q.weight" not in layer:
            return self.linear(layer, "attn_output", x)
        return self.attention(layer, x)

    # --- attention ---

    def attention(self, layer: Layer, x: Tensor) -> Tensor:
        q, k, v, gate = self.queries_keys_values(layer, x)
        out = self.attend(layer, q, k, v)
        if gate:
            out = in_place(out, in_place(gate))
        return self.linear(layer, "attn_output", out)

    def queries_keys_values(
        self, layer: Layer, x: Tensor
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Queries, keys and values with their positions, and a gate for what attention computes."""
        out = layer.shapes["attn_output.weight"][0]
        gate = None
        if "attn_qkv.weight" in layer:
            qkv = self.linear(layer, "attn_qkv", x)
            kv = layer.rows("attn_qkv.weight") - out
            n_k = kv // 2
            q, k, v = view(qkv, F32 * out * self.n), view(qkv, F32 * n_k * self.n), view(qkv, F32 * (kv - n_k) * self.n)
            return self.turned(layer, "q", q), self.turned(layer, "k", k), v, None
        q = self.linear(layer, "attn_q", x)
        width = F32 * out * self.n
        if self.traits.gated_queries:
            gate = operation(width, view(q, width))
            q = self.turned(layer, "q", view(q, width))
        else:
            q = self.turned(layer, "q", q)
        if "attn_gate.weight" in layer:
            gate = self.linear(layer, "attn_gate", x)
        if not layer.keeps_keys:
            return q, None, None, gate
        keys = self.linear(layer, "attn_k", x)
        v = self.linear(layer, "attn_v", x) if "attn_v.weight" in layer else keys
        v = in_place(view(v)) if self.traits.values_normed else v
        return q, self.turned(layer, "k", keys), v, gate

    def turned(self, layer: Layer, name: str, x: Tensor) -> Tensor:
        """With the norm of its heads and its positions: of a view, so that the first of both has a block of its own."""
        norm = f"attn_{name}_norm.weight"
        if norm in layer and self.traits.norm_of_all:
            x = self.norm(x, norm)
        x = x if x.base else view(x)
        normed, rotated = norm in layer and not self.traits.norm_of_all, self.has_positions(layer)
        if normed and not self.traits.positions_first:
            x = self.norm(x, norm)
        x = self.rotated(layer, x) if rotated else x
        if normed and self.traits.positions_first:
            x = self.norm(x, norm)
        return self.scaled(x) if name == "q" and not (rotated and self.traits.scales_queries) else x

    def rotated(self, layer: Layer, x: Tensor) -> Tensor:
        """Queries or keys with their positions, by the header's table of frequencies if it has one."""
        rotated, without = in_place(x, self.positions()), self.traits.no_frequencies_in_windows and layer.windowed
        return rotated if without else self.own(rotated, FREQUENCIES)

    def scaled(self, q: Tensor) -> Tensor:
        """Queries scaled by the token's place, where the architecture or the header asks for it."""
        if not self.traits.scales_queries and not self.header("attention.temperature_scale"):
            return q
        return in_place(q, self.input("attention scale", F32 * self.n))

    def has_positions(self, layer: Layer) -> bool:
        """Whether queries and keys of this layer are rotated by their positions."""
        every = self.traits.no_positions_every
        if self.traits.positions_if_finetuned and self.header("rope.scaling.finetuned") is False:
            return False
        if self.traits.no_positions or (every and (layer.number + 1) % every == 0):
            return False
        return layer.windowed or not self.traits.positions_in_windows

    def rotation(self, layer: Layer, name: str) -> Tensor:
        width = 64
        head = self.heads.key_in_window if layer.windowed else self.heads.key
        while name == "k" and head and head % (2 * width) == 0:
            width *= 2
        return self.of_cache(layer, f"rotation {name}", F32 * width * width)

    def attend(self, layer: Layer, q: Tensor, k: Tensor | None, v: Tensor | None) -> Tensor:
        """What attention computes of queries, keys and values, after these are in the cache."""
        batch, graph = self.batch, self.graph
        if batch.rotates_k:
            q = view(operation(q.n_bytes, self.rotation(layer, "k"), view(q)))
            k = k and view(operation(k.n_bytes, self.rotation(layer, "k"), view(k)))
        if batch.rotates_v:
            v = v and view(operation(v.n_bytes, self.rotation(layer, "v"), view(v)))
        by_window = self.by_window
        graph.expand(*(x for x in ((q, k, v) if by_window else (q, v, k)) if x))
        if k and v:
            key_cells = self.of_cache(layer, "key cells", I64 * self.n)
            width = 1 if batch.flash_attn else self.widest_values
            value_cells = self.of_cache(layer, "value cells", I64 * self.n * width)
            graph.expand(self.stored(view(k), key_cells))
            if not batch.flash_attn and v.n_bytes < F32 * self.n * width:  # padded: llama-kv-cache.cpp:1406
                v = self.wide(width, view(v))
            graph.expand(self.stored(view(v, self.spanned(v)), value_cells))
        out_bytes = F32 * layer.shapes["attn_output.weight"][0] * self.n
        keys, values = self.caches_of(layer)
        sinks = (f"blk.{layer.number}.{SINKS}",) if SINKS in layer else ()
        if batch.flash_attn:
            heads = reading(operation(out_bytes, view(q), self.mask(layer)), *sinks, keys, values)
            graph.attention.append((heads, layer.number))
            out = view(heads)
        else:
            scores = reading(operation(F32 * layer.n_head * self.cells(layer) * self.n, view(q)), keys)
            chosen = reading(in_place(scores, self.mask(layer)), *sinks)
            heads = reading(operation(out_bytes, chosen), values)
            out = operation(out_bytes, view(heads))
        graph.expand(out)
        if batch.rotates_v:
            out = view(operation(out.n_bytes, self.rotation(layer, "v"), view(out)))
        return out

    def spanned(self, x: Tensor) -> int:
        """Bytes from the first to the last of what may be a part of fused queries, keys and values."""
        row = x.base.n_bytes // self.n if x.base else 0
        return x.n_bytes + max(0, row - x.n_bytes // self.n) * (self.n - 1)

    def caches_of(self, layer: Layer) -> tuple[str, str]:
        """The keys and values that a block attends to: its own, or those of the last like it that has some."""
        owners = (one.number for one in reversed(self.layers[: layer.number + 1]) if one.keeps_keys)
        owner = next((i for i in owners if self.layers[i].windowed == layer.windowed), layer.number)
        return f"blk.{owner}.k", f"blk.{owner}.v"

    @cached_property
    def widest_values(self) -> int:
        """Values of one token in the widest layer's cache."""
        widths = [layer.rows("attn_v.weight") for layer in self.layers if "attn_v.weight" in layer]
        fused = [
            (layer.rows("attn_qkv.weight") - layer.shapes["attn_output.weight"][0]) // 2
            for layer in self.layers
            if "attn_qkv.weight" in layer and "attn_output.weight" in layer
        ]
        only_keys = [
            layer.rows("attn_k.weight")
            for layer in self.layers
            if "attn_k.weight" in layer and "attn_v.weight" not in layer
        ]
        return max(widths + fused + only_keys, default=0)

    def latent_attention(self, layer: Layer, x: Tensor) -> Tensor:
        """Keys as wide as the latent rank and what is rotated; the values are a part of them."""
        n, n_head = self.n, layer.n_head
        if "attn_k_b.weight" not in layer:
            raise UnsupportedArchitecture(f"{self.model.name} leaves keys and values of its latent attention unsplit.")
        rank, width = layer.shapes["attn_kv_a_norm.weight"][0], layer.rows("attn_kv_a_mqa.weight")
        rotated = width - rank
        chosen = None
        if "attn_q_a.weight" in layer:
            low = self.norm(self.linear(layer, "attn_q_a", x), "attn_q_a_norm.weight")
            if layer.indexes:
                self.chosen = self.chosen_cells(layer, x, low)
            chosen = self.chosen
            q = self.linear(layer, "attn_q_b", low)
        else:
            q = self.linear(layer, "attn_q", x)
        absorbed = self.own(self.wide(rank * n_head, view(q)), "attn_k_b.weight")
        turned = in_place(view(q, F32 * rotated * n_head * n), self.positions())
        q = self.scaled(self.wide(width * n_head, view(absorbed), turned))
        kv = self.linear(layer, "attn_kv_a_mqa", x)
        latent = self.norm(view(kv, F32 * rank * n), "attn_kv_a_norm.weight")
        k = self.wide(width, view(latent), in_place(view(kv, F32 * rotated * n), self.positions()))
        self.graph.expand(q, latent, k)
        self.graph.expand(self.stored(view(k), self.of_cache(layer, "key cells", I64 * n)))
        out_width = layer.shapes["attn_output.weight"][0]
        mask = self.mask_of(layer, chosen) if chosen else self.mask(layer)
        if self.batch.flash_attn:
            heads = self.own(self.wide(rank * n_head, view(q), mask), "k", "v")
            self.graph.attention.append((heads, layer.number))
            made = self.own(self.wide(out_width, view(heads)), "attn_v_b.weight")
            out = view(self.wide(out_width, view(made)))
        else:
            values = self.own(operation(F16 * rank * self.cells(layer) * self.batch.n_streams), "v")
            scores = self.own(operation(F32 * n_head * self.cells(layer) * n, view(q)), "k")
            heads = self.wide(rank * n_head, values, in_place(scores, mask))
            made = self.own(self.wide(out_width, heads), "attn_v_b.weight")
            out = self.wide(out_width, view(made))
        self.graph.expand(out)
        return self.linear(layer, "attn_output", out)

    def chosen_cells(self, layer: Layer, x: Tensor, low: Tensor) -> Tensor:
        """The cells that an indexer with keys of its own chooses for each token (deepseek32.cpp)."""
        rotation = self.input("rotation of the indexer", F32 * layer.rows("indexer.attn_k.weight") ** 2)
        k = in_place(
            operation(F32 * layer.rows("indexer.attn_k.weight") * self.n, self.linear(layer, "indexer.attn_k", x))
        )
        k = operation(k.n_bytes, rotation, in_place(view(k), self.positions()))
        self.graph.expand(self.stored(view(k), self.input("key cells of the indexer", I64 * self.n)))
        q = in_place(view(self.linear(layer, "indexer.attn_q_b", low)), self.positions())
        q = operation(q.n_bytes, rotation, q)
        weights = in_place(view(self.linear(layer, "indexer.proj", x)))
        mask = self.input("mask of the indexer", F16 * self.n * self.cells(layer))
        scores = self.own(self.wide(self.cells(layer), view(q), weights, mask), "index")
        n_bytes = I32 * self.n_chosen(layer) * self.n
        return operation(n_bytes, operation(n_bytes, scores))

    def n_chosen(self, layer: Layer) -> int:
        return min(self.cells(layer), self.model.number("attention.indexer.top_k") or 0)

    def mask_of(self, layer: Layer, chosen: Tensor) -> Tensor:
        """The mask, with all cells closed but those that are chosen."""
        mask = self.mask(layer)
        zeros = in_place(Tensor(F32 * self.n_chosen(layer) * self.n, is_input=True, is_constant=True))
        closed = in_place(mask)
        opened = Tensor(closed.n_bytes, (zeros, view(chosen), view(closed)), base=closed)
        return in_place(view(opened), mask)

    # --- states ---

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """Where the states of the batch's sequences lie, and those of others, of which there are none."""
        rows = self.input("states", I32 * self.batch.n_sequences)
        return view(rows), view(rows, 0)

    def state(self, n_values: int, name: str = "r") -> Tensor:
        """The states of all sequences, read from the cache in which those of new ones were cleared."""
        self.graph.expand(self.stored())
        read = self.own(operation(F32 * n_values * self.batch.n_sequences, self.places[0]), name)
        self.read_states(read, name)
        return read

    def newest(self, past: Tensor) -> Tensor:
        """The last columns of each sequence, of which a convolution goes on: a view of nearly all."""
        return view(past, past.n_bytes - F32 * (self.n // self.batch.n_sequences))

    def read_states(self, read: Tensor, name: str) -> None:
        self.graph.expand(read, self.stored(self.own(operation(0, self.places[1]), name)))

    def delta_net(self, layer: Layer, x: Tensor) -> Tensor:
        n, graph, sequences = self.n, self.graph, self.batch.n_sequences
        kernel, channels = layer.shapes["ssm_conv1d.weight"][:2]
        inner = layer.shapes["ssm_out.weight"][0]
        n_heads = layer.shapes["ssm_a"][-1]
        head = inner // n_heads
        graph.expand(x)
        convolved_state = self.state((kernel - 1) * channels)
        qk = (channels - inner) // 2
        if "attn_qkv.weight" in layer:
            mixed, z = self.linear(layer, "attn_qkv", x), view(self.linear(layer, "attn_gate", x))
        else:
            all_of_them = self.linear(layer, "ssm_in", x)
            z = self.wide(inner, view(all_of_them))
            q, k, v = (self.wide(width, view(all_of_them)) for width in (qk, qk, inner))
            mixed = self.wide(channels, self.wide(2 * qk, q, k), v)
        past = operation(F32 * channels * (n + (kernel - 1) * sequences), view(convolved_state), view(view(mixed)))
        graph.expand(past)
        graph.expand(self.stored(self.newest(past)))
        states = self.state(head * inner, "s")
        qkv = in_place(self.own(self.wide(channels, past), "ssm_conv1d.weight"))
        q, k = (in_place(in_place(view(qkv, F32 * qk * n))) for _ in "qk")
        if "ssm_ba.weight" in layer and qk < inner:
            q, k = (view(self.wide(inner, view(x))) for x in (q, k))
        v = view(qkv, F32 * inner * n)
        if "ssm_ba.weight" in layer:
            ba = self.own(self.wide(2 * n_heads, x), "ssm_ba.weight")
            b, a = self.wide(n_heads, view(ba)), self.wide(n_heads, view(ba))
            b = view(in_place(b))
        else:
            b = in_place(view(self.own(self.wide(n_heads, x), "ssm_beta.weight")))
            a = view(self.own(self.wide(n_heads, x), "ssm_alpha.weight"))
        biased = self.own(in_place(a), "ssm_dt.bias")
        decay = view(self.own(in_place(in_place(biased)), "ssm_a"))
        scan = operation(F32 * inner * (n + head * sequences), q, k, v, decay, b, view(states))
        graph.expand(self.stored(view(scan, F32 * inner * head * sequences)))
        normed = self.norm(view(scan, F32 * inner * n), "ssm_norm.weight")
        out = in_place(normed, in_place(z if z.base else view(z)))
        return view(self.linear(layer, "ssm_out", view(out)))

    def state_space(self, layer: Layer, x: Tensor) -> Tensor:
        """Mamba 2, of which two inputs are x and z, or Mamba with its smaller state."""
        n, graph, sequences = self.n, self.graph, self.batch.n_sequences
        kernel, channels = layer.shapes["ssm_conv1d.weight"][:2]
        inner = layer.shapes["ssm_out.weight"][0]
        state = self.model.number("ssm.state_size") or 0
        states = self.state((kernel - 1) * channels)
        selects = "ssm_x.weight" in layer
        mixed = self.linear(layer, "ssm_in", view(x) if selects else x)
        past = operation(F32 * channels * (n + (kernel - 1) * sequences), view(states), view(mixed))
        graph.expand(past)
        graph.expand(self.stored(self.newest(past)))
        convolved = self.own(self.wide(channels, past), "ssm_conv1d.weight")
        convolved = in_place(self.own(in_place(convolved), "ssm_conv1d.bias"))
        scanned = F32 * inner * (n + state * sequences)
        rows = self.places[0]
        graph.expand(self.stored())
        if selects:
            scan = operation(scanned, view(convolved), *self.selected(layer, convolved), rows)
        else:
            step = self.own(in_place(self.wide(layer.shapes["ssm_a"][-1], view(mixed))), "ssm_dt.bias")
            bc = (channels - inner) // 2
            x, b, c = (view(convolved, convolved.n_bytes - F32 * (channels - width)) for width in (inner, bc, bc))
            scan = operation(scanned, x, step, b, c, rows)
        self.own(scan, "s", SCAN)
        self.read_states(scan, "s")
        graph.expand(self.stored(view(scan, F32 * inner * state * sequences)))
        z = self.wide(inner, view(mixed))
        skipped = self.own(in_place(convolved) if selects else self.wide(inner, view(convolved)), "ssm_d")
        out = self.wide(inner, z, in_place(view(scan, F32 * inner * n), skipped))
        if "ssm_norm.weight" in layer:
            out = self.norm(view(out), "ssm_norm.weight")
        result = self.linear(layer, "ssm_out", out if selects else view(out))
        return view(result) if selects else result

    def selected(self, layer: Layer, x: Tensor) -> tuple[Tensor, ...]:
        """Step, B and C of Mamba, each of its tokens' own."""
        rank, inner = layer.shapes["ssm_dt.weight"][:2]
        low = self.linear(layer, "ssm_x", x)
        state = (layer.rows("ssm_x.weight") - rank) // 2
        if "ssm_dt_norm.weight" in layer:
            step, b, c = (self.norm(view(low, F32 * width * self.n)) for width in (rank, state, state))
        else:
            step, b, c = self.wide(rank, view(low)), view(low), view(low)
        made = self.own(self.wide(inner, step), "ssm_dt.weight")
        return self.own(in_place(made), "ssm_dt.bias"), b, c

    def short_convolution(self, layer: Layer, x: Tensor) -> Tensor:
        n, sequences = self.n, self.batch.n_sequences
        kernel, channels = layer.shapes["shortconv.conv.weight"][:2]
        state = self.state((kernel - 1) * channels)
        mixed = self.linear(layer, "shortconv.in_proj", view(x))
        gated = self.wide(channels, view(mixed), view(mixed))
        past = operation(F32 * channels * (n + (kernel - 1) * sequences), view(state), view(gated))
        self.graph.expand(past)
        self.graph.expand(self.stored(self.newest(past)))
        convolved = self.own(self.wide(channels, past), "shortconv.conv.weight")
        out = self.wide(channels, view(mixed), convolved)
        return view(self.linear(layer, "shortconv.out_proj", out))

    # --- feed-forward ---

    def has_feed_forward(self, layer: Layer) -> bool:
        return any(name in layer for name in ("ffn_down.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight"))

    def feed_forward(self, layer: Layer, x: Tensor, n: int) -> Tensor:
        if "ffn_down_exps.weight" not in layer:
            return self.dense(layer, x, n, "")
        latent = "ffn_latent_down.weight" in layer
        router = self.routed(layer, x, n)
        result = self.experts(layer, self.linear(layer, "ffn_latent_down", x, n) if latent else x, n, router)
        if latent:
            result = self.linear(layer, "ffn_latent_up", result, n)
        if "ffn_down_shexp.weight" in layer:
            shared = self.dense(layer, x, n, "_shexp")
            if "ffn_gate_inp_shexp.weight" in layer:
                gate = self.own(self.wide(1, x, n=n), "ffn_gate_inp_shexp.weight")
                shared = in_place(shared, in_place(gate))
            result = in_place(result, shared)
        return result

    def routed(self, layer: Layer, x: Tensor, n: int) -> Tensor:
        """What the router makes of each token."""
        return self.own(self.wide(layer.rows("ffn_gate_inp.weight"), x, n=n), "ffn_gate_inp.weight")

    def dense(self, layer: Layer, x: Tensor, n: int, suffix: str) -> Tensor:
        width, out = layer.shapes[f"ffn_down{suffix}.weight"][:2]
        up = self.own(self.wide(layer.rows(f"ffn_up{suffix}.weight"), x, n=n), f"ffn_up{suffix}.weight")
        if f"ffn_gate{suffix}.weight" in layer:
            gate = self.own(self.wide(width, x, n=n), f"ffn_gate{suffix}.weight")
            up = self.wide(width, gate, up, n=n)
        elif layer.rows(f"ffn_up{suffix}.weight") > width:
            up = self.wide(width, up, n=n)
        else:
            up = in_place(up)
        return self.own(self.wide(out, up, n=n), f"ffn_down{suffix}.weight")

    def experts_beside(self, layer: Layer, x: Tensor, n: int) -> Tensor:
        """A dense network and experts that read the same, each with norms of its own."""
        dense = self.norm(self.dense(layer, self.norm(x), n, ""))
        router = self.routed(layer, self.own(in_place(in_place(in_place(x))), "ffn_gate_inp.scale"), n)
        return in_place(dense, self.norm(self.experts(layer, self.norm(x), n, router)))

    def experts(self, layer: Layer, x: Tensor, n: int, logits: Tensor) -> Tensor:
        """The sum of what the chosen experts make of each token."""
        width, out, n_experts = layer.shapes["ffn_down_exps.weight"][:3]
        used = self.used_of(n_experts)
        probabilities = logits if self.traits.weights_after else in_place(logits)
        chosen_from = logits if self.traits.weights_before else probabilities
        if "exp_probs_b.bias" in layer:
            chosen_from = self.own(in_place(probabilities), "exp_probs_b.bias")
        groups = self.model.number("expert_group_count") or 0
        if groups > 1:
            chosen_from = self.of_groups(chosen_from, n_experts, groups, n)
        ordered = self.wide(n_experts, chosen_from, n=n)
        chosen = view(ordered, I32 * (n_experts * (n - 1) + used))
        weights = self.wide(used, view(probabilities), chosen, n=n)
        routed = [logits, probabilities, chosen_from, ordered, weights]
        if self.traits.weights_after:
            weights = in_place(view(weights))
        by_header = self.traits.weights_normed_by_header and self.header("expert_weights_norm")
        if self.traits.weights_normed or by_header:
            sums = self.wide(1, view(weights), n=n)
            divided = self.wide(used, view(weights), in_place(sums), n=n)
            routed += [sums, divided]
            weights = view(divided)
        if self.header("expert_weights_scale") not in (None, 0.0, 1.0):
            weights = in_place(weights)
        self.graph.expand(weights)
        x = view(x)
        if groups <= 1 and not (self.traits.weights_after or self.traits.weights_before):
            self.graph.fused[id(x)] = (*routed, weights), tuple(routed[1:])
        if self.traits.weights_before:
            x = in_place(self.wide(self.d * used, x, n=n), weights)
        if "ffn_gate_up_exps.weight" in layer:
            both = self.own(self.wide(2 * width * used, x, chosen, n=n), "ffn_gate_up_exps.weight")
            product = self.wide(width * used, view(both), view(both), n=n)
        elif "ffn_gate_exps.weight" in layer:
            names = "ffn_gate_exps.weight", "ffn_up_exps.weight"
            gate, up = (self.own(self.wide(width * used, x, chosen, n=n), name) for name in names)
            product = self.wide(width * used, gate, up, n=n)
        else:
            product = in_place(self.own(self.wide(width * used, x, chosen, n=n), "ffn_up_exps.weight"))
        made = results = self.own(self.wide(out * used, product, chosen, n=n), "ffn_down_exps.weight")
        if not self.traits.weights_before:
            results = in_place(results, weights)
        self.graph.expand(results)
        each = [view(results, F32 * out * n) for _ in range(used)]
        self.graph.expand(*each)
        total = each[0]
        for one in each[1:]:
            total = in_place(total, one)
            self.graph.expand(total)
        if made is not results:
            self.graph.fused[id(total)] = (made, weights), ()
        return self.wide(out, total, n=n) if used == 1 else total

    def used_of(self, n_experts: int) -> int:
        """Experts used for a token. Raises UnsupportedArchitecture for more than there are (llama-model.cpp:1362)."""
        used = self.model.number("expert_used_count") or 1
        if not 0 < used <= n_experts:
            raise UnsupportedArchitecture(f"The header of {self.model.name} uses {used} of {n_experts} experts.")
        return used

    def of_groups(self, scores: Tensor, n_experts: int, groups: int, n: int) -> Tensor:
        used = self.model.number("expert_group_used_count") or 1
        grouped = view(scores)
        best = view(self.wide(n_experts, grouped, n=n), I32 * 2 * groups * n)
        sums = self.wide(groups, view(self.wide(2 * groups, view(grouped), best, n=n)), n=n)
        chosen = view(self.wide(groups, view(sums), n=n), I32 * used * n)
        kept = self.wide(n_experts // groups * used, grouped, chosen, n=n)
        return self.masked(grouped, kept, chosen)

    def masked(self, grouped: Tensor, kept: Tensor, chosen: Tensor) -> Tensor:
        filled = in_place(grouped)
        written = Tensor(filled.n_bytes, (filled, kept, chosen), base=filled)
        return view(written)


def _repeats(kinds: Sequence[int], i: int, p: int, before: int, here: int) -> bool:
    """Whether rounds of p kinds are equal: so many before i, so many from i on, and one behind."""
    if i < before * p or i + (here + 1) * p > len(kinds):
        return False
    return all(kinds[j] == kinds[j + p] for j in range(i - before * p, i + here * p))


def layers_of(model: Model, windows: Sequence[int], keeps_keys: Sequence[bool], indexes: Sequence[bool]) -> list[Layer]:
    """The blocks of a model, as the header has them, with what is known of the cache of each.

    windows, keeps_keys, indexes  its window in tokens, whether it has keys of its own, and those of an indexer
    """
    heads = heads_of(model).n_head
    shapes: list[Shapes] = [{} for _ in windows]
    for number, name, shape in _block_tensors(model):
        if number < len(shapes):
            shapes[number][name] = shape
    return [Layer(one, heads[i], bool(windows[i]), keeps_keys[i], indexes[i], i) for i, one in enumerate(shapes)]


def _block_tensors(model: Model) -> Iterator[tuple[int, str, tuple[int, ...]]]:
    for tensor in model.tensors:
        if block := BLOCK_TENSOR.fullmatch(tensor.name):
            yield int(block[1]), block[2], tensor.shape
