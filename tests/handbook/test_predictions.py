"""Predictions of a chapter: a question, its choices and one answer, from the page or from a lab."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sphinx_page
from sphinx.errors import ExtensionError

from handbook.directives.predictions import lab_question

PAGE = """# A page

```{predict}
For all questions.

1. **Size.** How *large*?
   - small
   - large
2. **Pace.** {asked}`lab pace`
```

```{compare}
1. It is {math}`3`.
2. Slower.
```
"""
LAB = 'pace = widgets.ask(\n    "How fast is "\n    "it?",\n    ("faster", "slower"),\n)\npace'


def notebook(folder: Path, source: str) -> Path:
    path = folder / "lab.ipynb"
    cells = [{"cell_type": "markdown", "source": ["# widgets.ask"]}, {"cell_type": "code", "source": source}]
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    return path


@pytest.fixture
def built(tmp_path):
    """A function: the page, and the build's warnings."""
    (tmp_path / "labs").mkdir()
    notebook(tmp_path / "labs", LAB)
    return lambda page: sphinx_page.built(tmp_path, page, "handbook.directives.predictions", exclude_patterns=["labs"])


def test_a_box_holds_its_questions_and_choices(built):
    """A group of radio buttons for each, numbered, also where the question stands in a lab."""
    soup, warnings = built(PAGE)
    assert warnings == ""
    box = soup.select_one(".admonition.predict")
    assert "For all questions." in box.get_text()
    assert [legend.get_text() for legend in box.select("legend")] == ["1. Size. How large?", "2. Pace. How fast is it?"]
    assert [label.get_text() for label in box.select("label")] == ["small", "large", "faster", "slower"]
    assert len({radio["name"] for radio in box.select("input[type=radio]")}) == 2


def test_each_answer_is_a_fold_with_the_title_of_its_question(built):
    """Closed, and joined to its question by its id."""
    soup, _ = built(PAGE)
    folds = soup.select(".compare details")
    assert [fold.summary.get_text() for fold in folds] == ["Answer 1: Size", "Answer 2: Pace"]
    assert [fold["data-question"] for fold in folds] == [question["id"] for question in soup.select("fieldset")]
    assert not any(fold.has_attr("open") for fold in folds)
    assert folds[0].select_one("p .math")


def test_answers_may_stand_in_several_places(built):
    """A list that begins with 2 answers question 2."""
    soup, warnings = built(PAGE.replace("\n2. Slower", "\n```\n\nA measurement.\n\n```{compare}\n2. Slower"))
    assert warnings == ""
    assert [fold.summary.get_text() for fold in soup.select("details")] == ["Answer 1: Size", "Answer 2: Pace"]


def test_a_single_question_has_no_number(built):
    """Where there is nothing to count."""
    soup, _ = built(
        "# A page\n\n```{predict}\n1. How large?\n   - small\n   - large\n```\n\n```{compare}\n1. Small.\n```\n"
    )
    assert soup.legend.get_text() == "How large?"
    assert soup.summary.get_text() == "Answer: How large?"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("\n2. Slower.", "", "Prediction 2 has 0 answers"),
        ("2. Slower.", "2. Slower.\n3. Faster.", "There is no prediction 3 above"),
        ("   - large\n", "", "Prediction 1 is one paragraph and a list of choices"),
        ("1. It is {math}`3`.\n2. Slower.", "Slower.", "{compare} ends with a numbered list"),
    ],
)
def test_what_does_not_fit_together_fails_the_strict_build(built, old, new, said):
    """A question without an answer, an answer without a question, and a question without a choice are reported."""
    _, warnings = built(PAGE.replace(old, new))
    assert said in warnings


def test_a_question_of_a_lab_must_exist_and_be_written_out(tmp_path):
    """What a cell computes cannot be read without running it."""
    assert lab_question(notebook(tmp_path, LAB), "pace") == ("How fast is it?", ("faster", "slower"))
    with pytest.raises(ExtensionError, match="no question 'size'"):
        lab_question(notebook(tmp_path, LAB), "size")
    with pytest.raises(ExtensionError, match="'pace' is computed"):
        lab_question(notebook(tmp_path, "pace = widgets.ask('?', sorted(readings))"), "pace")
