"""The figure of bytes read from RAM: a line for each way to place a model, and the marked cards."""

import pytest

from studies.experts import figures


def test_the_figure_says_where_each_line_begins_and_ends():
    """The text alternative has both ends of a line; each card has a vertical line; the axis reaches all points."""
    points = {"layers": [(18.0, 0.0), (2.0, 3.2)], "experts": [(18.0, 0.0), (3.0, 1.1)]}
    figure = figures.ram_reads(points, {"8 GiB": 7.0, "16 GiB": 15.0})
    assert "experts from 0.00 GB with 18.0 GiB on the card to 1.10 GB with 3.0 GiB" in figure.layout.meta["alt"]
    assert [shape.x0 for shape in figure.layout.shapes] == [7.0, 15.0]
    assert [note.x for note in figure.layout.annotations if note.text == "16 GiB"] == [15.0]
    assert [tuple(trace.y) for trace in figure.data] == [(0.0, 3.2), (0.0, 1.1)]
    assert figure.layout.yaxis.range[1] >= 3.2
    assert figure.layout.yaxis.range[0] == pytest.approx(0)
