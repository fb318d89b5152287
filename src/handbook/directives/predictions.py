"""Sphinx directives for predictions: questions to commit to, and their answers further down the page.

```{predict}
Text for all questions, if there is any.

1. **Title.** A question?
   - a choice
   - another choice
2. **Title.** {asked}`04a-fill-the-kv-cache full`     a lab's question, by notebook and name, with its choices
```
```{compare}
1. The answer to question 1, folded.
```

The items of a compare box keep the numbers of their questions; each question of a page is answered once.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from handbook.directives import load_script
from handbook.directives.tables import has_raw
from inferlab.widgets import page_markup

TITLE = "Commit before you scroll"
HINT = "Choose and press Commit: the answer further down then opens."
COMPARE = "Compare with your predictions"
ASKED = re.compile(r"\{asked\}`(\S+) (\w+)`")
ON_LAB_PAGES = '<fieldset class="question"'
logger = logging.getLogger(__name__)


def setup(app) -> None:
    """Make the directives known, report what is not answered, and load the script where there are questions."""
    for node in (Question, Legend, Choices, Choice, Outcome, OutcomeLine):
        app.add_node(node, html=(_open, _close))
    app.add_directive("predict", Predict)
    app.add_directive("compare", Compare)
    app.connect("doctree-read", _report_unanswered)
    load_script(app, "questions.js", asks)


class Marked(nodes.General, nodes.Element):
    """Base of the nodes here: HTML before and after the children."""

    ends: tuple[str, str]


class Question(Marked):
    """A `Legend` and its `Choices`; `number` is its place in the box."""

    ends = property(lambda self: page_markup.question(key_of(self["number"])))


class Legend(Marked, nodes.TextElement):
    """The question itself."""

    ends = page_markup.LEGEND


class Choices(Marked):
    """The choices of a question."""

    ends = page_markup.CHOICES


class Choice(Marked, nodes.TextElement):
    """One choice of the question `number`."""

    ends = property(lambda self: page_markup.choice(key_of(self["number"])))


class Outcome(Marked):
    """A folded answer to the question `number`: an `OutcomeLine` and what it hides."""

    ends = property(lambda self: page_markup.outcome(key_of(self["number"])))


class OutcomeLine(Marked, nodes.TextElement):
    """The line of an `Outcome` that is always shown."""

    ends = ("<summary>", "</summary>\n")


def _open(translator, node: Marked) -> None:
    translator.body.append(node.ends[0])


def _close(translator, node: Marked) -> None:
    translator.body.append(node.ends[1])


def key_of(number: int) -> str:
    """The id of a page's question."""
    return f"prediction-{number}"


class Numbered(SphinxDirective):
    """Base of the directives: a numbered list, with text before it."""

    has_content = True

    def content_list(self, content: StringList) -> tuple[list[nodes.Node], dict[int, list[nodes.Node]]]:
        """What stands before the numbered list, and the list's items by their numbers."""
        parsed = nodes.Element()
        self.state.nested_parse(content, self.content_offset, parsed)
        *before, items = parsed.children or [nodes.Element()]
        if not isinstance(items, nodes.enumerated_list):
            raise self.error(f"{{{self.name}}} ends with a numbered list.")
        return before, {number: item.children for number, item in enumerate(items, items.get("start", 1))}

    @property
    def titles(self) -> dict[int, str]:
        """Titles of the page's questions so far."""
        return self.env.temp_data.setdefault("predictions", {})


