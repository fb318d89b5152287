"""The walk of a pass through the graph: what is drawn, and that the text says it."""

from itertools import product

from fakes import made_graph_trace

from studies.graph import figures as graph_figures
from studies.graph.study import PARTS, placements


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
    assert graph_figures.graph_walk(made_graph_trace()).layout.meta["alt"] == (
        "1 token: 4 splits, 1.52 KiB copied. embedding: the host; layer 0: both; logits: the device."
    )


def test_every_placement_has_its_position():
    """The control begins with everything on the device but the cache."""
    traces = dict.fromkeys(product(*placements().values()), made_graph_trace())
    meta = graph_figures.walks(traces).layout.meta
    shown = {one["name"]: one["values"][one["start"]] for one in meta["controls"]}
    assert len(meta["positions"]) == len(traces) == 16
    assert shown == {"n_gpu_layers": str(placements()["n_gpu_layers"][-1]), "offload_kqv": "off", "flash_attn": "on"}
