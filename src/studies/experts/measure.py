"""Measures whole layers against experts on the host, in pairs, and how well speed plans of mixtures hold."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from inferlab.engine.client import LlamaEngine
from inferlab.engine.loopback import loopback_device
from inferlab.engine.session import default_engine
from inferlab.measurement.paired import Paired, require_enough
from inferlab.measurement.run import Run, measure_in_turns
from inferlab.measurement.turns import in_turns
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.prediction.calibrate import calibrate
from inferlab.prediction.validation import Point, measured
from inferlab.records import load_all
from inferlab.settings import Settings
from studies import recipes
from studies.experts.study import MIX, MODEL, SMALL
from studies.experts.two_ways import same_bytes
from studies.recipes import Recipe

WARMUP_TOKENS = 32  # the engines of a round stay open


def layers_or_experts(
    path: str | Path,
    n_cpu_moe: int,
    n_threads: int,
    n_prompt: int = 256,
    n_gen: int = 33,
    rounds: int = 5,
    pairs: int = 3,
    control: bool = False,
) -> Paired:
    """Rates with whole layers on the host ("before") and with experts of about the same bytes there ("after").

    Each round starts both sides anew and measures some pairs, because two processes with the same settings differ, too.
    In it each side has its own loopback device, started first in every other round, which computes with n_threads and
    keeps its weights loaded; the host computes with one thread. Both use the weights as they are in the file, so that
    their kernels are the same.
    control  whole layers on both sides: what is left is the difference of the processes
    Raises InvalidSettings for a model without experts, or fewer than six pairs in all.
    """
    require_enough(rounds * pairs)
    plain, model = Settings(n_ctx=n_prompt + n_gen, flash_attn="on", use_extra_bufts=False), read_gguf(path)
    runs: tuple[list[Run], list[Run]] = ([], [])
    for number in range(rounds):
        with loopback_device(n_threads=n_threads) as first, loopback_device(n_threads=n_threads) as second:
            devices = (first, second) if number % 2 == 0 else (second, first)
            before, after = (device.settings(plain) for device in devices)
            asked = same_bytes(model, before, n_cpu_moe)[0], same_bytes(model, after, n_cpu_moe)[0 if control else 1]
            for side, measured_runs in enumerate(_round(path, asked, n_prompt, n_gen, pairs)):
                runs[side].extend(measured_runs)
    return Paired(tuple(runs[0]), tuple(runs[1]))


def _round(
    path: str | Path, asked: tuple[Settings, Settings], n_prompt: int, n_gen: int, n_pairs: int
) -> tuple[tuple[Run, ...], ...]:
    """The pairs of one round, each side in an engine that stays open."""
    with closing(LlamaEngine()) as first, closing(LlamaEngine()) as second:
        engines = first, second

        def once(side: int) -> Run:
            arguments = path, [asked[side]], n_prompt, n_gen, 1, engines[side]
            return measure_in_turns(*arguments, progress=False, warmup_tokens=WARMUP_TOKENS)[0]

        return in_turns(once, (0, 1), range(n_pairs))


# --- the records --------------------------------------------------------------------------------


def pairs_of_shape(n_prompt: int, rounds: int, pairs: int, control: bool = False) -> Paired:
    """The page's shape with the experts of three layers on the host, the device with two threads."""
    path = make_shape(MODEL, MIX, **SMALL)
    return layers_or_experts(path, 3, 2, n_prompt, 33, rounds, pairs, control).compact()


def points_again() -> tuple[Point, ...]:
    """The requests of the recorded points; those to a device go to a loopback device of one thread."""
    asked = [
        replace(point, prefill_seconds=(), decode_seconds=()) for point in load_all("epyc-2c/experts-points", Point)
    ]
    with loopback_device(n_threads=1) as device:
        here = (device.settings(point.settings) if point.settings.rpc_servers else point.settings for point in asked)
        points = [replace(point, settings=settings) for point, settings in zip(asked, here, strict=True)]
        return measured(points, default_engine())


short, long = (
    partial(pairs_of_shape, n_prompt=256, rounds=8, pairs=2),
    partial(pairs_of_shape, n_prompt=2048, rounds=6, pairs=3),
)
"""A record has its pairs in order, not its rounds: where they begin shows in the rates of its processes."""
RECIPES: Mapping[str, Recipe] = {
    "experts-layers-short": short,
    "experts-layers-long": long,
    "experts-control-short": partial(short, control=True),
    "experts-control-long": partial(long, control=True),
    "experts-calibration": partial(calibrate, save=False),
    "experts-points": partial(points_again),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
