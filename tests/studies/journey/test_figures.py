"""The clock of a conversation: its lines begin at 0, and its text has the ends."""

from studies.journey import figures


def test_the_text_has_the_ends_of_computed_and_measured_clocks():
    """Repetitions have one entry in the legend, and their range is in the text alternative."""
    clocks = [[(1.0, 0), (2.0, 10)], [(1.0, 0), (3.0, 10)]]
    figure = figures.conversation_clock("here", {"predicted": [(1.0, 0), (2.5, 10)]}, clocks)
    alt = figure.layout.meta["alt"]
    assert "predicted: 10 tokens after 2.5 s" in alt
    assert "measured 2 times: 2 to 3 s" in alt
    assert [trace.x[0] for trace in figure.data] == [0, 0, 0]
    assert [trace.showlegend for trace in figure.data] == [True, False, None]
