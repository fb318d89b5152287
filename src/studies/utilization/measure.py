"""The call that made the record: runs with several numbers of threads, and the processors' utilization beside them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from inferlab.measurement.run import Run
from inferlab.model.synthetic_model import make_shape
from studies import recipes
from studies.recipes import Recipe
from studies.utilization.study import runs_by_threads


def busy_threads(repeats: int, interval_seconds: float) -> tuple[Run, ...]:
    """A run of the shape with one, two and four threads."""
    path = make_shape("llama-3.2-1b", "Q4_K_M", n_layer=4, n_vocab=8192)
    return runs_by_threads(path, (1, 2, 4), repeats, interval_seconds)


RECIPES: Mapping[str, Recipe] = {
    "busy-threads": partial(busy_threads, repeats=3, interval_seconds=0.05),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
