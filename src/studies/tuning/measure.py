"""Sweeps of a shape of Llama 3.2 1B with eight layers, alone or divided between this process and a loopback device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.engine.loopback import loopback_device
from inferlab.measurement.run import measure_in_turns
from inferlab.measurement.sweep import Sweep, from_runs, sweep
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe

BASE = Settings(n_ctx=1024, n_batch=512, n_threads=2, n_threads_batch=2, flash_attn="on")
SHORT = {"n_prompt": 128, "n_gen": 16, "repeats": 5}


def path() -> Path:
    """The shape that all records have."""
    return make_shape("llama-3.2-1b", "Q4_K_M", n_layer=8, n_vocab=16384)


def swept(over: Mapping[str, Sequence[Any]], n_prompt: int, n_gen: int, repeats: int, **changes: Any) -> Sweep:
    """Every combination of `over`, the first point again every few points; `changes` are other settings than BASE."""
    return sweep(path(), BASE.but(**changes), over, n_prompt, n_gen, repeats)


def swept_on_device(over: Mapping[str, Sequence[Any]], n_gpu_layers: int) -> Sweep:
    """The same with layers on a loopback device; of two cores, host and device have one each."""
    with loopback_device() as device:
        return sweep(path(), device.settings(BASE.but(n_gpu_layers=n_gpu_layers)), over, 128, 16, 3)


def split_layers(n_prompt: int, n_gen: int, rounds: int) -> Sweep:
    """Every number of layers on a device with two threads, in turns; no side rearranges weights.

    The record of the Xeon is older: made point by point, and its host was free to rearrange weights.
    """
    with loopback_device(n_threads=2) as device:
        settings = device.settings(Settings(n_ctx=2048, flash_attn="on", use_extra_bufts=False))
        choices = [settings.but(n_gpu_layers=n) for n in range(10)]
        return from_runs(measure_in_turns(path(), choices, n_prompt, n_gen, rounds))


RECIPES: Mapping[str, Recipe] = {
    "split-layers": partial(split_layers, n_prompt=128, n_gen=17, rounds=7),
    "tune-flash_attn": partial(
        swept, {"flash_attn": ("on", "off"), "n_prompt": (128, 1024)}, n_prompt=128, n_gen=16, repeats=3, n_ctx=2048
    ),
    "tune-kv_types": partial(
        swept, {"type_k": ("f16", "q8_0"), "type_v": ("f16", "q8_0")}, n_prompt=512, n_gen=16, repeats=3
    ),
    "tune-load_mode": partial(swept, {"load_mode": ("mmap", "none", "mmap_mlock", "direct_io")}, **SHORT),
    "tune-n_batch": partial(swept, {"n_batch": (32, 64, 256)}, n_prompt=256, n_gen=4, repeats=3, n_ubatch=32),
    "tune-n_ctx": partial(swept, {"n_ctx": (512, 4096, 16384)}, **SHORT),
    "tune-n_threads": partial(swept, {"n_threads": (1, 2, 3)}, **SHORT),
    "tune-n_threads_batch": partial(swept, {"n_threads_batch": (1, 2, 3)}, **SHORT),
    "tune-n_ubatch": partial(swept, {"n_ubatch": (8, 32, 128, 256)}, n_prompt=256, n_gen=4, repeats=3),
    "tune-offload_kqv": partial(swept_on_device, {"offload_kqv": (True, False), "flash_attn": ("on", "off")}, -1),
    "tune-op_offload": partial(swept_on_device, {"op_offload": (True, False)}, 4),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
