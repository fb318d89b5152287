"""Steps of a batch with two kernels in turns, and a token beside hidden cells with flash attention and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from inferlab.measurement.batching import BatchedDecode, BatchPoint, batched_decode
from inferlab.measurement.depth import DepthScaling, decode_beside
from inferlab.measurement.turns import in_turns
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe


def steps_by_kernel(sizes: Sequence[int], n_gen: int, n_turns: int) -> tuple[BatchedDecode, ...]:
    """Four layers with weights repacked and as in the file, n_gen steps of every size a turn."""
    path, settings = make_shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=8192), Settings(flash_attn="on")
    kinds = [settings.but(use_extra_bufts=repacked) for repacked in (True, False)]

    def once(kind: Settings) -> BatchedDecode:
        return batched_decode(path, kind, sizes, n_gen=n_gen, repeats=1, progress=False)

    return tuple(map(_batches, in_turns(once, kinds, range(n_turns))))


def _batches(runs: Sequence[BatchedDecode]) -> BatchedDecode:
    """The steps of all turns together."""
    points = [
        BatchPoint(several[0].n_sequences, tuple(s for point in several for s in point.step_seconds))
        for several in zip(*(run.points for run in runs), strict=True)
    ]
    return replace(runs[0], points=tuple(points))


def masked_cells(n_turns: int) -> tuple[DepthScaling, ...]:
    """Two layers' tokens alone in a pool and beside another sequence's cells, with flash attention and without."""
    path = make_shape("llama-3.1-8b", "Q4_K_M", n_layer=2, n_vocab=8192)
    switches = [Settings(flash_attn=switch) for switch in ("on", "off")]
    return tuple(map(_depths, in_turns(partial(decode_beside, path), switches, range(n_turns))))


def _depths(runs: Sequence[DepthScaling]) -> DepthScaling:
    seconds = {cells: tuple(s for run in runs for s in run.seconds[cells]) for cells in runs[0].seconds}
    return replace(runs[0], seconds=seconds)


SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 24, 32)
RECIPES: Mapping[str, Recipe] = {
    "steps-by-kernel": partial(steps_by_kernel, SIZES, n_gen=5, n_turns=3),
    "masked-cells": partial(masked_cells, n_turns=2),
}
"""The records have all turns of a size in one list: its length is that of these turns together."""

if __name__ == "__main__":
    recipes.main(RECIPES)
