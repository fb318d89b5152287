"""The figure of decode against how long threads spin."""

from fakes import CARD, CPU_ONLY

from inferlab.settings import Settings
from studies.operating_system.figures import decode_against_spin
from studies.operating_system.waiting import Case, Waiting


def test_a_line_for_each_situation_reaches_zero_where_nothing_came():
    """Its points are the medians, and the text alternative says them."""
    cases = (
        Case("nothing beside it", 0, (9.0,) * 3, (4.0, 5.0, 6.0)),
        Case("nothing beside it", None, (9.0,) * 3, (10.0,) * 3),
        Case("one busy program", 0, (9.0,) * 3, (3.0,) * 3),
        Case("one busy program", None, (None, None, 1.0), (None, None, 1.0)),
    )
    facts = {"model": CARD, "settings": Settings(), "machine": CPU_ONLY}
    figure = decode_against_spin(Waiting(**facts, n_prompt=8, n_gen=4, limit_seconds=6.0, cases=cases))
    lines = {trace.name: list(trace.y) for trace in figure.data if "lines" in trace.mode}
    assert lines == {"nothing beside it": [5.0, 10.0], "one busy program": [3.0, 0.0]}
    assert "one busy program: 0 3, default 0" in figure.layout.meta["alt"]
