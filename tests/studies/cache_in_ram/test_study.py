"""A cache in RAM: what crosses, what the link adds to a cell, and how decode falls."""

import pytest
from fakes import CARD, CPU_ONLY
from marks import needs_rpc

from inferlab.machine import Link
from inferlab.measurement.depth import DepthScaling
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape, shape
from inferlab.settings import Settings
from studies.cache_in_ram import study
from studies.cache_in_ram.study import FLASH, ON_DEVICE, PLAIN

DIMENSIONS = {"n_layer": 4, "n_embd": 1024, "n_ff": 1024, "n_head": 8, "n_head_kv": 8, "n_vocab": 4096}
MODEL = shape("llama-2-7b", "Q8_0", **DIMENSIONS)
LINK = Link("127.0.0.1:1", 1.0, None, 1.0, 1e-4)
FACTS = {"model": CARD, "settings": Settings(), "machine": CPU_ONLY, "links": (LINK,)}
CELL = 4 * 8 * 128 * 2 * 2
PLACED = {"f16, on": ({"device": 2**24}, 2), "f16, off": ({"host": 2**24}, 9), "q8_0, on": ({"device": 2**20}, None)}
CROSSING = {ON_DEVICE: 2**10, FLASH: 512 * CELL, PLAIN: 2**11}


def a_far(slowed_flash=(6, 8, 10), flash=(2, 3, 4)):
    """Milliseconds of a token at 256, 512 and 768 cells, in each way over each link."""
    seconds = {f"{way}, {link}": (2, 2.5, 3) for way in study.WAYS for link in study.LINKS}
    seconds |= {f"{FLASH}, free link": flash, f"{FLASH}, slowed link": slowed_flash}
    return {
        name: [DepthScaling(**FACTS, seconds={256 * k: (ms / 1000,) for k, ms in enumerate(several, 1)})]
        for name, several in seconds.items()
    }


def test_a_steeper_line_over_a_slow_link_is_what_crossed():
    """2 ms for 256 cells beside 1 ms, with no noise: the slope is the rate of the cells; below 0 it shows nothing."""
    found = study.numbers(a_far(), CROSSING, PLACED, MODEL)
    assert (found["flash_us"], found["flash_slow_us"], found["plain_change_us"]) == pytest.approx((1000, 2000, 0))
    assert f"stands for {256 * CELL / 2e-3 / 1e9:.2f} GB/s" in found["slope_verdict"]
    assert "noise: the work" not in found["slope_verdict"]
    nothing = study.numbers(a_far(slowed_flash=(4, 3, 2)), CROSSING, PLACED, MODEL)["slope_verdict"]
    assert nothing.startswith("A slope below zero is noise")
    assert "cannot show that cells crossed" in nothing


@pytest.mark.parametrize(
    ("slowed", "said"),
    [
        ((6, 8, 10), "flash attention off was faster"),
        ((1, 1.5, 2), "flash attention on was faster"),
        ((2, 2.5, 3), "differed by less than 5 %"),
    ],
)
def test_the_faster_way_over_the_slow_link_is_named(slowed, said):
    """At 512 cells, where the other way took 2.5 ms."""
    found = study.numbers(a_far(slowed_flash=slowed), CROSSING, PLACED, MODEL)
    assert said in found["slow_answer"]
    assert found["flash_slow_factor"] == pytest.approx(slowed[1] / 2.5)


@pytest.mark.parametrize(("flash", "said"), [((2, 3, 4), "without a sudden fall"), ((2, 3, 9), "cannot answer")])
def test_even_steps_are_no_fall(flash, said):
    """Steps of equal size, and one that is six times the other."""
    found = study.numbers(a_far(flash=flash), CROSSING, PLACED, MODEL)
    assert said in found["drop_verdict"]
    assert (found["drop_first"], found["drop_cells"]) == (500, 512)
    assert found["cells_share"] == pytest.approx(100 * 512 * CELL / MODEL.tensor_bytes)


def test_what_crossed_is_told_in_cells():
    """The bytes of all cells once are a factor of one; where no part is logged, the table says so."""
    found = study.numbers(a_far(), CROSSING, PLACED, MODEL)
    assert (found["times_crossed"], found["near_kib"], found["parts_far"]) == (1, 1, 9)
    assert study.crossing_table(CROSSING, MODEL)[1][1][2] == "1.00"
    assert [row[1:] for row in study.placement_table(PLACED)[1]] == [("16 / 0", 2), ("0 / 16", 9), ("1 / 0", "unknown")]
    assert [row[0] for row in study.times_table(a_far())[1]] == [*study.WAYS]


@pytest.mark.engine
@needs_rpc
def test_a_cache_lies_where_it_was_asked_for():
    """Every type on either side has the same bytes, and a cache in RAM divides a pass into more parts."""
    path = make_shape("llama-2-7b", "Q8_0", **DIMENSIONS)
    placed = study.placements(path)
    assert read_gguf(path).tensor_bytes == MODEL.tensor_bytes
    for kind in study.KINDS:
        near, far = (placed[f"{kind}, {there}"][0] for there in ("on", "off"))
        assert near["device"] == far["host"]
    assert placed["f16, on"][1] < placed["f16, off"][1]
