"""Decode at depth: the line of a run, what its deepest point says, and two divisions about a sudden fall."""

import pytest
from fakes import CARD, CPU_ONLY, made_run, scripted_pass

from inferlab.measurement.depth import DepthScaling
from inferlab.model.synthetic_model import shape
from inferlab.settings import Settings
from studies.long_conversations import study

MODEL = shape("llama-2-7b", "Q8_0", n_layer=4, n_embd=1024, n_ff=1024, n_head=8, n_head_kv=8, n_vocab=4096)


def a_depth(seconds):
    """A run whose tokens took these milliseconds, by cells."""
    facts = {"model": CARD, "settings": Settings(), "machine": CPU_ONLY, "date": "2026-01-31", "buffers": ()}
    return DepthScaling(**facts, seconds={cells: (ms / 1000,) * 3 for cells, ms in seconds.items()})


def test_a_straight_line_is_taken_apart():
    """One ms for everything and one for each 256 cells: the rate of a cell is its bytes over its time."""
    run = a_depth({256: 2, 512: 3, 1024: 5, 1536: 7})
    found = study.depth_numbers([run, run], MODEL)
    assert (found["ms_none"], found["us_256"]) == ("1.00 ms", "1000 µs")
    assert found["cell_rate"] == pytest.approx(256 * 4 * 8 * 128 * 2 * 2 / 1e-3 / 1e9)
    assert found["depth_factor"] == 3.5
    assert found["deepest"] == 1536
    assert found["deepest_off"].startswith("0 %")


@pytest.mark.parametrize(
    ("last", "before", "said"),
    [(7, 5, "shows no slower memory"), (25, 5, "does not explain such a difference"), (7, 1.5, "too disturbed")],
)
def test_the_deepest_point_is_held_to_the_others(last, before, said):
    """Near the line of the others, far above it, or without a line to be held to."""
    found = study.depth_numbers([a_depth({256: 2, 512: 2, 1024: before, 1536: last})], MODEL)
    assert said in found["deepest_verdict"]


@pytest.mark.parametrize(("large", "said"), [(0.1, "no effect"), (0.2, "The gap is larger")])
def test_a_context_is_compared_with_the_noise_of_its_control(large, said):
    """Passes of the small context differ by a tenth; a large one that is half as fast is outside."""
    small = made_run(passes=(scripted_pass(gaps=(0.1, 0.1)), scripted_pass(gaps=(0.11, 0.11))))
    wide = made_run(passes=(scripted_pass(gaps=(large, large)),) * 2)
    found = study.window_numbers({512: small, 8192: wide})
    assert said in found["window_verdict"]
    assert found["window_spread"] == pytest.approx(10)
    assert found["window_faster"] == ("smaller" if large == 0.2 else "larger")


def test_the_rate_falls_by_bytes_alone_and_the_checkpoint_is_two_divisions():
    """With as many bytes of cells as of weights, the rate is half; three minutes at 20 a second are 3600 cells."""
    weights, cell = study._mistral_bytes()
    found = study.numbers()
    assert study.rate_at(0) == study.START
    assert study.rate_at(weights // cell) == pytest.approx(study.START / 2, rel=1e-3)
    assert study.share_table()[1][2][2] == found["rate_7000"] == study.computed_rates()[7000]
    assert found["in_cache"] == pytest.approx(3600 * cell / 1e9)
    assert found["needed"] == pytest.approx(12 * (1 / 3 - 1 / 20))
    assert found["slowest"] == pytest.approx(1000 / (found["base_ms"] + found["cross_ms"]))
    assert study.checkpoint_table()[1][0][1] == f"{found['in_cache']:.2f} GB"
