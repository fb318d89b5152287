"""The axis of a figure of rates."""

from itertools import pairwise

import pytest

from inferlab.instruments.axis import axis_ticks


@pytest.mark.parametrize("highest", [1e-6, 0.3, 1, 7, 48.6, 50, 99.9, 240, 249, 250, 485, 1e9])
def test_an_axis_ends_above_every_bar(highest):
    """With a few numbers at equal distances from 0, and room for a mark on the highest."""
    ticks = axis_ticks(highest)
    assert ticks[0] == 0
    assert 1.03 * highest <= ticks[-1] <= 2.1 * highest
    assert 3 <= len(ticks) <= 7
    assert {round((b - a) / ticks[1], 6) for a, b in pairwise(ticks)} == {1}
