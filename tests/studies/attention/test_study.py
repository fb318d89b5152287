"""Flash attention: numbers and tables of the page, how sure a change is, and attention in PyTorch."""

import json
from statistics import median

import pytest
from fakes import CPU_ONLY

from inferlab.records import shipped
from inferlab.units import KIB, MIB
from studies.attention import study
from studies.attention.figures import attention_against_tokens
from studies.attention.study import Timing, Timings

BUFFERS = {
    ("plan", "off"): (KIB, 64 * 16384 * KIB + KIB),
    ("plan", "on"): (KIB, 16384 * KIB + KIB),
    ("log", "off"): (0, 32 * 16384 * KIB),
    ("log", "on"): (0, 0),
}


def test_attention_is_drawn_both_ways():
    """A length for which nothing is known is left out."""
    timings = (Timing("flash", 64, (0.1,), MIB), Timing("math", 64, (0.2,), 8 * MIB), Timing("math", 128, (0.4,), None))
    made = Timings(CPU_ONLY, "2026-01-31", "2.0", 8, 64, timings)
    assert [list(trace.y) for trace in attention_against_tokens(made).data] == [[1.0], [8.0]]
    assert made.badge == "measured: Example CPU, 2026-01-31, PyTorch 2.0, 8 heads of 64"


def test_a_table_of_scores_takes_four_bytes_for_each_head_and_pair():
    """In PyTorch the plain way grows by more than one table, and the flash kernel by less."""
    found = study.numbers()
    assert found["sdpa_scores"] == 4 * 32 * 4096**2 / MIB
    assert found["sdpa_flash_mib"] < found["sdpa_scores"] < found["sdpa_math_mib"]
    assert found["sdpa_flash_seconds"] < found["sdpa_math_seconds"]


def test_a_change_is_decided_by_its_rounds():
    """Nine of ten that agree decide, eight leave it open, in either direction."""
    assert study.rounds_text((1.0,) * 10, (0.5,) * 10) == "faster in 10 of 10"
    assert study.rounds_text((1.0,) * 10, (2.0,) * 9 + (0.5,)) == "slower in 9 of 10"
    assert study.rounds_text((1.0,) * 10, (2.0,) * 8 + (0.5,) * 2) == "slower in 8 of 10: undecided"


def test_passes_that_overlap_decide_nothing():
    """Only when all rates after the change are above, or below, all those before it."""
    assert study.passes_text((3.0, 4.0), (1.0, 2.0)) == "all slower"
    assert study.passes_text((1.0, 2.0), (3.0, 4.0)) == "all faster"
    assert study.passes_text((1.0, 3.0), (2.0, 4.0)) == "overlap: undecided"


def test_the_table_has_every_change_for_both_widths():
    """And its decode is that of the raw samples: medians of tokens behind 4096 cells."""
    heads, rows = study.change_table()
    assert [row[:2] for row in rows] == [(width, change) for width in (128, 64) for change in study.CHANGES]
    assert {len(row) for row in rows} == {len(heads)}
    raw = json.loads(shipped()["epyc-2c/depth-128"].read_text(encoding="utf-8"))["sequence"]
    off, on = (median(one["seconds"]["4096"]) for one in raw[:2])
    assert rows[0][2] == pytest.approx(off / on)
    assert study.numbers()["q8_deep"] == rows[1][2]


def test_each_depth_was_recorded_with_its_choice():
    """In the order of CHOICES."""
    for width in study.WIDTHS:
        for name, found in study.depths(width).items():
            assert study.CHOICES[name] == {key: getattr(found.settings, key) for key in study.CHOICES[name]}


def test_a_buffer_is_told_for_each_token():
    """Planned and logged, and what flash attention saves of the plan."""
    assert study.buffer_table(BUFFERS)[1] == [("planned", 64.0, 1.0), ("logged", 32.0, 0.0)]
    found = study.buffer_numbers(BUFFERS)
    assert found["flash_per_token"] == 63.0
    assert found["flash_ratio"] == pytest.approx(found["flash_off_mib"] / found["flash_on_mib"])


@pytest.mark.engine
def test_the_plan_is_the_log():
    """For 32 heads and a ubatch of 512, without flash attention and with it."""
    found = study.compute_buffers()
    for switch in ("off", "on"):
        assert study.per_token(found, "plan", switch) == pytest.approx(study.per_token(found, "log", switch), rel=0.01)
