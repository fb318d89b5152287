"""The figure of waits: points of each group, the line of the wait, and its text."""

import pytest

from inferlab import figures


@pytest.mark.parametrize(("slowest", "late"), [(2.9, 0), (3.1, 1)])
def test_the_figure_counts_what_is_above_the_wait(slowest, late):
    """A start above the margin is counted in the text alternative, and each group has its points."""
    figure = figures.start_waits("here", {"one": [(1.0, 1.2)], "other": [(1.0, slowest), (2.0, 2.0)]}, 3.0)
    assert f"{late} took longer than 3 times" in figure.layout.meta["alt"]
    assert [len(trace.x) for trace in figure.data] == [1, 2, 2, 2]
    assert tuple(figure.data[-1].y) == pytest.approx([3 * x for x in figure.data[-1].x])
