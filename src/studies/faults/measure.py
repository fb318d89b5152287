"""The rounds of runs with one known fault each: two shapes, two requests a run, and faults of several degrees."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from inferlab.measurement.run import Run
from inferlab.model.synthetic_model import make_shape
from studies import recipes
from studies.faults.faults import Severity, healthy_baseline, observe
from studies.faults.study import FAULTS, HEALTHY, slug
from studies.recipes import NotRepeatable, Recipe

NARROW = {
    "name": "llama-3.1-8b",
    "mix": "Q4_0",
    "n_layer": 3,
    "n_embd": 1024,
    "n_ff": 2048,
    "n_head": 8,
    "n_head_kv": 8,
    "n_vocab": 8192,
}
WIDE = {
    "name": "llama-2-7b",
    "mix": "Q8_0",
    "n_layer": 4,
    "n_embd": 1024,
    "n_ff": 1024,
    "n_head": 8,
    "n_head_kv": 8,
    "n_vocab": 4096,
}
WORK = {
    1: {"n_prompt": 220, "n_gen": 80, **NARROW},
    2: {"n_prompt": 420, "n_gen": 140, **NARROW},
    3: {"n_prompt": 160, "n_gen": 130, **WIDE},
}
SEVERITIES = {1: Severity(0.15, "iq4_nl"), 2: Severity(0.07, "q4_1"), 3: Severity(0.3, "q5_0")}
"""The slowed link's GB/s and the type of the cache, as the records of each round have them."""
UNKNOWN_LOAD = NotRepeatable("the record does not say how many other processes used the cores")


def baseline(name: str, mix: str, n_prompt: int, n_gen: int, **dimensions: int) -> Run:
    """A shape's healthy run that agrees with the one before it."""
    return healthy_baseline(make_shape(name, mix, **dimensions), n_prompt=n_prompt, n_gen=n_gen)


def faulty(fault: str, severity: Severity, name: str, mix: str, n_prompt: int, n_gen: int, **dimensions: int) -> Run:
    """A shape's run with one fault, or with none."""
    return observe(fault, make_shape(name, mix, **dimensions), n_prompt, n_gen, severity=severity)


def _round(number: int) -> dict[str, Recipe]:
    causes = {cause: partial(faulty, cause, SEVERITIES[number], **WORK[number]) for cause in (HEALTHY, *FAULTS)}
    named = {f"faults/{number}-{slug(cause)}": recipe for cause, recipe in causes.items()}
    return {
        f"faults/{number}-baseline": partial(baseline, **WORK[number]),
        **named,
        f"faults/{number}-competing-load": UNKNOWN_LOAD,
    }


RECIPES: Mapping[str, Recipe] = _round(1) | _round(2) | _round(3)

if __name__ == "__main__":
    recipes.main(RECIPES)
