"""The live lab of chapter 4: the controls reach the engine, errors reach the reader, the button comes back."""

from fakes import CPU_ONLY, ScriptedEngine

from inferlab import figures, widgets
from inferlab.errors import EngineCrashed
from inferlab.model.find import tiny_model


def a_lab(**script):
    return widgets.CacheLab(tiny_model(), ScriptedEngine(machine=CPU_ONLY, **script))


def press(lab):
    lab.button.click()
    lab.thread.join(timeout=30)


def test_the_controls_are_what_is_filled():
    """Context, tokens and type go to the engine as they stand; the outcome has a line and two bars."""
    lab = a_lab()
    lab.n_ctx.value, lab.n_tokens.value, lab.kind.value = 512, 400, "q8_0"
    press(lab)
    asked = lab.engine.opened[-1]
    assert (asked.n_ctx, asked.type_k, asked.type_v) == (512, "q8_0", "q8_0")
    assert {(len(prompt), n_gen) for prompt, n_gen in lab.engine.asked} == {(400, 32)}
    assert lab.status.value.startswith("reserved 3.00 MiB")
    assert [len(bars.x) for bars in lab.figure.data] == [1, 1]


def test_more_tokens_than_cells_are_refused_before_the_engine_is_asked():
    """The reader is told that nothing would make room, and can press again."""
    lab = a_lab()
    lab.n_ctx.value, lab.n_tokens.value = 256, 256
    press(lab)
    assert "do not fit into n_ctx=256 cells" in lab.status.value
    assert lab.engine.asked == []
    assert not lab.button.disabled


def test_each_cache_joins_the_figure():
    """Two presses are two pairs of bars."""
    lab = a_lab()
    press(lab)
    press(lab)
    assert len(lab.runs) == len(lab.figure.data[0].x) == 2


def test_an_error_is_shown_as_text():
    """What the engine said reaches the reader, and no markup with it."""
    lab = a_lab(fails=EngineCrashed("died <b>here</b>"))
    press(lab)
    assert "&lt;b&gt;here" in lab.status.value
    assert not lab.button.disabled


def test_a_page_has_a_figure_and_no_controls(monkeypatch):
    """Where no kernel answers, four caches are measured at build and drawn."""
    monkeypatch.setattr(figures, "on_page", lambda: True)
    figure = widgets.cache_lab(tiny_model(), ScriptedEngine(machine=CPU_ONLY))
    assert len(figure.data[0].x) == 4