class Predict(Numbered):
    """The box with the questions of a page."""

    def run(self) -> list[nodes.Node]:
        before, items = self.content_list(self.with_lab_questions())
        hint = nodes.paragraph("", HINT, classes=["predict-hint", "pst-js-only"])
        box = nodes.admonition("", nodes.title("", TITLE), *before, hint, classes=["predict"])
        self.set_source_info(box)
        box += [self.question(number, parts, alone=len(items) == 1) for number, parts in items.items()]
        return [box]

    def with_lab_questions(self) -> StringList:
        """The content, where each reference to a lab's question is that question and its choices."""
        lines = StringList()
        for source, offset, line in self.content.xitems():
            named = ASKED.search(line)
            asked, choices = self.lab_question(*named.groups()) if named else ("", ())
            lines.append(line.replace(named[0], asked) if named else line, source, offset)
            for choice in choices:
                lines.append(f"   - {choice}", source, offset)
        return lines

    def lab_question(self, lab: str, name: str) -> tuple[str, tuple[str, ...]]:
        path = Path(self.env.srcdir) / "labs" / f"{lab}.ipynb"
        self.env.note_dependency(str(path))
        return lab_question(path, name)

    def question(self, number: int, parts: list[nodes.Node], alone: bool) -> Question:
        if [type(part) for part in parts] != [nodes.paragraph, nodes.bullet_list] or len(parts[1]) < 2:
            raise self.error(f"Prediction {number} is one paragraph and a list of choices.")
        asked, choices = parts
        self.titles[number] = title_of(asked)
        legend = Legend("", "", *asked.children)
        if not alone:
            legend.insert(0, nodes.Text(f"{number}. "))
        listed = Choices("", *(Choice("", "", *item[0].children, number=number) for item in choices))
        return Question("", legend, listed, number=number)


class Compare(Numbered):
    """The answers to questions further up, one fold for each."""

    def run(self) -> list[nodes.Node]:
        before, items = self.content_list(self.content)
        box = nodes.container("", nodes.rubric("", COMPARE), *before, classes=["compare"])
        box += [self.outcome(number, parts) for number, parts in items.items()]
        return [box]

    def outcome(self, number: int, parts: list[nodes.Node]) -> Outcome:
        if number not in self.titles:
            raise self.error(f"There is no prediction {number} above this answer.")
        outcome = Outcome("", OutcomeLine("", self.line(number)), *parts, number=number)
        self.set_source_info(outcome)
        return outcome

    def line(self, number: int) -> str:
        title = self.titles[number]
        return f"Answer: {title}" if len(self.titles) == 1 else f"Answer {number}: {title}"


def title_of(asked: nodes.paragraph) -> str:
    """The bold words that begin a question, without their full stop, or else the whole question."""
    whole = asked.astext()
    bold = next((strong.astext() for strong in asked.findall(nodes.strong)), "")
    return (bold if bold and whole.startswith(bold) else whole).rstrip(".")


def lab_question(notebook: Path, name: str) -> tuple[str, tuple[str, ...]]:
    """Text and choices of the question that a notebook asks by `name = widgets.ask(text, choices, about=…)`.

    Raises ExtensionError where there is no such question, or where its choices are computed.
    """
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    code = ("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    trees = (ast.parse(source) for source in code if "widgets.ask" in source)
    for statement in (statement for tree in trees for statement in tree.body):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            try:
                call = statement.value
                text, choices = map(ast.literal_eval, call.args if isinstance(call, ast.Call) else ())
            except ValueError as computed:
                raise ExtensionError(f"{notebook.stem}: the question {name!r} is computed; write it out.") from computed
            return text, tuple(choices)
    raise ExtensionError(f"{notebook.stem} has no question {name!r}.")


def _report_unanswered(app, doctree) -> None:
    """Warn of each question without exactly one answer below it."""
    answered = [outcome["number"] for outcome in doctree.findall(Outcome)]
    for question in doctree.findall(Question):
        if (count := answered.count(question["number"])) != 1:
            logger.warning(
                "Prediction %d has %d answers: write it once in a {compare}.",
                question["number"],
                count,
                location=question.parent,
            )


def asks(doctree: nodes.document) -> bool:
    """Whether a page has a question, in a box or as a lab's output."""
    return any(doctree.findall(Question)) or has_raw(doctree, ON_LAB_PAGES)
