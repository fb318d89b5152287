"""Attention in PyTorch: a reason where it is missing, and records that stand in."""

import pytest
from fakes import CPU_ONLY

from inferlab.errors import PyTorchUnavailable
from inferlab.measurement import pytorch, torch_attention
from inferlab.measurement.pytorch import missing
from inferlab.measurement.torch_attention import Timing, Timings
from inferlab.records import load, save

FLASH, MATH = Timing("flash", 512, (0.1, 0.3, 0.2), 100), Timing("math", 512, (1.0,), None)
MADE = Timings(CPU_ONLY, "2026-01-31", "2.0", 8, 64, (FLASH, MATH))


def test_a_missing_pytorch_is_a_sentence_and_an_error(monkeypatch):
    """A cell can show why there is nothing; a call that needs PyTorch raises the same words."""
    monkeypatch.setattr(pytorch, "find_spec", lambda name: None)
    assert missing().startswith("PyTorch is not installed here.")
    with pytest.raises(PyTorchUnavailable, match="pip install torch"):
        torch_attention.time_attention()


def test_timings_come_back_from_disk_as_they_were(tmp_path):
    """Every raw sample is kept."""
    assert load(save(MADE, tmp_path / "a.json")) == MADE


def test_timings_are_found_by_way_and_tokens():
    """A median over the passes, and a badge that names the machine and the shape."""
    assert MADE.of("flash")[512].median_seconds == 0.2
    assert MADE.badge == "measured: Example CPU, 2026-01-31, PyTorch 2.0, 8 heads of 64"


@pytest.mark.engine
@pytest.mark.skipif(missing() is not None, reason="PyTorch is not installed")
def test_both_ways_are_timed_where_pytorch_is_installed():
    """Each length is timed with the flash kernel and without."""
    found = torch_attention.time_attention((64,), n_head=2, head_dim=64, repeats=2)
    assert [(one.way, one.n_tokens, len(one.seconds)) for one in found.timings] == [("flash", 64, 2), ("math", 64, 2)]
