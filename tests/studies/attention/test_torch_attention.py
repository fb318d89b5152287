"""Recorded timings of attention in PyTorch."""

from fakes import CPU_ONLY

from inferlab.records import load, save
from studies.attention.torch_attention import Timing, Timings

FLASH, MATH = Timing("flash", 512, (0.1, 0.3, 0.2), 100), Timing("math", 512, (1.0,), None)
MADE = Timings(CPU_ONLY, "2026-01-31", "2.0", 8, 64, (FLASH, MATH))


def test_timings_come_back_from_disk_as_they_were(tmp_path):
    """Every raw sample is kept."""
    assert load(save(MADE, tmp_path / "a.json")) == MADE


def test_timings_are_found_by_way_and_tokens():
    """A median over the passes, and a badge that names the machine and the shape."""
    assert MADE.of("flash")[512].median_seconds == 0.2
    assert MADE.badge == "measured: Example CPU, 2026-01-31, PyTorch 2.0, 8 heads of 64"
