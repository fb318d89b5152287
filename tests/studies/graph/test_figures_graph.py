"""The walk of a pass through the graph, and memory while loading: what is drawn, and that the text says it."""

from fakes import made_graph_trace, made_load

from studies.graph import figures as graph_figures
from studies.graph.graph import PARTS
from studies.journey import figures as journey_figures


def by_name(figure):
    return {trace.name: trace for trace in figure.data}


def test_each_part_is_drawn_where_it_is_computed():
    """The cache write of the layer is on the host, as the embedding; a part with both sides has its own colour."""
    figure = graph_figures.graph_walk(made_graph_trace())
    host = by_name(figure)["computed on the host"]
    assert list(zip(host.x, host.y, strict=True)) == [(0, "embedding"), (PARTS.index("cache write"), "layer 0")]
    assert by_name(figure)["on both"].x == ()
    assert len(by_name(figure)["on the device"].x) == len(PARTS)  # all parts but one, and the logits


def test_copies_stand_before_the_part_that_needs_them():
    """Three splits get something; the mark names each tensor with its bytes."""
    copies = by_name(graph_figures.graph_walk(made_graph_trace()))["copies before"]
    places = [PARTS.index(part) - 0.5 for part in ("norm", "cache write", "attention")]
    assert (list(copies.x), set(copies.y)) == (places, {"layer 0"})
    assert copies.customdata[1] == "to the host:<br>Kcur-0 (view): 512 bytes"


def test_the_text_alternative_says_what_the_walk_shows():
    """Splits, bytes, and the side of every row."""
    assert graph_figures.graph_walk(made_graph_trace(), "prefill").layout.meta["alt"] == (
        "8 tokens: 4 splits, 1.52 KiB copied. embedding: the host; layer 0: both; logits: the device."
    )


def test_memory_while_loading_is_drawn_over_the_memory_before():
    """Lines start at 0, and the phases that take long enough are named."""
    figure = journey_figures.load_memory(made_load())
    assert by_name(figure)["pages of the file"].y == (0, 300, 300, 300)
    assert by_name(figure)["locked"].y == (0, 0, 300, 300)
    assert [one.text for one in figure.layout.annotations][-3:] == ["map, buffers", "weights", "cache, compute"]
    assert "peak 402 MiB, 400 MiB left" in figure.layout.meta["alt"]


def test_peaks_are_compared_with_what_is_left():
    """One pair of bars for each load."""
    figure = journey_figures.load_peaks((made_load(),))
    assert [(trace.name, trace.x) for trace in figure.data] == [("peak", (402,)), ("left", (400,))]
    assert "mmap_mlock, host: peak 402, left 400" in figure.layout.meta["alt"]
