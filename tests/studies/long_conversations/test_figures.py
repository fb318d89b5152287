"""The figure of the decode rate along a conversation."""

from studies.long_conversations.figures import rate_against_depth


def test_the_claimed_rates_stand_beside_those_of_bytes_over_bandwidth():
    """A line for each; the text has what was claimed, and the last one computed."""
    figure = rate_against_depth({0: 25, 7000: 3}, {0: 25.0, 7000: 20.6}, "computed from a shape")
    assert [(trace.name, trace.y[-1]) for trace in figure.data] == [("as claimed", 3), ("bytes over bandwidth", 20.6)]
    assert "at 7000 tokens 3 claimed; computed 20.6 at 7000 tokens" in figure.layout.meta["alt"]
