"""Rates with repacking and without in alternating pairs, and rates of many types in turns.

A slow minute of the machine then meets both cases, or every type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.engine.client import LlamaEngine
from inferlab.engine.quantize import quantize
from inferlab.measurement.run import Run, measure
from inferlab.measurement.turns import in_turns
from inferlab.model.find import cache_folder, find_model, tiny_imatrix, tiny_model
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.kernels.study import PHASES, Pairs, without
from studies.kernels.type_rates import TypeRate, TypeRates
from studies.recipes import Recipe

HOST_SETTINGS = Settings(devices=(), flash_attn="on")


def repacking(shape: str, mix: str, n_prompt: int, n_gen: int, n_pairs: int, **dimensions: Any) -> Pairs:
    """A shape's rates on the host with `use_extra_bufts` and without, one pass a run; warm-ups are not kept."""
    path = make_shape(shape, mix, **dimensions)

    def once(repacked: bool) -> Run:
        settings = HOST_SETTINGS.but(use_extra_bufts=repacked)
        return replace(measure(path, settings, n_prompt, n_gen, repeats=1, progress=False), warmups=())

    return Pairs(mix, *in_turns(once, (True, False), range(n_pairs)))


def shape_rates(shape: str, types: Sequence[str], n_turns: int, dimensions: Mapping[str, Any], **n: int) -> TypeRates:
    """The rates of a shape in several types on the host."""
    sides = {type: (make_shape(shape, type, **dimensions), HOST_SETTINGS) for type in types}
    return _rates_in_turns(sides, n_turns, None, **n)


def tiny_rates(
    types: Sequence[str], n_turns: int, settings: Settings = HOST_SETTINGS, engine: LlamaEngine | None = None, **n: int
) -> TypeRates:
    """The rates of the embedded model in several types, on the host unless the settings say otherwise.

    F16 is the file itself.
    """
    return _rates_in_turns({type: (_tiny(type), settings) for type in types}, n_turns, engine, **n)


def real_rates(model: str, types: Sequence[str], repacked: Sequence[str], n_turns: int, **n: int) -> TypeRates:
    """The rates of a trained model on the host in several types, those of `repacked` also with --no-repack.

    types  the file's own first; the others are made from it and have lost quality twice: for their speed alone
    """
    path, sides = find_model(model), dict[str, tuple[Path, Settings]]()
    for type in types:
        file = path if type == types[0] else quantize(path, type, requantize=True)
        sides[type] = file, HOST_SETTINGS
        if type in repacked:
            sides[without(type)] = file, HOST_SETTINGS.but(use_extra_bufts=False)
    return _rates_in_turns(sides, n_turns, None, **n)


def _tiny(type: str) -> Path:
    """The embedded model in one type, with its importance matrix: some types are not made without one.

    MXFP4 takes all matrices of the layers, which the file type MXFP4_MOE would leave in Q8_0.
    """
    if type == "F16":
        return tiny_model()
    if type == "MXFP4":
        path, all_layers = cache_folder() / "tiny-MXFP4.gguf", (r"blk\.\d+\.(attn|ffn)_.*weight=MXFP4",)
        return quantize("tiny", "MXFP4_MOE", path, tensor_types=all_layers)
    return quantize("tiny", type, imatrix=None if type == "Q8_0" else tiny_imatrix())


def _rates_in_turns(
    sides: Mapping[str, tuple[Path, Settings]], n_turns: int, engine: LlamaEngine | None, n_prompt: int, n_gen: int
) -> TypeRates:
    """Time every file with its settings once a turn, one pass after a warm-up."""

    def once(side: tuple[Path, Settings]) -> Run:
        return measure(*side, n_prompt=n_prompt, n_gen=n_gen, repeats=1, engine=engine, progress=False)

    runs = in_turns(once, [*sides.values()], range(n_turns))
    first = runs[0][0]
    return TypeRates(
        model=first.model,
        machine=first.machine,
        date=date.today().isoformat(),
        n_prompt=n_prompt,
        n_gen=n_gen,
        rates=tuple(map(_type_rate, sides, runs)),
        devices=", ".join(gpu.title for gpu in first.machine.gpus_with(b.device for b in first.buffers)),
    )


def _type_rate(type: str, runs: Sequence[Run]) -> TypeRate:
    first = runs[0]
    prefill, decode = (tuple(1 / getattr(run, f"{phase}_tokens_per_second") for run in runs) for phase in PHASES)
    kernels = first.kernel_shares(first.n_prompt), first.kernel_shares(1)
    return TypeRate(type, first.model.tensor_bytes, prefill, decode, *kernels)


def _llama(mix: str, n_pairs: int) -> Recipe:
    return partial(repacking, "llama-3.2-1b", mix, n_prompt=128, n_gen=32, n_pairs=n_pairs, n_layer=8, n_vocab=16_384)


def _experts(shape: str, mix: str, **cut: int) -> Recipe:
    return partial(repacking, shape, mix, n_prompt=256, n_gen=32, n_pairs=16, **cut)


TINY_TYPES = (
    *("F16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q4_0", "IQ4_NL", "IQ4_XS", "MXFP4"),
    *("Q3_K_M", "IQ3_S", "IQ3_XXS", "Q2_K", "IQ2_XS", "IQ2_XXS", "IQ1_M"),
)
REAL_TYPES, REAL_REPACKED = ("Q4_1", "Q4_0", "IQ4_NL", "Q4_K_M", "Q8_0", "F16"), ("Q4_0", "IQ4_NL", "Q4_K_M")
SHAPE_TYPES = ("F16", "Q8_0", "Q4_K_M", "IQ4_XS", "Q3_K_M", "IQ3_XXS", "Q2_K", "IQ2_XXS")
RECIPES: Mapping[str, Recipe] = {
    **{f"repacking-{mix}": _llama(mix, n_pairs=4) for mix in ("F16", "Q8_0", "Q6_K", "Q5_K_M")},
    **{f"repacking-{mix}": _llama(mix, n_pairs=12) for mix in ("Q4_K_M", "Q4_0", "Q2_K")},
    "experts-repack-granite": _experts("granite-3.1-1b-a400m", "Q4_K_M"),
    "experts-repack-granite-q4_0": _experts("granite-3.1-1b-a400m", "Q4_0"),
    "experts-repack-qwen3": _experts("qwen3-30b-a3b", "Q4_K_M", n_layer=4, n_vocab=8192),
    "experts-repack-dense": _experts("llama-3.2-1b", "Q4_K_M"),
    "shape-type-rates": partial(
        shape_rates, "llama-3.2-1b", SHAPE_TYPES, 15, {"n_layer": 8, "n_vocab": 4096}, n_prompt=32, n_gen=16
    ),
    "type-rates-smollm2": partial(real_rates, "smollm2", REAL_TYPES, REAL_REPACKED, 15, n_prompt=128, n_gen=32),
    "tiny-type-rates": partial(tiny_rates, TINY_TYPES, 15, n_prompt=128, n_gen=32),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
