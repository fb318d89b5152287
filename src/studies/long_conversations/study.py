"""The time of a token against the cells in use, and what bytes and bandwidths say of a rate that falls.

Measured runs are arguments; all else is computed for Mistral 7B in Q4_K_M with a cache in 16 bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from inferlab.measurement import kv_steps
from inferlab.measurement.depth import DepthScaling
from inferlab.measurement.run import Run
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.memory import kv_cache_bytes_per_token
from inferlab.units import MIB, bytes_text

START = 25
"""Tokens per second of the reported fall with an empty cache."""
CLAIMED = {0: START, 4000: 20, 4500: 10, 5000: 6, 7000: 3}
"""Cells in use -> tokens per second, as people report them."""
BEFORE, AFTER, MINUTES = 20, 3, 3
"""The checkpoint: tokens per second before and after the fall, and the minutes between."""
BUS = 12e9
"""Bytes per second."""

Rows = tuple[Sequence[str], Sequence[Sequence[str | float]]]


@cache
def _mistral_bytes() -> tuple[int, int]:
    """Bytes of the weights, and of a cell."""
    model = shape("mistral-7b-v0.3", "Q4_K_M")
    return model.tensor_bytes, kv_cache_bytes_per_token(model)


def rate_at(n_cells: int) -> float:
    """Tokens per second at a depth, if weights and cells come from one memory and an empty cache gives START."""
    weights, cell = _mistral_bytes()
    return START * weights / (weights + n_cells * cell)


def computed_rates() -> dict[int, float]:
    """Cells in use -> tokens per second, beside what CLAIMED has."""
    return {n: rate_at(n) for n in range(0, 7001, 500)}


def numbers() -> dict[str, float]:
    """The numbers of the page that are computed."""
    weights, cell = _mistral_bytes()
    in_cache, needed = MINUTES * 60 * BEFORE * cell, (1 / AFTER - 1 / BEFORE) * BUS
    return {
        "rate_7000": rate_at(7000),
        "bandwidth_25": START * weights / 1e9,
        "base_ms": 1000 / BEFORE,
        "cross_ms": 1000 * in_cache / BUS,
        "in_cache": in_cache / 1e9,
        "needed": needed / 1e9,
        "slowest": 1 / (1 / BEFORE + in_cache / BUS),
        "needed_factor": needed / in_cache,
    }


def part_table(model: Model) -> Rows:
    """Heads and rows: sizes of a model's weights and of one cell of its cache."""
    cell = bytes_text(kv_cache_bytes_per_token(model))
    return ("part", "size"), [("weights", bytes_text(model.tensor_bytes)), ("one cell of the cache, 16 bits", cell)]


def window_table(window: Mapping[int, Run]) -> Rows:
    """Heads and rows: bytes reserved and decode rate for each `n_ctx`."""
    rows = [(n, run.bytes_on("kv_cache") / MIB, run.decode_tokens_per_second) for n, run in window.items()]
    return ("n_ctx", "reserved, MiB", "tokens/s"), rows


def share_table() -> Rows:
    """Heads and rows: the cache's share of the bytes that a token reads, and the rate, at four depths."""
    weights, cell = _mistral_bytes()
    rows = [(f"{n:,}", 100 * n * cell / (weights + n * cell), rate_at(n)) for n in (512, 4000, 7000, 16_000)]
    return ("cells in use", "share of the cache in the bytes read, %", "tokens/s"), rows


def checkpoint_table() -> Rows:
    """Heads and rows: what the cache holds after the minutes of the checkpoint, and what a token must fetch."""
    values = numbers()
    return ("Mistral 7B, bus of 12 GB/s", "value"), [
        ("cache after three minutes", f"{values['in_cache']:.2f} GB"),
        ("rate if all of it crossed for every token", f"{values['slowest']:.1f} tokens/s"),
        ("bytes a token must fetch at 3 tokens/s", f"{values['needed']:.1f} GB"),
        ("weights", f"{_mistral_bytes()[0] / 1e9:.1f} GB"),
    ]


def depth_numbers(depths: Sequence[DepthScaling], model: Model) -> dict[str, float | str]:
    """What a run at several depths shows: the line of a token's time in the cells, and whether it bends."""
    level = kv_steps.levels(*depths)
    fit, few, many = kv_steps.line(level), min(level), max(level)
    us_256 = 1e6 * 256 * fit.seconds_per_cell
    return {
        "ms_none": f"{1e3 * fit.seconds:.2f} ms" if fit.seconds > 0 else "not shown by this run",
        "us_256": f"{us_256:.0f} µs" if us_256 > 0 else "not shown by this run",
        "cell_rate": kv_cache_bytes_per_token(model) / fit.seconds_per_cell / 1e9,
        "depth_factor": level[many] / level[few],
        **_deepest_numbers(level),
    }


def _deepest_numbers(level: Mapping[int, float]) -> dict[str, float | str]:
    """How far the deepest point lies off a line through the others, and what that says of its memory."""
    *before, deepest = level
    others = kv_steps.line({n: level[n] for n in before})
    expected = others.at(deepest)
    off = 100 * (level[deepest] / expected - 1)
    tenfold = 100 * 9 * (deepest - before[-1]) * others.seconds_per_cell / expected
    if others.seconds_per_cell <= 0:
        verdict = "But the other three points do not rise with the cells: this run was too disturbed to answer."
    elif off > tenfold / 2:
        verdict = (
            "One memory alone does not explain such a difference: this run was disturbed, "
            "or the line bends on this machine."
        )
    else:
        verdict = (
            f"If each cell beyond {before[-1]:,d} took ten times as long, "
            f"the point would lie {tenfold:.0f} % above that line. So this run shows no slower memory."
        )
    return {
        "deepest": deepest,
        "deepest_off": f"{abs(off):.0f} % {'below' if off < 0 else 'above'}",
        "deepest_verdict": verdict,
    }


def window_numbers(window: Mapping[int, Run]) -> dict[str, float | str]:
    """Whether a larger context, of which the same cells are used, made tokens slower by more than the noise.

    window  the smaller `n_ctx` first; its passes are the control
    """
    small, large = (run.decode_tokens_per_second for run in window.values())
    passes = next(iter(window.values())).points("decode_tokens_per_second")
    spread = 100 * (max(passes) / min(passes) - 1)
    return {
        "window_gap": 100 * (max(small, large) / min(small, large) - 1),
        "window_faster": "smaller" if small > large else "larger",
        "window_spread": spread,
        "window_verdict": "So this run shows no effect of the context"
        if 100 * abs(small / large - 1) <= spread
        else "The gap is larger, but one context was measured after the other, "
        "so a change of the machine can be the cause",
    }
