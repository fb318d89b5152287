"""The page on a CPU alone recommends what the book's own workers use."""

import re
from pathlib import Path

from inferlab.engine import openmp

PAGE = Path(__file__).parents[2] / "book" / "machine" / "cpu-alone.md"


def test_the_page_names_the_value_that_our_workers_have():
    """Every line that sets GOMP_SPINCOUNT, but the one that says what passive means."""
    values = re.findall(r"GOMP_SPINCOUNT=(\d+)", PAGE.read_text(encoding="utf-8"))
    assert set(values) == {openmp.BOUNDED, "0"}
