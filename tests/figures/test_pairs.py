"""The figure of paired ratios: its intervals, its controls, and what its text alternative says."""

from fakes import made_run, scripted_pass

from inferlab.figures import paired_ratios
from inferlab.measurement.paired import Paired


def pairs(factor):
    """Fifteen pairs whose second side takes 1 / factor of the time, with a little noise."""

    def side(scale):
        return (
            made_run(
                passes=tuple(scripted_pass(gaps=(scale * (1 + 0.01 * (n % 3)),) * 2, prefill=scale) for n in range(15))
            ),
        )

    return Paired(side(1.0), side(1 / factor))


def test_every_comparison_has_a_row_with_both_phases():
    """The marks are the medians, the bars reach both ends of the interval, and a control is hollow."""
    found = {"same": pairs(1.0), "new": pairs(4.0)}
    figure = paired_ratios(found, controls=["same"])
    assert [trace.name for trace in figure.data] == ["prefill", "decode"]
    prefill, decode = figure.data
    assert [round(x, 6) for x in decode.x] == [1.0, 4.0]
    low, high = found["new"].compared("decode").interval
    assert (decode.x[1] + decode.error_x.array[1], decode.x[1] - decode.error_x.arrayminus[1]) == (high, low)
    assert list(prefill.marker.symbol) == ["circle-open", "circle"]
    assert list(figure.layout.yaxis.ticktext) == ["same", "new"]


def test_the_text_alternative_has_every_ratio():
    """With its interval, and the controls by name."""
    text = paired_ratios({"same": pairs(1.0), "new": pairs(4.0)}, ["same"]).layout.meta["alt"]
    assert "same (control): prefill 1 (" in text
    assert "new: prefill 4 (" in text
