"""A question that the reader answers before its outcome is shown."""

from __future__ import annotations

import html
import zlib
from collections.abc import Sequence

import ipywidgets as ipw

from inferlab import figures
from inferlab.widgets import page_markup
from inferlab.widgets.fit_figure import FitFigure

LONG_CHOICES = """<style>.lab-question .widget-radio-box label {
  display: flex; flex-direction: row-reverse; justify-content: flex-end; align-items: flex-start; gap: 0.4em;
  height: auto; line-height: 1.5; white-space: normal; }
.lab-question .widget-radio-box input { flex: none; margin: 0; height: 1.5em; }</style>"""
"""Lets the text of a choice go on in a second line, which the widget of radio buttons has no room for."""
WAITING = "Commit your prediction above; the outcome appears here."


def ask(question: str, choices: Sequence[str], about: str = "") -> Question | PageQuestion:
    """Ask the reader before measuring: `gate = ask(...)`, and in a later cell `gate.reveal(figure)`.

    `about` names the question above its outcome in a few words; without it the whole question stands there.
    In JupyterLab the reader chooses and commits, and only then the outcome shows.
    On a built page the choices are native radio buttons that a script of the page reads, and the outcome is folded.
    """
    return (PageQuestion if figures.on_page() else Question)(question, choices, about)


class Question:
    """A question with radio buttons and a Commit button; `committed` is the chosen answer, None before."""

    def __init__(self, question: str, choices: Sequence[str], about: str = "") -> None:
        self.question, self.about = question, about or question
        self.committed: str | None = None
        self._waiting: list[tuple[ipw.VBox, figures.Figure | str, str]] = []
        self.choice = ipw.RadioButtons(options=list(choices), value=None, layout={"width": "95%"})
        self.button = ipw.Button(description="Commit", button_style="primary", disabled=True)
        self.choice.observe(lambda change: setattr(self.button, "disabled", change["new"] is None), "value")
        self.button.on_click(lambda _: self.commit())

    def _ipython_display_(self) -> None:
        from IPython.display import display

        asked = ipw.HTML(f"{LONG_CHOICES}<p><strong>{html.escape(self.question)}</strong></p>")
        box = ipw.VBox([asked, self.choice, self.button])
        display(box.add_class("lab-question"))

    def commit(self) -> None:
        """Fix the answer and show the outcomes that wait for it. Without a choice nothing happens."""
        if self.choice.value is None:
            return
        self.committed = self.choice.value
        self.choice.disabled = self.button.disabled = True
        self.button.description = "Committed"
        for box, outcome, title in self._waiting:
            box.children = self._shown(outcome, title)

    def reveal(self, outcome: figures.Figure | str, title: str = "", form: str = "") -> ipw.VBox:
        """The outcome, a figure or a text, once an answer is committed; a note until then.

        `title` names an outcome that does not answer the question itself.
        `form` tells two figures of one question apart where outcomes are folded, as on a page; here nothing is.
        """
        box = ipw.VBox([ipw.HTML(f"<p><em>{WAITING}</em></p>")])
        self._waiting.append((box, outcome, title))
        if self.committed is not None:
            box.children = self._shown(outcome, title)
        return box

    def _shown(self, outcome: figures.Figure | str, title: str) -> tuple[ipw.Widget, ...]:
        about, committed = html.escape(self.about), html.escape(self.committed or "")
        predicted = f"<em>{about}</em> You predicted: <strong>{committed}</strong>"
        said = ipw.HTML(f"<p>{html.escape(title) or predicted}</p>")
        if isinstance(outcome, str):
            return said, ipw.HTML(_paragraph(outcome))
        shown = figures.live(outcome)
        return said, shown, FitFigure(shown)


class Html:
    """HTML that a page shows as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def _repr_html_(self) -> str:
        return self.text


class PageQuestion:
    """The question on a built page: radio buttons for the page's script, the outcome folded."""

    def __init__(self, question: str, choices: Sequence[str], about: str = "") -> None:
        self.question, self.choices, self.about = question, tuple(choices), about or question
        self.key = f"question-{zlib.crc32(question.encode()):08x}"

    def _repr_html_(self) -> str:
        items = "".join(_within(page_markup.choice(self.key), html.escape(choice)) for choice in self.choices)
        asked = f"<strong>{html.escape(self.question)}</strong>"
        listed = _within(page_markup.LEGEND, asked) + _within(page_markup.CHOICES, items)
        return _within(page_markup.question(self.key), listed)

    def reveal(self, outcome: figures.Figure | str, title: str = "", form: str = "") -> Html:
        """The outcome in a folded `<details>` element, named by its form and by its title or else by what it is about.

        An outcome with a title answers more than the question, so a commit does not open it.
        """
        told = isinstance(outcome, str)
        shown = _paragraph(outcome) if told else figures.page_html(outcome)
        form = html.escape(form) or ("in words" if told else "as a figure")
        name = html.escape(title) or f"<em>{html.escape(self.about)}</em>"
        line = f"<summary>Outcome {form}, after you have predicted: {name}</summary>"
        return Html(_within(page_markup.outcome(None if title else self.key), line + shown))


def _within(ends: tuple[str, str], inner: str) -> str:
    return ends[0] + inner + ends[1]


def _paragraph(text: str) -> str:
    """The text as one paragraph of HTML, with its line breaks."""
    return f"<p>{html.escape(text).replace(chr(10), '<br>')}</p>"
