"""A wide range of the compute buffer of a decoder whose graph nobody followed, from the widths of its tensors.

    least   the larger of the embedded tokens and of the last stage: n_embd ub 4, (n_vocab + n_embd) outputs 4
    most    twice what all matrices of the widest layer make, STAGES vectors, all scores, masks and states, the keys of
            an indexer, and the head

Nothing in it depends on the order of operations: what one layer makes is freed before the next but one begins.
"""

from __future__ import annotations

from inferlab.machine import HOST_DEVICE
from inferlab.prediction.memory.decoder import F32, Decoder, Layer

STAGES = 8  # vectors of n_embd values for each token: residuals, norms and sums around a layer's matrices
MASKS = 4  # of each kind of layer, in 4 bytes: as input, as copy, converted, and with cells closed
FUSED = 2  # numbers for each cell that a fused indexer has at once: the scores, and those in order


def wide_range(decoder: Decoder, state_values: int, index_key: int, on_device: bool) -> dict[str, tuple[int, int]]:
    """Least and most bytes of the host, and with everything on one device of "gpu0".

    state_values  32-bit numbers of the largest recurrent state of a layer, for all sequences
    index_key     width of an indexer's key, which glm5-next pools over all cells (glm5-next.cpp:842)
    """
    batch, vector = decoder.batch, F32 * decoder.d * decoder.n
    streams = max(1, decoder.model.number("hyper_connection.count") or 1)
    head = F32 * (batch.n_vocab + decoder.d) * batch.n_outputs
    n_cells = batch.n_cells + batch.n_windowed * decoder.by_window
    inputs = MASKS * F32 * decoder.n * n_cells + STAGES * vector
    layer = max(_made_bytes(decoder, layer) + _scores_bytes(decoder, layer) for layer in decoder.layers)
    keys = STAGES * F32 * batch.n_streams * batch.n_cells * index_key
    most = inputs + keys + 2 * layer + STAGES * streams * vector + head + 3 * F32 * state_values
    least = max(vector, head)
    if not on_device:
        return {HOST_DEVICE: (least, most)}
    return {HOST_DEVICE: (vector, inputs), "gpu0": (least, most)}


def _made_bytes(decoder: Decoder, layer: Layer) -> int:
    """Bytes that the matrices of a layer make of a batch, those of experts as often as they are used."""
    width = 0
    for name, shape in layer.shapes.items():
        if len(shape) > 1:
            width += shape[1] * (decoder.used_of(shape[2]) if len(shape) > 2 and "_exps" in name else 1)
    return F32 * decoder.n * width


def _scores_bytes(decoder: Decoder, layer: Layer) -> int:
    """Bytes of the scores of every head, without flash attention, and of an indexer: fused, or of every head."""
    heads = 0 if decoder.batch.flash_attn else layer.n_head
    if layer.indexes:
        fused = "indexer.attn_q_b.weight" in layer  # ggml_lightning_indexer, deepseek4.cpp:646
        heads += FUSED if fused else decoder.model.number("attention.indexer.head_count") or 1
    return F32 * decoder.n * decoder.batch.n_cells * heads
