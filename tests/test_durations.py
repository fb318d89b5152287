"""The line of seconds at the end of `make test`."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[1] / "tools" / "durations.py"
FILE = '<testsuites><testsuite name="pytest" time="{}" timestamp="2026-01-01T12:{}.423403+00:00"/></testsuites>'


def test_parts_stand_in_their_order_and_what_lies_between_is_the_rest(tmp_path):
    """Two minutes, and from the tenth minute on one more; eight minutes belong to neither."""
    (tmp_path / "unit.xml").write_text(FILE.format("120.000", "00:00"))
    (tmp_path / "labs.xml").write_text(FILE.format("60.400", "10:00"))
    done = subprocess.run([sys.executable, TOOL, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout == "Seconds: unit 120, labs 60, the rest 480\n"
