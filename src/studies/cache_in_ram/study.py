"""A cache on the device, or in the host's RAM with flash attention on or off, over a free link and a slowed one.

The link is that of a loopback device: bytes and places are those of a real device, its speed is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from inferlab.engine.loopback import loopback_device
from inferlab.measurement import kv_steps, offload_traffic
from inferlab.measurement.depth import DepthScaling, decode_at_depths
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory import kv_cache_bytes_per_token
from inferlab.settings import Settings
from inferlab.units import KIB, MIB, bytes_text

ON_DEVICE = "on the device"
FLASH, PLAIN = "on the host, flash attention on", "on the host, flash attention off"
WAYS: dict[str, dict[str, Any]] = {
    ON_DEVICE: {"flash_attn": "on"},
    FLASH: {"flash_attn": "on", "offload_kqv": False},
    PLAIN: {"flash_attn": "off", "offload_kqv": False},
}
LINKS = {"free link": None, "slowed link": 1.0}
"""Name of a link -> GB/s towards which it is slowed."""
KINDS = ("f16", "q8_0", "q4_0")
CELLS = 512
"""Cells that a token looks at where bytes and levels are compared."""

Rows = tuple[Sequence[str], Sequence[Sequence[str | float]]]
Far = Mapping[str, Sequence[DepthScaling]]
"""`way, link` -> its measurement, as `figures.token_against_cells` takes it."""
Placed = Mapping[str, tuple[Mapping[str, int], int | None]]
"""`type, offload_kqv` -> bytes on each side, and the parts of a pass."""


def placements(model: Path) -> Placed:
    """Open the model with each type of cache on either side, and with some layers alone on the device.

    Raises DeviceUnavailable, EngineRefused or EngineCrashed.
    """
    with loopback_device() as device:
        base = device.settings(Settings(n_ctx=1024, flash_attn="on"))
        asked = {
            f"{kind}, {name}": base.but(type_k=kind, type_v=kind, offload_kqv=there)
            for kind in KINDS
            for name, there in (("on", True), ("off", False))
        }
        asked["f16, on, 3 of 5 layers"] = base.but(n_gpu_layers=3)
        return {name: offload_traffic.kv_cache_placement(model, settings) for name, settings in asked.items()}


def times(model: Path) -> Far:
    """Decode at three depths in each way, over each link. Raises DeviceUnavailable, EngineRefused or EngineCrashed."""
    measured = {}
    for link, rate in LINKS.items():
        with loopback_device(rate) as device:
            for way, changes in WAYS.items():
                settings = device.settings(Settings(**changes))
                measured[f"{way}, {link}"] = [decode_at_depths(model, settings, cells=(256, 512, 768), n_gen=32)]
    return measured


def crossing_bytes(model: Path) -> dict[str, float]:
    """Way -> bytes that cross the link for one token. Raises DeviceUnavailable, EngineRefused or EngineCrashed."""
    with loopback_device() as device:
        asked = device.settings(Settings(n_ctx=1024))
        return {way: offload_traffic.link_bytes_per_token(model, asked.but(**each)) for way, each in WAYS.items()}


def placement_table(placed: Placed) -> Rows:
    """Heads and rows: MiB of cache on either side, and how many parts a pass has."""
    rows: list[Sequence[str | float]] = []
    for name, (sides, parts) in placed.items():
        sizes = " / ".join(f"{sides.get(side, 0) / MIB:g}" for side in ("device", "host"))
        rows.append((name, sizes, "unknown" if parts is None else parts))
    return ("type, offload_kqv", "device / host, MiB", "parts"), rows


def times_table(far: Far) -> Rows:
    """Heads and rows: milliseconds of a token in each way, over each link."""
    heads = (f"ms a token at {CELLS} cells, cache", *LINKS)
    return heads, [(way, *(1e3 * _level(far, way, link) for link in LINKS)) for way in WAYS]


def crossing_table(crossing: Mapping[str, float], model: Model) -> Rows:
    """Heads and rows: bytes for one token in each way, and over those of the cells that it looks at."""
    in_use = CELLS * kv_cache_bytes_per_token(model)
    rows = [(name, bytes_text(round(n)), f"{n / in_use:.2f}") for name, n in crossing.items()]
    return ("cache", "bytes for one token", f"times the {CELLS} cells"), rows


def numbers(far: Far, crossing: Mapping[str, float], placed: Placed, model: Model) -> dict[str, float | str]:
    """The numbers of the page, from its own run."""
    row = kv_cache_bytes_per_token(model)
    return {
        **_slope_numbers(far, row),
        **_level_numbers(far),
        **_drop_numbers(far, model),
        "times_crossed": crossing[FLASH] / (CELLS * row),
        "near_kib": crossing[ON_DEVICE] / KIB,
        "plain_kib": crossing[PLAIN] / KIB,
        "host_mib": crossing[FLASH] / MIB,
        "parts_near": placed["f16, on"][1],
        "parts_far": placed["f16, off"][1],
    }


def bus_ms() -> float:
    """Milliseconds in which the cells of 8000 tokens of Mistral 7B cross a bus of 12 GB/s."""
    return 1e3 * 8000 * kv_cache_bytes_per_token(_mistral()) / 12e9


def _mistral() -> Model:
    return shape("mistral-7b-v0.3", "Q4_K_M")


def _level(far: Far, way: str, link: str) -> float:
    """Seconds of a token at CELLS."""
    return kv_steps.levels(*far[f"{way}, {link}"])[CELLS]


def _slope(far: Far, way: str, link: str) -> float:
    """Seconds that each cell adds to a token."""
    return kv_steps.line(kv_steps.levels(*far[f"{way}, {link}"])).seconds_per_cell


def _slope_numbers(far: Far, row: int) -> dict[str, float | str]:
    """Microseconds of 256 cells in RAM over both links. Without flash attention no cell crosses: its change is noise.

    row  bytes of a cell
    """
    free, slow = ({way: _slope(far, way, link) for way in (FLASH, PLAIN)} for link in LINKS)
    change, noise = slow[FLASH] - free[FLASH], slow[PLAIN] - free[PLAIN]
    noisy = "A slope below zero is noise: the work on cells is too small to measure in this run. "
    remark = noisy if min(*free.values(), *slow.values()) < 0 else ""
    (slowed,) = far[f"{ON_DEVICE}, slowed link"][0].links
    rate = row / slow[FLASH] / 1e9 if slow[FLASH] > 0 else 0
    crossed = (
        "With flash attention on, the slowed link raised the slope by more than the noise, so the cells crossed the "
        f"link. On the slowed link, the slope stands for {rate:.2f} GB/s, and the link itself reached "
        f"{slowed.achieved_gigabytes_per_second:.2f} GB/s. "
        "If these two rates are close, the link takes most of the time of a cell."
    )
    unseen = (
        "With flash attention on, the slowed link did not raise the slope by more than the noise. "
        "So the times of this run cannot show that cells crossed; the counted bytes above answer the question."
    )
    return {
        "flash_us": 256e6 * free[FLASH],
        "plain_us": 256e6 * free[PLAIN],
        "flash_slow_us": 256e6 * slow[FLASH],
        "plain_slow_us": 256e6 * slow[PLAIN],
        "flash_change_us": 256e6 * change,
        "plain_change_us": 256e6 * noise,
        "slope_verdict": remark + (crossed if change > abs(noise) else unseen),
    }


def _level_numbers(far: Far) -> dict[str, float | str]:
    """A token at CELLS: flash attention on against off over the slowed link, and RAM against the device."""
    flash, plain = (1e3 * _level(far, way, "slowed link") for way in (FLASH, PLAIN))
    faster = f"flash attention {'off' if plain < flash else 'on'} was faster in this run"
    return {
        "flash_slow_ms": flash,
        "plain_slow_ms": plain,
        "slow_answer": "the two differed by less than 5 % in this run" if abs(plain / flash - 1) < 0.05 else faster,
        "flash_factor": _level(far, FLASH, "free link") / _level(far, ON_DEVICE, "free link"),
        "flash_slow_factor": flash / (1e3 * _level(far, ON_DEVICE, "slowed link")),
    }


def _drop_numbers(far: Far, model: Model) -> dict[str, float | str]:
    """Decode with the cache in RAM from the fewest cells to the most, step by step."""
    falling = kv_steps.levels(*far[f"{FLASH}, free link"])
    seconds, added = list(falling.values()), max(falling) - min(falling)
    rises = [1e3 * (b - a) for a, b in pairwise(seconds)]
    share = added * kv_cache_bytes_per_token(model) / model.tensor_bytes
    mistral = _mistral()
    return {
        "drop_first": 1 / seconds[0],
        "drop_last": 1 / seconds[-1],
        "drop_cells": added,
        "drop_steps": " and ".join(f"{ms:+.2f}" for ms in rises),
        "drop_verdict": "These steps are of similar size: decode slowed down evenly, without a sudden fall."
        if 0 < max(rises) < 2 * min(rises)
        else "These steps differ by more than a factor of two, so this run was disturbed and cannot answer the "
        "question. Each step copies the same number of further cells, so a quiet machine shows similar steps.",
        "cells_share": 100 * share,
        "like_mistral": round(share * mistral.tensor_bytes / kv_cache_bytes_per_token(mistral), -2),
    }
