"""Figures of a search for better settings, and of the layers left on the host."""

import pytest
from fakes import CARD, CPU_ONLY, made_run, scripted_pass

from inferlab.measurement.sweep import Point, Sweep
from inferlab.measurement.tune import Candidate, RequestPair, Tuning
from inferlab.settings import Settings
from studies.tuning import figures

GAPS = (0.080, 0.040, 0.030, 0.010)
"""Seconds between tokens with 0, 1, 2 and 3 layers on the device."""


def tuned(**changes):
    rounds = ((Candidate({"n_threads": 2}, (1.0,)), Candidate({}, (2.0,)), Candidate({"n_ubatch": 64}, (), "refused")),)
    before = Settings(n_threads=4)
    made = {"rounds": rounds, "pairs": (RequestPair(2.0, 1.0),) * 10, "after": before.but(n_threads=2)}
    names, workload = ("n_threads", "n_ubatch"), {"n_prompt": 256, "n_gen": 32}
    facts = {"model": CARD, "machine": CPU_ONLY, "settings": before, "date": "2026-01-31"}
    return Tuning(**facts, names=names, **workload, **(made | changes))


def test_time_over_host_layers_is_a_line_and_its_rate_a_hyperbola():
    """Where every layer adds the same time, the line goes through all divided passes; the two ends do not count."""
    runs = {n: made_run(passes=(scripted_pass(gaps=(gap, gap), share=1.0),)) for n, gap in enumerate(GAPS)}
    points = tuple(Point({"n_gpu_layers": n}, run) for n, run in runs.items())
    figure = figures.host_layers(Sweep({"n_gpu_layers": tuple(runs)}, points), n_layer=2)
    line = next(trace for trace in figure.data if trace.name == "straight line")
    assert list(line.y) == pytest.approx([30, 40])
    rate = next(trace for trace in figure.data if trace.name == "its rate")
    assert list(rate.y) == pytest.approx([1000 / 30, 25])
    assert "line: 20.0 ms and 10.00 ms for each layer" in figure.layout.meta["alt"]
    ends = [list(trace.y) for trace in figure.data if trace.name == "not divided"]
    assert ends == [pytest.approx([30, 20]), pytest.approx([40, 50])]


def test_a_search_shows_every_candidate_that_was_measured():
    """What failed is not drawn, and the settings as they were have a colour of their own."""
    figure = figures.tuning_rounds(tuned())
    assert [trace.name for trace in figure.data] == ["n_threads=2", "as it was"]
    assert figure.data[0].line.color != figure.data[1].line.color


def test_pairs_are_ratios_with_the_interval_of_their_median():
    """A winner twice as fast in every pair lies on 2."""
    figure = figures.tuning_pairs(tuned())
    assert list(figure.data[0].y) == [2.0] * 10
    assert figure.layout.meta["alt"].startswith("Faster: with n_threads=2, 2.00 times as fast in 10 pairs")
    assert [note.text for note in figure.layout.annotations][-1].startswith("Faster: 2.00 times as fast in 10 pairs")
    slower = figures.tuning_pairs(tuned(pairs=(RequestPair(1.0, 2.0),) * 9 + (RequestPair(1.0, 0.9),)))
    assert [note.text for note in slower.layout.annotations][-1].startswith("Slower: 0.50 times as fast in 10 pairs")


def test_without_pairs_the_verdict_is_written_without_axes():
    """Where nothing better was found, or no time was left, the figure says so instead of drawing an empty frame."""
    for tuning in (tuned(pairs=(), after=Settings(n_threads=4)), tuned(pairs=())):
        figure = figures.tuning_pairs(tuning)
        assert [trace.text[0].replace("<br>", " ") for trace in figure.data] == [tuning.verdict]
        assert (figure.layout.xaxis.visible, figure.layout.yaxis.visible) == (False, False)
