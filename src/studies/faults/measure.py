"""The rounds of runs with one known fault each: two shapes, two requests a run, and faults of several degrees."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.measurement.run import Run
from inferlab.model.synthetic_model import make_shape
from studies import recipes
from studies.faults.faults import Severity, healthy_baseline, observe
from studies.faults.study import FAULTS, HEALTHY, ROUNDS, slug
from studies.recipes import NotRepeatable, Recipe

NARROW: dict[str, Any] = {"n_layer": 3, "n_embd": 1024, "n_ff": 2048, "n_head": 8, "n_head_kv": 8, "n_vocab": 8192}
WIDE: dict[str, Any] = {"n_layer": 4, "n_embd": 1024, "n_ff": 1024, "n_head": 8, "n_head_kv": 8, "n_vocab": 4096}
SHAPES = {1: ("llama-3.1-8b", "Q4_0", NARROW), 2: ("llama-3.1-8b", "Q4_0", NARROW), 3: ("llama-2-7b", "Q8_0", WIDE)}
TOKENS = {1: {"n_prompt": 220, "n_gen": 80}, 2: {"n_prompt": 420, "n_gen": 140}, 3: {"n_prompt": 160, "n_gen": 130}}
SEVERITIES = {1: Severity(0.15, "iq4_nl"), 2: Severity(0.07, "q4_1"), 3: Severity(0.3, "q5_0")}
"""The slowed link's GB/s and the type of the cache, as the records of each round have them."""
UNKNOWN_LOAD = NotRepeatable("the record does not say how many other processes used the cores")


def _shape(number: int) -> Path:
    name, mix, dimensions = SHAPES[number]
    return make_shape(name, mix, **dimensions)


def baseline(number: int) -> Run:
    """A healthy run of a round's shape that agrees with the one before it."""
    return healthy_baseline(_shape(number), **TOKENS[number])


def faulty(number: int, fault: str) -> Run:
    """A run of a round's shape with one fault, or with none."""
    return observe(fault, _shape(number), **TOKENS[number], severity=SEVERITIES[number])


RECIPES: Mapping[str, Recipe] = {f"faults/{number}-baseline": partial(baseline, number) for number in ROUNDS} | {
    f"faults/{number}-{slug(cause)}": UNKNOWN_LOAD if cause == "competing load" else partial(faulty, number, cause)
    for number in ROUNDS
    for cause in (HEALTHY, *FAULTS)
}

if __name__ == "__main__":
    recipes.main(RECIPES)
