"""Figures of speed: roofs where both rates meet, points under them."""

import pytest

from inferlab.machine import Ceiling
from studies.links_and_rates.figures import roofline

HOST = Ceiling("host", 2, 20e9, {"F16": 200e9, "Q4_K": 600e9})


def test_a_roof_bends_at_its_ridge():
    """Left of the ridge the roof is bandwidth times intensity, right of it the matrix rate."""
    roof = roofline(HOST, types=["F16"]).data[0]
    assert roof.y[0] == pytest.approx(roof.x[0] * 20)
    assert (roof.x[1], roof.y[1]) == (10, 200)
    assert roof.y[2] == 200


def test_points_stand_under_the_roofs_with_their_names():
    """Each measurement is one point in GFLOP per second, and both axes are logarithmic."""
    figure = roofline(HOST, [("1 token", 2, 30e9), ("512 tokens", 900, 150e9)], badge="badge")
    assert list(figure.data[-1].y) == [30, 150]
    assert list(figure.data[-1].text) == ["1 token", "512 tokens"]
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert [roof.name for roof in figure.data[:-1]] == ["F16", "Q4_K"]
    assert "ridges at 10 FLOP per byte for F16" in figure.layout.meta["alt"]
    assert figure.data[0].x[2] > 900
