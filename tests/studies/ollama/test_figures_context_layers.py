"""The figure of layers against the context: a line for each model, and the marked contexts."""

from studies.ollama import figures


def test_the_figure_says_where_each_line_begins_and_ends():
    """The text alternative has both ends of a line, and each marked context has its own vertical line."""
    figure = figures.layers_against_context({"one": [(4096, 100.0), (32768, 25.0)]}, {"small": 4096, "large": 65536})
    assert "one 100 % at 4,096 and 25 % at 32,768" in figure.layout.meta["alt"]
    assert [shape.x0 for shape in figure.layout.shapes] == [4096, 65536]
    assert [round(10**note.x) for note in figure.layout.annotations if note.text == "large"] == [2**16]
    assert tuple(figure.data[0].y) == (100.0, 25.0)
    assert set(figure.layout.xaxis.tickvals) <= {4096, 8192, 16384, 32768, 65536}
