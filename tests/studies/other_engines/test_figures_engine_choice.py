"""The figure of weights outside the card: its lines, and what it says of itself."""

import pytest

from inferlab.prediction.link_rates import Rung
from inferlab.units import GB
from studies.other_engines import figures


def test_each_way_is_a_line_from_nothing_to_its_least_time():
    """Eight gigabytes at 16 GB/s take half a second; the text alternative and the badge say what was computed."""
    drawn = figures.outside_the_card({"bus": Rung("bus", "bus", 16 * GB), "RAM": Rung("RAM", "host RAM", 64 * GB)})
    assert [trace.name for trace in drawn.data] == ["bus", "RAM"]
    assert list(drawn.data[0].y) == [0, pytest.approx(500)]
    assert "bus 500 ms; RAM 125 ms" in drawn.layout.meta["alt"]
    assert any("computed" in note.text and "nothing" in note.text for note in drawn.layout.annotations)
