"""How long a notebook's first line takes: whole Python processes, start and end included."""

import subprocess
import sys
from statistics import median
from time import perf_counter

import pytest

from inferlab.statistics import median_interval

REPEATS = 15
ALLOWED_SECONDS = 0.3
STATEMENTS = {
    "nothing": "pass",
    "the library": "import inferlab",
    "the library and measure": "from inferlab import measure",
}


@pytest.fixture(scope="module")
def seconds():
    """Seconds of each statement in fresh interpreters, taken in turn; the first round fills the file cache."""
    rounds = [{name: timed(code) for name, code in STATEMENTS.items()} for _ in range(REPEATS + 1)]
    return {name: [one[name] for one in rounds[1:]] for name in STATEMENTS}


def timed(code):
    began = perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return perf_counter() - began


@pytest.mark.parametrize("name", list(STATEMENTS)[1:])
def test_importing_takes_less_than_0_3_seconds(name, seconds):
    """The 95 % interval of the median lies below 0.3 s, Python's own start included."""
    low, high = median_interval(seconds[name])
    print(
        f"\nimport of {name}: {median(seconds[name]):.3f} s [{low:.3f}, {high:.3f}] over {REPEATS} processes,"
        f" of which Python alone {median(seconds['nothing']):.3f} s"
    )
    assert high < ALLOWED_SECONDS
