"""The figure of what a verification costs."""

from fakes import BatchEngine

from studies.speculation import figures
from studies.speculation.speculative import time_verification


def test_costs_of_verification_stand_beside_single_passes():
    """A line for each kernel with its intervals, and the line that no draft may reach."""
    costs = time_verification(sizes=(1, 4), repeats=10, engine=BatchEngine())
    figure = figures.verification_costs({"here": costs})
    lines = {trace.name: trace for trace in figure.data}
    assert list(lines["here"].y) == [1.0, 1.6]
    assert list(lines["here"].error_y.array) == [0, 0]
    assert list(lines["n single passes"].y) == [1, 4]
    assert "here: 4 tokens 1.60" in figure.layout.meta["alt"]
