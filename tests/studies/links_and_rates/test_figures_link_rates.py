"""The ladder: cited and measured rungs are told apart, and the text alternative names every one."""

from fakes import made_link_rates

from inferlab.prediction.link_rates import cited_rungs, measured_rungs
from studies.links_and_rates import figures


def test_every_rung_is_drawn_once_with_the_mark_of_its_origin():
    """Cited rungs are open diamonds and measured ones circles; both stand in the legend and in the text."""
    found = made_link_rates()
    cited, measured = cited_rungs(), measured_rungs(found.rates)
    figure = figures.link_ladder([*cited, *measured], found.badge)
    drawn = {trace.name: (trace.marker.symbol, set(trace.y)) for trace in figure.data}
    assert drawn == {
        "cited": ("diamond-open", {one.name for one in cited}),
        "measured": ("circle", {one.name for one in measured}),
    }
    assert figure.layout.xaxis.type == "log"
    assert all(one.name in figure.layout.meta["alt"] for one in (*cited, *measured))
    assert figure.layout.showlegend
