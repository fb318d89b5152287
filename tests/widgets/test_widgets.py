"""The live lab: sliders reach the engine, errors reach the reader, the button comes back."""

import pytest
from fakes import CPU_ONLY, WITH_GPU, ScriptedEngine

from inferlab import figures
from inferlab.engine import measurement_queue
from inferlab.errors import EngineCrashed
from inferlab.model.find import tiny_model
from inferlab.widgets import PipelineLab, pipeline_lab
from inferlab.widgets.fit_figure import FitFigure


def a_lab(machine=CPU_ONLY, **script):
    return PipelineLab(tiny_model(), ScriptedEngine(machine=machine, **script))


def press(lab):
    """Press the button and wait for the measurement."""
    lab.button.click()
    lab.thread.join(timeout=30)


def test_the_sliders_are_what_is_measured():
    """Prompt length and generated tokens go to the engine as they stand."""
    lab = a_lab()
    lab.n_prompt.value, lab.n_gen.value = 48, 16
    press(lab)
    assert {(len(prompt), n_gen) for prompt, n_gen in lab.engine.asked} == {(48, 16)}
    assert (lab.runs[0].n_prompt, lab.runs[0].n_gen, len(lab.runs[0].passes)) == (48, 16, 3)


def test_layers_can_be_moved_where_there_is_a_gpu():
    """The slider goes from none to all layers and the output layer, and reaches the settings."""
    lab = a_lab(WITH_GPU)
    assert (lab.n_gpu_layers.min, lab.n_gpu_layers.max, lab.n_gpu_layers.value) == (0, 7, 7)
    lab.n_gpu_layers.value = 3
    press(lab)
    assert lab.runs[0].settings.n_gpu_layers == 3


def test_without_a_gpu_there_is_no_such_slider():
    """A control that could do nothing is not shown."""
    lab = a_lab()
    assert lab.n_gpu_layers is None
    assert lab.n_prompt in lab.box.children
    assert None not in lab.box.children


def test_each_measurement_joins_the_figure():
    """Two presses make two runs, two bars and a status line with the newest numbers."""
    lab = a_lab()
    press(lab)
    press(lab)
    assert len(lab.runs) == len(lab.figure.data[0].x) == 2
    assert lab.status.value.startswith("TTFT ")


def test_a_wait_in_the_queue_is_shown_in_the_status_line(tmp_path, monkeypatch):
    """The line says how many are before this one, and then again that it measures."""
    monkeypatch.setenv(measurement_queue.VARIABLE, str(tmp_path))
    other, lab, lines = measurement_queue.Place(tmp_path), a_lab(), []

    def changed(change):
        lines.append(change["new"])
        if change["new"].startswith("waiting"):
            other.leave()

    lab.status.observe(changed, "value")
    press(lab)
    assert lines[:3] == [lab.busy_text, "waiting for 1 measurement before this one", lab.busy_text]
    assert lines[3].startswith("TTFT ")


def test_an_error_is_shown_and_the_button_comes_back():
    """The reader sees what happened, as text, and can press again."""
    lab = a_lab(fails=EngineCrashed("died <b>here</b>"))
    press(lab)
    assert "EngineCrashed: died &lt;b&gt;here&lt;/b&gt;" in lab.status.value
    assert not lab.button.disabled
    press(lab)
    assert len(lab.runs) == 1


def test_the_button_rests_while_it_measures():
    """A second press during a measurement is impossible."""
    lab = a_lab()
    lab._run = lambda work: None
    lab.button.click()
    assert lab.button.disabled
    assert "Measuring" in lab.status.value


def test_on_a_page_the_figure_is_measured_at_build(monkeypatch):
    """Where no kernel answers, three requests are measured once and shown as a plain figure."""
    monkeypatch.setattr(figures, "on_page", lambda: True)
    figure = pipeline_lab(tiny_model(), ScriptedEngine())
    assert type(figure).__name__ == "Figure"
    assert len(figure.data[0].x) == 3


def test_in_jupyterlab_the_lab_shows_itself(monkeypatch):
    """A cell that ends in the lab displays its controls, and the figure once something is measured."""
    lab = pipeline_lab(tiny_model(), ScriptedEngine())
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    lab._ipython_display_()
    assert [*lab.controls, lab.button, lab.status, lab.place] == list(shown[0].children)
    assert lab.place.children == ()
    for _ in range(2):
        press(lab)
        assert [one for one in lab.place.children if not isinstance(one, FitFigure)] == [lab.figure]


def test_a_live_figure_is_as_wide_as_its_place():
    """The browser tells the width, and a figure that is drawn again keeps it."""
    lab = a_lab()
    press(lab)
    place = next(one for one in lab.place.children if isinstance(one, FitFigure))
    place.width = 368
    assert lab.figure.layout.width == 368
    press(lab)
    assert lab.figure.layout.width == 368


@pytest.mark.parametrize("name", ["n_prompt", "n_gen"])
def test_a_slider_is_read_when_it_is_let_go(name):
    """Dragging measures nothing."""
    assert getattr(a_lab(), name).continuous_update is False
