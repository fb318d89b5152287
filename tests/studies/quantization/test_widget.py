"""The live lab of chapter 5: the controls reach the comparison, errors reach the reader, the button comes back."""

import pytest
from fakes import CPU_ONLY, ScriptedEngine, made_fidelity

from inferlab.settings import Settings
from studies.quantization import widget
from studies.quantization.quant_tradeoffs import Choice


def a_choice(type, type_k, type_v):
    found = made_fidelity((1.0, 2.0, 3.0), (0.01, 0.02, 0.03), (True, True, False))
    return Choice(type, Settings(type_k=type_k, type_v=type_v), 2**20, found)


@pytest.fixture
def asked(monkeypatch):
    """What was compared, in place of minutes of computing."""
    calls = []

    def choose(model, *types, imatrix=None, engine):
        calls.append((*types, imatrix.stem) if imatrix else types)
        return a_choice(*types)

    monkeypatch.setattr("studies.quantization.widget.choose", choose)
    return calls


@pytest.fixture
def lab():
    return widget.QuantizationLab(engine=ScriptedEngine(machine=CPU_ONLY))


def press(lab):
    lab.button.click()
    lab.thread.join(timeout=30)


def test_the_controls_are_what_is_compared(asked, lab):
    """The types of weights, keys and values go to the comparison as they stand; each one joins the figure."""
    lab.type.value, lab.type_k.value, lab.type_v.value = "Q6_K", "q8_0", "q4_0"
    press(lab)
    assert asked == [("Q6_K", "q8_0", "q4_0")]
    assert lab.status.value.startswith("1: Q6_K, cache q8_0/q4_0: 1.00 MiB, KLD 0.02")
    assert (lab.figure.data[0].x, lab.button.disabled) == ((1,), False)
    press(lab)
    assert (lab.figure.data[0].text, len(lab.choices)) == (("1", "2"), 2)


def test_the_embedded_model_offers_its_matrices(asked, lab, tmp_path):
    """The chosen one goes to the comparison; another model has none here."""
    lab.type.value, lab.matrix.value = "IQ2_XXS", "code"
    press(lab)
    assert asked == [("IQ2_XXS", "f16", "f16", "code")]
    (tmp_path / "other.gguf").touch()
    assert widget.QuantizationLab(tmp_path / "other.gguf", ScriptedEngine()).matrix.options == ("none",)


def test_a_page_shows_choices_without_a_widget(asked, monkeypatch):
    """Where no kernel answers, four choices measured at build stand in the same figure, with its badge."""
    monkeypatch.setenv("INFERLAB_PAGE", "1")
    figure = widget.quantization_lab(engine=ScriptedEngine(machine=CPU_ONLY))
    assert len(figure.data[0].x) == len(asked) == 4
    assert "measured" in figure.layout.annotations[0].text
