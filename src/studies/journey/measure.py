"""Whole conversations, several times: from no process over loading, prompt and answer to the last token.

Every repetition starts a process of its own, so nothing is warm but what the system keeps of the file.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.engine.limit_vram import limit_vram
from inferlab.engine.loopback import loopback_device
from inferlab.engine.protocol import Pass
from inferlab.measurement.base import common_fields
from inferlab.measurement.page_cache import empty_cache, fill_cache
from inferlab.measurement.turns import in_turns
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.calibrate import calibrate
from inferlab.settings import Settings
from studies import recipes
from studies.journey.study import Journey
from studies.recipes import Recipe

PREPARE = {"full": fill_cache, "empty": empty_cache}
DIGITS = 6  # of a second's decimals: the samples of a journey are many
LONG = {"n_ctx": 11_264, "flash_attn": "on"}
CASES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "CPU, file cached": ("full", {"n_ctx": 896, "n_gpu_layers": 0, "devices": ()}),
    "CPU, file on disk": ("empty", {"n_ctx": 896, "n_gpu_layers": 0, "devices": ()}),
    "all layers there": ("full", {**LONG, "n_ctx": 6144}),
    "fewer layers there": ("full", {**LONG, "n_gpu_layers": 3}),
    "cache in RAM": ("full", {**LONG, "offload_kqv": False}),
    "q8_0 cache": ("full", {**LONG, "type_k": "q8_0", "type_v": "q8_0"}),
}
"""State of the page cache and settings of each case; those that do not exclude devices use a loopback device."""


def journeys_in_turns(
    cases: Mapping[str, tuple[str, dict[str, Any]]], limit_bytes: int, n_prompt: int, n_gen: int, rounds: int
) -> tuple[Journey, ...]:
    """`rounds` of each case, in turns. The device is limited to `limit_bytes`."""
    path = make_shape("llama-3.2-1b", "Q4_K_M", n_layer=5, n_vocab=32_768)
    with loopback_device(n_threads=1) as device, limit_vram(limit_bytes, device):

        def once(case: str) -> Journey:
            page_cache, changes = cases[case]
            settings = Settings(**changes) if "devices" in changes else device.settings(Settings(**changes))
            return journey(path, settings, n_prompt, n_gen, page_cache, case)

        return tuple(map(_together, in_turns(once, [*cases], range(rounds))))


def journey(path: Path, settings: Settings, n_prompt: int, n_gen: int, page_cache: str, case: str) -> Journey:
    """Start an engine, load the model, prefill a prompt, decode n_gen tokens, once."""
    PREPARE[page_cache](path)
    engine = LlamaEngine()
    try:
        began = time.perf_counter()
        engine.ready()
        process = time.perf_counter() - began
        opening = engine.open(path, settings)
        taken = engine.generate(engine.random_prompt(n_prompt), n_gen)
        common = common_fields(engine, opening, read_gguf(path))
    finally:
        engine.close()
    loads = ({"process_seconds": process, **opening.phases},)
    each, later = (tuple(round(s, DIGITS) for s in many) for many in (taken.token_seconds, taken.decode_seconds))
    short = Pass(round(taken.prefill_seconds, DIGITS), each, later, tokens=())
    asked = {"case": case, "page_cache": page_cache, "n_prompt": n_prompt, "n_gen": n_gen}
    return Journey(**(common | asked), loads=loads, passes=(short,))


def _together(many: Sequence[Journey]) -> Journey:
    """One journey with the repetitions of all."""
    loads, passes = (sum((getattr(repetition, field) for repetition in many), ()) for field in ("loads", "passes"))
    return replace(many[0], loads=loads, passes=passes)


RECIPES: Mapping[str, Recipe] = {
    "journey": partial(journeys_in_turns, CASES, limit_bytes=369_598_592, n_prompt=640, n_gen=192, rounds=10),
    "journey-calibration": partial(calibrate, save=False),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
