"""Question gates: nothing above one gives its answer away, and every one opens later."""

from __future__ import annotations

import ast
import json
from collections import Counter
from pathlib import Path

import pytest
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[2]
LONGEST_NAME = 60
"""Characters of the words that say above an outcome which question it answers."""
MEASURES = (
    "measure",
    "measure_each",
    "sweep",
    "tune",
    "cold_start",
    "fidelity",
    "type_losses",
    "cache_losses",
    "type_rates",
    "batched_decode",
    "schedule",
    "speculate",
    "reuse_prefix",
    "decode_at_depths",
    "time_verification",
    "layers_or_experts",
    "trace_graph",
    "link_bytes_per_token",
    "link_bytes_of_prompt",
)


def gated_labs() -> list[Path]:
    """The notebooks that ask for predictions."""
    return [path for path in sorted((ROOT / "labs").glob("*.ipynb")) if gates_of(cells_of(path))]


def cells_of(path: Path, but: str | None = None) -> list[ast.Module]:
    """The code of a notebook, cell by cell, without the cells that have the tag `but`."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    kept = (c for c in cells if c["cell_type"] == "code" and but not in c["metadata"].get("tags", ()))
    return [ast.parse("".join(cell["source"])) for cell in kept]


def called(tree: ast.AST) -> list[str]:
    """What is called anywhere in a cell, as written: `lab.measure`, `pace.reveal`."""
    return [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]


def shown(cell: ast.Module) -> ast.expr | None:
    """The expression whose value a cell displays."""
    return cell.body[-1].value if cell.body and isinstance(cell.body[-1], ast.Expr) else None


def gates_of(cells: list[ast.Module]) -> dict[str, int]:
    """Name of each gate and the index of the cell that asks."""
    return {
        statement.targets[0].id: i
        for i, cell in enumerate(cells)
        for statement in cell.body
        if isinstance(statement, ast.Assign) and "widgets.ask" in called(statement)
    }


def reveals_of(cells: list[ast.Module]) -> dict[str, int]:
    """Name of each gate that opens and the index of the first cell that opens it."""
    opened: dict[str, int] = {}
    for i, cell in enumerate(cells):
        for name in called(cell):
            if name.endswith(".reveal"):
                opened.setdefault(name.removesuffix(".reveal"), i)
    return opened


def leaks(cells: list[ast.Module]) -> list[str]:
    """Cells that measure or draw before all questions are asked, or show something else than an outcome after."""
    asked, opened = max(gates_of(cells).values()), max(reveals_of(cells).values(), default=0)
    early = [ast.unparse(cell) for cell in cells[: asked + 1] if gives_away(cell)]
    bare = [shown(cell) for cell in cells[asked + 1 : opened + 1]]
    return early + [ast.unparse(e) for e in bare if e and not ast.unparse(e).split("(")[0].endswith(".reveal")]


def gives_away(cell: ast.Module) -> bool:
    names = called(cell)
    return any(name.partition(".")[0].endswith("figures") or name.rpartition(".")[2] in MEASURES for name in names)


@pytest.mark.parametrize("path", gated_labs(), ids=lambda path: path.stem)
def test_a_lab_measures_only_after_its_questions_and_shows_only_outcomes(path):
    """Whoever scrolls to a question has not seen its answer, also where the outputs are stored.

    Cells tagged `evidence` are left out: what a diagnosis is made from must be seen before it.
    """
    assert leaks(cells_of(path, but="evidence")) == []


@pytest.mark.parametrize("path", gated_labs(), ids=lambda path: path.stem)
def test_every_prediction_has_an_outcome_after_it(path):
    """No reader commits to an answer for nothing, and no outcome precedes its question."""
    asked, opened = gates_of(cells_of(path)), reveals_of(cells_of(path))
    assert asked.keys() == opened.keys()
    assert [name for name in asked if opened[name] <= asked[name]] == []


@pytest.mark.parametrize(
    "leaking",
    [
        ["run = lab.measure()", "a = widgets.ask('?', 'yn')", "a.reveal('y')"],
        ["a = widgets.ask('?', 'yn')", "run = lab.measure()\nrun.ttft_seconds", "a.reveal('y')"],
        ["a = widgets.ask('?', 'yn')", "figures.timeline(run)", "a.reveal('y')"],
        ["a = widgets.ask('?', 'yn')", "serving_figures.http_rates(run)", "a.reveal('y')"],
    ],
)
def test_a_leak_is_noticed(leaking):
    """The check above can fail."""
    assert len(leaks([ast.parse(cell) for cell in leaking])) == 1


def unnamed(cells: list[ast.Module]) -> list[str]:
    """Questions that would stand above their outcome as more than a few words, or end in dots as if they were cut."""
    calls = [n for cell in cells for n in ast.walk(cell) if isinstance(n, ast.Call) and called(n)[0] == "widgets.ask"]
    told = [{key.arg: key.value for key in call.keywords}.get("about", call.args[0]) for call in calls]
    names = [ast.literal_eval(name) for name in told]
    return [name for name in names if len(name) > LONGEST_NAME or name.endswith(("...", "…"))]


@pytest.mark.parametrize("path", gated_labs(), ids=lambda path: path.stem)
def test_an_outcome_has_a_short_and_whole_name(path):
    """The line of a fold on a phone is read at one glance, and nothing of it is cut."""
    assert unnamed(cells_of(path)) == []


def test_a_long_name_is_noticed():
    """The check above can fail: on a long question and on one that its choices complete, where they have no name."""
    long = "Which part " * 9
    asked = [f"{long!r}, 'yn', about='Parts'", f"{long!r}, 'yn'", "'The ...', 'yn'"]
    assert unnamed([ast.parse(f"a = widgets.ask({words})") for words in asked]) == [long, "The ..."]


def page_leaks(soup: BeautifulSoup) -> list[str]:
    """Outputs between a page's first question and its last outcome that are neither, or that stand unfolded."""
    outputs = [output for output in soup.select(".cell_output") if not output.find_parent(class_="tag_evidence")]
    kinds = ["question" if o.select("fieldset.question") else "outcome" if is_folded(o) else "" for o in outputs]
    if "outcome" not in kinds:
        return ["no folded outcome"]
    last = len(kinds) - 1 - kinds[::-1].index("outcome")
    span = range(kinds.index("question"), last + 1)
    return [outputs[i].get_text(" ", strip=True)[:80] for i in span if not kinds[i]]


