"""The form of studies and of the pages that show them: one folder a question, and cells that only call."""

import ast
import re
from pathlib import Path

import pytest
from myst_nb.core.read import read_myst_markdown_notebook

from inferlab.records import shipped, studies
from studies.recipes import recipes

ROOT = Path(__file__).parents[2]
STUDIES = {path.name: path for path in studies()}
PAGES = sorted((ROOT / "book").rglob("*.md"))
HIDDEN, MOST_LINES = {"remove-cell", "remove-input", "hide-input"}, 15


def cells(page):
    """(tags, code without blank lines) of every code cell of a page."""
    for cell in read_myst_markdown_notebook(page.read_text(encoding="utf-8")).cells:
        if cell.cell_type == "code":
            lines = [line for line in cell.source.splitlines() if line.strip()]
            yield set(cell.metadata.get("tags", ())), lines


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_says_what_it_asks_on_what_machine(study):
    """Its README has question and result without a figure, its package the question."""
    folder = STUDIES[study]
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith("# ")
    assert "**Question.**" in readme
    assert "**Result.**" in readme
    assert ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))).strip().endswith("?")


@pytest.mark.parametrize("study", STUDIES)
def test_records_have_recipes_and_a_study_without_records_has_none(study):
    """`measure` stands beside records, and nowhere else."""
    folder = STUDIES[study]
    machines = folder.glob("records/*")
    recorded = {path.relative_to(at).with_suffix("").as_posix() for at in machines for path in at.rglob("*.json")}
    assert (folder / "measure.py").is_file() == bool(recorded)
    if recorded:
        assert recorded <= recipes(study).keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT / "book").as_posix())
def test_a_hidden_cell_calls(page):
    """At most fifteen lines, and no cell defines a function: that belongs to the page's study, with a test.

    The visible cell that shows what a pickle can do defines the class that does it.
    """
    for tags, lines in cells(page):
        assert not tags & HIDDEN or len(lines) <= MOST_LINES, lines[:3]
        defines = [line for line in lines if re.match(r"\s*(def|class) |\w+ = lambda", line)]
        assert not defines or (page.stem == "trust" and not tags & HIDDEN and "import pickle" in lines)


def test_the_library_loads_no_record_of_a_study():
    """What it needs lies in its own data, so that an edit in a study reaches its own pages alone."""
    ours = {name for name, path in shipped().items() if "studies" in path.parts}
    named = {
        node.value
        for path in (ROOT / "src" / "inferlab").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert named & ours == {"xeon-2c/tune-n_threads"}  # the example of an instrument, which has the whole atlas
