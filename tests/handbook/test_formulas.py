"""Formulas are typeset when the book is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from handbook.directives.formulas import Typesetter, equation

ROOT = Path(__file__).parents[2]


@pytest.fixture
def typesetter(tmp_path):
    typesetter = Typesetter(tmp_path / "typeset", ROOT)
    yield typesetter
    typesetter.close()


def test_a_formula_is_a_drawing_to_the_eye_and_mathml_to_the_ear(typesetter):
    """The drawing has the colour of the text and is skipped by a screen reader, which reads the MathML."""
    html = typesetter.html(r"\frac{W}{B}", display=True)
    assert html.startswith("<svg aria-hidden")
    assert "currentColor" in html
    assert (
        '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mfrac><mi>W</mi><mi>B</mi></mfrac>' in html
    )


def test_a_finished_formula_is_kept(typesetter):
    """A second build starts no Node process for a formula that the first one typeset."""
    first = typesetter.html("x", display=False)
    later = Typesetter(typesetter.folder, ROOT)
    assert later.html("x", display=False) == first
    assert later.node is None


def test_an_inline_formula_is_not_a_display(typesetter):
    """The same source is set in another size on a line of its own."""
    source = r"\sum_{i=1}^n i"
    assert typesetter.html(source, display=False) != typesetter.html(source, display=True)


def test_what_is_not_tex_is_refused(typesetter):
    """An error names what MathJax found, and the next formula is typeset all the same."""
    with pytest.raises(ValueError, match="Missing close brace"):
        typesetter.html(r"\frac{W", display=False)
    assert "<svg" in typesetter.html("W", display=False)


@pytest.mark.parametrize(
    ("source", "tex"),
    [
        ("a = b", "a = b"),
        (r"a \\ b", r"\begin{split}a \\ b\end{split}"),
        ("a\n\nb", r"\begin{align}\begin{aligned}a\\b\end{aligned}\end{align}"),
    ],
)
def test_lines_of_a_source_are_lines_of_the_equation(source, tex):
    """A display of several lines or paragraphs is one equation."""
    assert equation(source) == tex
