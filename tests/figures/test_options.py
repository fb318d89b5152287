"""The effect of an option: the figure draws what the records say, and says it in words."""

import pytest
from fakes import made_run, scripted_pass

import inferlab as lab
from inferlab import figures
from inferlab.measurement.sweep import Point, Sweep


def a_run(gap):
    return made_run(passes=(scripted_pass(gaps=(gap, gap), share=1.0),))


def swept(**values):
    """A sweep over one option; its tokens follow each other after these gaps in seconds."""
    ((name, gaps),) = values.items()
    return Sweep({name: tuple(gaps)}, tuple(Point({name: value}, a_run(gap)) for value, gap in gaps.items()))


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


def test_lines_of_one_scale_can_be_compared():
    """On one scale every line of a phase is relative to the first value of the first line, else to its own."""
    rates = {("a", 1): 0.1, ("b", 1): 0.2, ("a", 2): 0.2, ("b", 2): 0.2}
    points = tuple(Point({"type_k": k, "n_ctx": n}, a_run(gap)) for (k, n), gap in rates.items())
    sweep = Sweep({"type_k": ("a", "b"), "n_ctx": (1, 2)}, points)
    for one_scale, second in ((False, [1.0, 1.0]), (True, [0.5, 0.5])):
        figure = figures.option_effect(sweep, "type_k", ("decode",), one_scale=one_scale)
        lines = [list(trace.y) for trace in figure.data if trace.mode == "lines+markers"]
        assert lines == [[1.0, 0.5], pytest.approx(second)]


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
