"""Figures of options, tuning and resident memory: they draw what the records say, and say it in words."""

import pytest
from fakes import CARD, CPU_ONLY, made_run, scripted_pass

import inferlab as lab
from inferlab import figures
from inferlab.measurement.memory import Residence
from inferlab.measurement.sweep import Point, Sweep
from inferlab.measurement.tune import Candidate, Pair, Tuning
from inferlab.settings import Settings
from inferlab.units import MIB


def a_run(gap):
    return made_run(passes=(scripted_pass(gaps=(gap, gap), share=1.0),))


def swept(**values):
    """A sweep over one option; its tokens follow each other after these gaps in seconds."""
    ((name, gaps),) = values.items()
    return Sweep({name: tuple(gaps)}, tuple(Point({name: value}, a_run(gap)) for value, gap in gaps.items()))


def tuned(**changes):
    rounds = ((Candidate({"n_threads": 2}, (1.0,)), Candidate({}, (2.0,)), Candidate({"n_ubatch": 64}, (), "refused")),)
    before = Settings(n_threads=4)
    found = {"rounds": rounds, "pairs": (Pair(2.0, 1.0),) * 10, "after": before.but(n_threads=2)}
    names, workload = ("n_threads", "n_ubatch"), {"n_prompt": 256, "n_gen": 32}
    facts = {"model": CARD, "machine": CPU_ONLY, "settings": before, "date": "2026-01-31"}
    return Tuning(**facts, names=names, **workload, **(found | changes))


def test_an_option_is_drawn_relative_to_its_first_value():
    """The first value is 1, twice as fast is 2, and the rates themselves stand in the text."""
    figure = figures.option_effect(swept(n_threads={1: 0.2, 2: 0.1}), "n_threads", ("decode",))
    assert list(figure.data[1].x) == ["1", "2"]
    assert list(figure.data[1].y) == pytest.approx([1.0, 2.0])
    assert "decode, tokens/s: 1 5.0, 2 10.0" in figure.layout.meta["alt"]


def test_a_second_option_makes_a_line_for_each_of_its_values():
    """Two lengths of prompt are two lines, each relative to its own first point; a failed point is left out."""
    points = [
        Point({"flash_attn": fa, "n_prompt": n}, a_run(gap))
        for fa, n, gap in (("on", 1, 0.1), ("on", 2, 0.2), ("off", 1, 0.1), ("off", 2, 0.4))
    ]
    points.append(Point({"flash_attn": "auto", "n_prompt": 1}, None, "refused"))
    figure = figures.option_effect(Sweep({}, tuple(points)), "flash_attn", ("decode",))
    lines = {trace.name: list(trace.y) for trace in figure.data if trace.mode == "lines+markers"}
    assert lines["decode, n_prompt=1"] == pytest.approx([1.0, 1.0])
    assert lines["decode, n_prompt=2"] == pytest.approx([1.0, 0.5])


def test_time_over_host_layers_is_a_line_and_its_rate_a_hyperbola():
    """Where every layer adds the same time, the line goes through all divided passes; the two ends do not count."""
    figure = figures.host_layers(swept(n_gpu_layers={0: 0.080, 1: 0.040, 2: 0.030, 3: 0.010}), n_layer=2)
    line = next(trace for trace in figure.data if trace.name == "straight line")
    assert list(line.y) == pytest.approx([30, 40])
    rate = next(trace for trace in figure.data if trace.name == "its rate")
    assert list(rate.y) == pytest.approx([1000 / 30, 25])
    assert "line: 20.0 ms and 10.00 ms for each layer" in figure.layout.meta["alt"]
    ends = [list(trace.y) for trace in figure.data if trace.name == "not divided"]
    assert ends == [pytest.approx([30, 20]), pytest.approx([40, 50])]


def test_lines_of_one_scale_can_be_compared():
    """On one scale every line of a phase is relative to the first value of the first line, else to its own."""
    rates = {("a", 1): 0.1, ("b", 1): 0.2, ("a", 2): 0.2, ("b", 2): 0.2}
    points = tuple(Point({"type_k": k, "n_ctx": n}, a_run(gap)) for (k, n), gap in rates.items())
    sweep = Sweep({"type_k": ("a", "b"), "n_ctx": (1, 2)}, points)
    for one_scale, second in ((False, [1.0, 1.0]), (True, [0.5, 0.5])):
        figure = figures.option_effect(sweep, "type_k", ("decode",), one_scale=one_scale)
        lines = [list(trace.y) for trace in figure.data if trace.mode == "lines+markers"]
        assert lines == [[1.0, 0.5], pytest.approx(second)]


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
    slower = figures.tuning_pairs(tuned(pairs=(Pair(1.0, 2.0),) * 9 + (Pair(1.0, 0.9),)))
    assert [note.text for note in slower.layout.annotations][-1].startswith("Slower: 0.50 times as fast in 10 pairs")


def test_without_pairs_the_verdict_is_written_without_axes():
    """Where nothing better was found, or no time was left, the figure says so instead of drawing an empty frame."""
    for found in (tuned(pairs=(), after=Settings(n_threads=4)), tuned(pairs=())):
        figure = figures.tuning_pairs(found)
        assert [trace.text[0].replace("<br>", " ") for trace in figure.data] == [found.verdict]
        assert (figure.layout.xaxis.visible, figure.layout.yaxis.visible) == (False, False)


def test_resident_pages_are_stacked():
    """The four kinds of pages add up to the file-backed and the private ones."""
    one = Residence(10 * MIB, 5 * MIB, 6 * MIB, 2 * MIB, 4 * MIB, 0)
    figure = figures.resident_memory({"mmap": one}, "badge")
    assert [trace.x[0] for trace in figure.data] == [6, 4, 4, 2]


RECORDED = [
    "n_threads",
    "n_threads_batch",
    "n_batch",
    "n_ubatch",
    "n_ctx",
    "load_mode",
    "offload_kqv",
    "op_offload",
]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_sweeps_can_be_drawn(name):
    """The records of the parameter guide have all their points, and no anchor that moved too far."""
    sweep = lab.load(f"xeon-2c/tune-{name}")
    assert sweep.complete
    assert not sweep.failed
    assert figures.option_effect(sweep, name).layout.meta["alt"]
