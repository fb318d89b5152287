"""The gate: an outcome shows only after a prediction is committed."""

import pytest
from bs4 import BeautifulSoup
from fakes import made_run

from inferlab import figures
from inferlab.widgets import Question, ask

CHOICES = ["half", "the same", "twice"]


def texts(box):
    return " ".join(getattr(child, "value", "") for child in box.children)


def test_the_outcome_waits_for_the_prediction():
    """Before the commit the box says what to do and holds no outcome; after it, both answers stand there."""
    gate = Question("How long?", CHOICES)
    box = gate.reveal("It was 12 ms.")
    assert "Commit your prediction" in texts(box)
    assert "12 ms" not in texts(box)
    gate.choice.value = "twice"
    gate.button.click()
    assert "You predicted: <strong>twice</strong>" in texts(box)
    assert "12 ms" in texts(box)


def test_nothing_can_be_committed_without_a_choice():
    """The button rests until an answer is chosen, and a commit without one changes nothing."""
    gate = Question("How long?", CHOICES)
    assert gate.button.disabled
    gate.commit()
    assert gate.committed is None
    gate.choice.value = "half"
    assert not gate.button.disabled


def test_a_committed_prediction_stays():
    """After the commit neither the choice nor the button can be used again."""
    gate = Question("How long?", CHOICES)
    gate.choice.value = "half"
    gate.commit()
    assert gate.choice.disabled
    assert gate.button.disabled


def test_cells_below_run_before_the_reader_has_chosen():
    """`reveal` works for figures too, and shows at once when the prediction is already there."""
    gate = Question("How long?", CHOICES)
    waiting = gate.reveal(figures.timeline(made_run()))
    gate.choice.value = "half"
    gate.commit()
    assert type(waiting.children[1]).__name__ == "FigureWidget"
    assert type(gate.reveal(figures.timeline(made_run())).children[1]).__name__ == "FigureWidget"


@pytest.fixture
def on_page(monkeypatch):
    monkeypatch.setattr(figures, "on_page", lambda: True)


def html_of(shown):
    return BeautifulSoup(shown._repr_html_(), "html.parser")


@pytest.mark.usefixtures("on_page")
def test_on_a_page_a_question_is_a_group_of_radio_buttons():
    """A legend, a labelled radio button for each choice, and a button; the controls hide where no script runs."""
    soup = html_of(ask("Is 1 < 2?", CHOICES))
    assert soup.select_one("fieldset > legend").get_text() == "Is 1 < 2?"
    assert [label.get_text() for label in soup.select("li > label:has(input[type=radio])")] == CHOICES
    assert len({radio["name"] for radio in soup.select("input")}) == 1
    assert soup.select_one("button").has_attr("disabled")
    assert all(
        control.find_parent(class_="pst-js-only") or "pst-js-only" in control["class"]
        for control in soup.select("input, button")
    )


@pytest.mark.usefixtures("on_page")
def test_on_a_page_the_outcome_is_folded():
    """The figure is inside a closed fold, with its text alternative."""
    shown = ask("Is 1 < 2?", CHOICES).reveal(figures.timeline(made_run()))._repr_html_()
    assert shown.startswith('<details class="outcome"')
    assert 'class="lab-figure"' in shown
    assert "open" not in shown.split(">")[0]


@pytest.mark.usefixtures("on_page")
def test_an_outcome_names_its_question_unless_it_answers_more():
    """So that a commit opens the outcomes of this question and of no other."""
    gate, other = ask("How long?", CHOICES), ask("How much?", CHOICES)
    key = html_of(gate).fieldset["id"]
    assert html_of(gate.reveal("yes")).details["data-question"] == key
    assert html_of(other).fieldset["id"] != key
    assert not html_of(gate.reveal("yes", "All of them")).details.has_attr("data-question")


@pytest.mark.usefixtures("on_page")
def test_an_outcome_keeps_its_lines():
    """Commands for several programs stand on lines of their own, and their signs are escaped."""
    assert "<p>a &lt; b<br>-t 2</p>" in ask("Which?", CHOICES).reveal("a < b\n-t 2")._repr_html_()


@pytest.mark.usefixtures("on_page")
def test_a_fold_is_named_by_its_question_or_its_title():
    """So that a reader knows which of several folds to open; a long question has a name in a few words."""
    assert ": <em>Is 1 &lt; 2?</em></summary>" in ask("Is 1 < 2?", CHOICES).reveal("yes")._repr_html_()
    gate = ask("Is 1 < 2? " + "Think about it. " * 10, CHOICES, about="One and two")
    assert ": <em>One and two</em></summary>" in gate.reveal("yes")._repr_html_()
    assert ": All of them</summary>" in gate.reveal("yes", "All of them")._repr_html_()


@pytest.mark.usefixtures("on_page")
def test_folds_of_one_question_say_how_they_answer():
    """In words or as a figure; `form` tells two figures apart."""
    gate, figure = ask("How long?", CHOICES), figures.timeline(made_run())
    folds = [gate.reveal("12 ms"), gate.reveal(figure), gate.reveal(figure, form="as a figure of the pairs")]
    names = [html_of(fold).summary.get_text() for fold in folds]
    assert [name.split(",")[0] for name in names] == [
        "Outcome in words",
        "Outcome as a figure",
        "Outcome as a figure of the pairs",
    ]


def test_an_outcome_in_a_notebook_has_its_title():
    """Where it answers more than the question, the committed answer is not repeated."""
    gate = Question("How long?", CHOICES)
    gate.choice.value = "half"
    gate.commit()
    assert "How long?" in texts(gate.reveal("yes"))
    assert "predicted" not in texts(gate.reveal("yes", "All of them"))