def is_folded(output) -> bool:
    """All that an output shows lies in closed folds, except a caption."""
    folds = output.select("details.outcome")
    captions = output.select("figcaption p")
    shown = [tag for tag in output.select(".lab-figure, p, pre") if tag not in captions]
    loose = [tag for tag in shown if not tag.find_parent("details", class_="outcome")]
    return bool(folds) and not loose and not any(fold.has_attr("open") for fold in folds)


def test_outcomes_on_a_lab_page_are_folded(soups):
    """On the built page, too, an outcome waits to be opened."""
    asking = {name: soup for name, soup in soups.items() if soup.select(".cell_output .question")}
    assert asking
    assert {name: faults for name, soup in asking.items() if (faults := page_leaks(soup))} == {}


def test_an_unfolded_outcome_is_noticed():
    """The check above can fail."""
    page = '<div class="cell_output"><fieldset class="question"></fieldset></div><div class="cell_output">{}</div>'
    fold = '<details class="outcome"{}><p>42</p></details>'
    assert page_leaks(BeautifulSoup(page.format(fold.format("")), "html.parser")) == []
    assert page_leaks(BeautifulSoup(page.format(fold.format(" open")), "html.parser")) != []
    assert page_leaks(BeautifulSoup(page.format("<p>42</p>"), "html.parser")) != []


def test_every_fold_of_a_page_has_a_name_of_its_own_and_every_question_its_answer(soups):
    """A reader can tell any two folds apart, and a commit always opens something."""
    asking = {name: soup for name, soup in soups.items() if soup.select("fieldset.question")}
    assert {name: faults for name, soup in asking.items() if (faults := unclear_folds(soup))} == {}


def unclear_folds(soup: BeautifulSoup) -> list[str]:
    """Names that several folds of a page have, and questions that no fold answers."""
    names = Counter(fold.summary.get_text(" ", strip=True) for fold in soup.select("details.outcome"))
    answered = {fold.get("data-question") for fold in soup.select("details.outcome")}
    unanswered = [
        question.legend.get_text() for question in soup.select("fieldset.question") if question["id"] not in answered
    ]
    return [name for name, count in names.items() if count > 1] + unanswered


def test_an_unclear_fold_is_noticed():
    """The check above can fail: by a name that stands twice, and by an answer that belongs to no question."""
    asked = '<fieldset class="question" id="q"><legend>How long?</legend></fieldset>'
    fold = '<details class="outcome" data-question="q"><summary>In words</summary>42</details>'
    assert unclear_folds(BeautifulSoup(asked + fold, "html.parser")) == []
    assert unclear_folds(BeautifulSoup(asked + fold + fold, "html.parser")) == ["In words"]
    loose = fold.replace(' data-question="q"', "")
    assert unclear_folds(BeautifulSoup(asked + loose, "html.parser")) == ["How long?"]


def test_a_chapter_shows_nothing_before_its_questions_and_folds_its_answers(soups):
    """Above the box that asks there is no result; answers and solutions below it are closed."""
    chapters = {name: soup for name, soup in soups.items() if soup.select(".admonition.predict")}
    named = ("foundations/role-and-metrics", "foundations/anatomy", "workflow/pipeline")
    assert {f"book/{name}.html" for name in named} <= chapters.keys()
    assert {name: faults for name, soup in chapters.items() if (faults := chapter_leaks(soup))} == {}


def chapter_leaks(soup: BeautifulSoup) -> list[str]:
    """Results before a chapter's questions, questions without an answer below, and answers that lie open."""
    asked = soup.select_one(".admonition.predict")
    keys = [question["id"] for question in asked.select("fieldset.question")]
    answers = asked.find_all_next("details", class_="outcome")
    answered = [answer.get("data-question") for answer in answers]
    shown = asked.find_all_previous(class_="cell_output") + [answer for answer in answers if answer.has_attr("open")]
    shown += [solution for solution in soup.select("div.solution") if not is_closed(solution)]
    unanswered = [key for key in keys if answered.count(key) != 1] if keys else ["no question"]
    return unanswered + [tag.get_text(" ", strip=True)[:60] for tag in shown]


def is_closed(solution) -> bool:
    return "dropdown" in solution["class"] and "toggle-shown" not in solution["class"]


@pytest.mark.parametrize(
    "leaking",
    [
        '<div class="cell_output">42</div>{box}{answer}',
        "{box}",
        "{answer}{box}",
        '{box}<details class="outcome" data-question="q" open>42</details>',
        '{box}{answer}<div class="solution">42</div>',
    ],
)
def test_a_leak_of_a_chapter_is_noticed(leaking):
    """The check above can fail: by a result before the box, an answer missing, above or open, an open solution."""
    box = '<div class="admonition predict"><fieldset class="question" id="q"></fieldset></div>'
    answer = '<details class="outcome" data-question="q">42</details>'
    assert chapter_leaks(BeautifulSoup(box + answer, "html.parser")) == []
    assert chapter_leaks(BeautifulSoup(leaking.format(box=box, answer=answer), "html.parser")) != []
