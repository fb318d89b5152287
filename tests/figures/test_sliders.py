"""One figure out of many: what a position shows is what the function draws for its value."""

import re

from fakes import made_plan, made_run, scripted_pass

from inferlab import figures
from inferlab.figures.style import blank, line
from inferlab.settings import Settings
from inferlab.widgets import Explorer, explore


def draw(factor, shifted=False):
    """Two lines: one that depends on the values, one that does not."""
    figure = blank(f"measured: factor {factor}", f"A line of factor {factor}, shifted by {int(shifted)}.")
    line(figure, [(0, int(shifted)), (1, factor)], "moving", "#000")
    line(figure, [(0, 0), (1, 1)], "standing", "#888")
    return figure


FIGURE = figures.slider(draw, {"factor": (1, 2), "shifted": (False, True)}, start=2)
POSITIONS = FIGURE.layout.meta["positions"]


def shown(position):
    return [FIGURE.data[i] for i in position["shown"]]


def test_a_position_shows_what_the_function_draws():
    """For every combination, the same traces with the same values."""
    values = [(factor, shifted) for factor in (1, 2) for shifted in (False, True)]
    for position, value in zip(POSITIONS, values, strict=True):
        assert {t.name: list(t.y) for t in shown(position)} == {t.name: list(t.y) for t in draw(*value).data}


def test_what_stays_is_kept_once():
    """Four positions with two lines each make five traces, not eight."""
    assert len(FIGURE.data) == 5


def test_it_starts_where_it_is_told_to():
    """Before anybody moves it, the traces of the start are the visible ones, and the controls stand there."""
    assert [i for i, trace in enumerate(FIGURE.data) if trace.visible] == list(POSITIONS[2]["shown"])
    controls = FIGURE.layout.meta["controls"]
    assert [(one["name"], one["values"][one["start"]]) for one in controls] == [("factor", "2"), ("shifted", "off")]


def test_every_position_has_its_own_badge_and_text():
    """Badge and text alternative move along; the figure takes no room for a slider."""
    notes = [position["annotations"][0] for position in POSITIONS]
    assert [re.search(r"factor \d", note["text"])[0] for note in notes] == ["factor 1"] * 2 + ["factor 2"] * 2
    assert [position["alt"] for position in POSITIONS][-1] == "A line of factor 2, shifted by 1."
    assert FIGURE.layout.height == draw(2).layout.height
    assert not FIGURE.layout.sliders


def test_it_tells_its_range():
    """Whoever cannot see it reads how many positions there are, and what the first view shows."""
    assert FIGURE.layout.meta["alt"].startswith("Controls for factor, shifted with 4 positions, 1, off to 2, on.")
    assert "A line of factor 2" in FIGURE.layout.meta["alt"]


def test_in_a_lab_the_same_function_is_drawn_by_controls(monkeypatch):
    """A control for each name; moving one draws again. On a page the controls of the page come instead."""
    live = explore(draw, {"factor": (1, 2), "shifted": (False, True)}, start=1)
    assert live.values == {"factor": 1, "shifted": True}
    live.controls["factor"].value = 2
    assert list(live.figure.data[0].y) == [1, 2]
    monkeypatch.setenv("INFERLAB_PAGE", "1")
    assert not isinstance(explore(draw, {"factor": (1, 2)}), Explorer)


def test_a_split_shows_bytes_as_logged_and_points_where_they_were_measured():
    """A run's buffers by device, its median at its n_gpu_layers, its number above every pass, a tick above all."""
    run = made_run(settings=Settings(n_ctx=256, n_gpu_layers=2))
    figure = figures.split(2, run, runs=[run])
    bars = {trace.name: dict(zip(trace.y, trace.x, strict=True)) for trace in figure.data if trace.type == "bar"}
    assert (bars["weights"], figure.layout.xaxis.title.text) == ({"host": 2, "gpu0": 10}, "MiB")
    point = next(trace for trace in figure.data if trace.name == "decode, measured")
    assert (list(point.x), list(point.y)) == ([2], [run.decode_tokens_per_second])
    every = next(trace for trace in figure.data if trace.name == "every pass")
    assert dict(zip(every.text, every.y, strict=True))["1"] == max(every.y)
    assert figure.layout.yaxis2.range[1] // figure.layout.yaxis2.dtick * figure.layout.yaxis2.dtick > max(every.y)
    assert run.badge in " ".join(note.text or "" for note in figure.layout.annotations).replace("<br>", " ")


def test_a_split_that_was_only_planned_is_called_computed():
    """Bytes of a plan, and a badge that says that nothing was measured."""
    figure = figures.split(2, made_plan())
    badge = " ".join(note.text or "" for note in figure.layout.annotations).replace("<br>", " ")
    assert "computed (closed form): example" in badge
    assert "nothing measured yet" in badge


def test_a_recorded_run_is_called_recorded_with_the_kind_of_its_weights():
    """Machine, date, build, and whether the weights are real."""
    told = figures.recorded_badge(made_run(passes=(scripted_pass(),)))
    assert told.startswith("recorded: Example CPU, 2026-01-31")
    assert "b1234" in told
    assert told.endswith("the model example")
