"""The operations of Gemma 3n, which carries several states of each token from layer to layer (src/models/gemma3n.cpp).

A layer predicts all states of the next from one, runs attention and a low-rank path on the active one, and corrects the
others by what came out. With s states of D values for n tokens, three tensors of 4 s D n bytes live at once.
"""

from __future__ import annotations

from inferlab.errors import UnsupportedArchitecture
from inferlab.prediction.memory.decoder import Decoder, Layer
from inferlab.prediction.memory.graph import Tensor, in_place, operation, reading, view

SPARSE_LAYERS = 10  # n_layer_sparsity, models.h: layers whose gates are cut off by a quantile


class AltupDecoder(Decoder):
    """Builds the graph of one batch of such a model."""

    @property
    def states(self) -> int:
        """States of a token. Raises UnsupportedArchitecture for another number than the router has."""
        told, routed = self.model.number("altup.num_inputs", 4), self.layers[0].rows("altup_router.weight")
        if told != routed:
            raise UnsupportedArchitecture(f"The header of {self.model.name} has {told} states, its router {routed}.")
        return routed

    def begun(self) -> Tensor:
        return self.stacked(super().begun())

    def head(self, x: Tensor) -> None:
        super().head(self.wanted(self.merged(x)))

    def kind_of(self, layer: Layer) -> tuple[object, ...]:
        return *super().kind_of(layer), layer.number < SPARSE_LAYERS

    def one(self, x: Tensor) -> Tensor:
        """One state of the stacked ones."""
        return view(x, x.n_bytes // self.states)

    def rest(self, x: Tensor) -> Tensor:
        return view(x, x.n_bytes // self.states * (self.states - 1))

    def magnitude(self, x: Tensor) -> Tensor:
        return in_place(operation(x.n_bytes // self.d, in_place(x)))

    def as_large_as(self, target: Tensor, x: Tensor) -> Tensor:
        """x, scaled to the magnitude of the target."""
        return in_place(in_place(x, self.magnitude(target)), self.magnitude(x))

    def stacked(self, x: Tensor) -> Tensor:
        width = self.d * (self.states - 1)
        projected = reading(self.wide(width, self.wide(width, x)), "altup_proj.weight")
        added = self.as_large_as(x, projected)
        return self.wide(self.d * self.states, x, added)

    def merged(self, x: Tensor) -> Tensor:
        projected = reading(self.wide(self.d * (self.states - 1), self.rest(x)), "altup_unembd_proj.weight")
        others = self.as_large_as(self.one(x), projected)
        total = self.one(x)
        for _ in range(self.states - 1):
            total = in_place(total, view(others, total.n_bytes))
        return in_place(total)

    def block(self, layer: Layer, x: Tensor, is_last: bool) -> Tensor:
        predictions = self.predicted(layer, x)
        active = self.one(predictions)
        normed = self.norm(active)
        low_rank = self.norm(self.linear(layer, "laurel_r", self.linear(layer, "laurel_l", normed)))
        low_rank = in_place(low_rank, normed)
        attended = in_place(self.norm(self.attention(layer, normed)), active)
        attended = in_place(in_place(attended, low_rank))
        result = in_place(self.norm(self.gated(layer, self.norm(attended))), attended)
        corrected = self.corrected(layer, predictions, result)
        first = in_place(self.linear(layer, "inp_gate", in_place(self.one(corrected))))
        if self.per_layer:
            first = in_place(first, view(self.per_layer, self.per_layer.n_bytes // self.model.n_layer))
        first = self.norm(self.linear(layer, "proj", first))
        return operation(x.n_bytes, self.one(corrected), in_place(self.rest(corrected), first))

    def modalities(self, layer: Layer, x: Tensor) -> Tensor:
        return in_place(self.linear(layer, "altup_router", in_place(self.norm(x))))

    def predicted(self, layer: Layer, x: Tensor) -> Tensor:
        coefficients = view(self.linear(layer, "altup_predict_coef", self.modalities(layer, self.one(x))))
        turned = operation(x.n_bytes, operation(x.n_bytes, view(x)), coefficients)
        return in_place(operation(x.n_bytes, view(turned)), x)

    def corrected(self, layer: Layer, predictions: Tensor, x: Tensor) -> Tensor:
        new = operation(predictions.n_bytes, in_place(x, self.one(predictions)))
        coefficients = in_place(self.linear(layer, "altup_correct_coef", self.modalities(layer, x)))
        return in_place(in_place(new, self.wide(self.states, view(coefficients))), predictions)

    def gated(self, layer: Layer, x: Tensor) -> Tensor:
        """The feed-forward network, whose gates below a quantile are 0 in the first layers."""
        width, out = layer.shapes["ffn_down.weight"][:2]
        up, gate = (self.own(self.wide(width, x), f"ffn_{name}.weight") for name in ("up", "gate"))
        if layer.number < SPARSE_LAYERS:
            mean = self.wide(1, gate)
            deviation = in_place(in_place(in_place(self.wide(1, in_place(in_place(gate, mean))))))
            gate = in_place(in_place(gate, in_place(mean, deviation)))
        return self.own(self.wide(out, in_place(up, in_place(gate))), "ffn_down.weight")
