"""The start page of `make lab`: every lab of the index, and what this folder knows about each."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handbook import lab_room

ROOT = Path(__file__).parents[2]
KEPT = {"cell_type": "code", "metadata": {"tags": ["keep_output"]}, "execution_count": 1}
INDEX = "| [0 Check](../labs/00-check.ipynb) | Is it ready? | 10 | nothing |\n"


def cell(count):
    return {"cell_type": "code", "metadata": {}, "execution_count": count}


@pytest.fixture
def root(tmp_path):
    """A folder with an index of one lab, of whose own cells one of two was run."""
    (tmp_path / "book").mkdir()
    (tmp_path / "labs").mkdir()
    (tmp_path / "book" / "labs.md").write_text(INDEX)
    (tmp_path / "labs" / "00-check.ipynb").write_text(json.dumps({"cells": [KEPT, cell(4), cell(None)]}))
    return tmp_path


def test_the_start_page_has_every_lab_in_the_order_of_the_index():
    """The book's index of labs is its only source."""
    files = [lab.file for lab in lab_room.labs(ROOT)]
    assert sorted(files) == sorted(path.name for path in (ROOT / "labs").glob("*.ipynb"))
    page = lab_room.start_page(ROOT)
    places = [page.index(f"]({file})") for file in files]
    assert places == sorted(places)


def test_the_start_page_says_which_cells_were_run(root):
    """A cell whose output the repository keeps is not counted; a lab is done when all others were run."""
    assert "| [0 Check](00-check.ipynb) | Is it ready? | 10 | nothing | 1 of 2 |" in lab_room.start_page(root)
    (root / "labs" / "00-check.ipynb").write_text(json.dumps({"cells": [KEPT, cell(4), cell(5)]}))
    assert "| nothing | all |" in lab_room.start_page(root)


def test_seconds_of_computing_stand_there_only_after_a_build(root):
    """They are those that the last build kept, never typed."""
    assert "computing" not in lab_room.start_page(root)
    kept = root / "_build" / ".executed" / "labs" / "00-check.json"
    kept.parent.mkdir(parents=True)
    kept.write_text(json.dumps({"result": {"runtime": 51.7}}))
    assert "| 1 of 2 | 52 s |" in lab_room.start_page(root)


@pytest.mark.parametrize("lab", sorted((ROOT / "labs").glob("*.ipynb")), ids=lambda lab: lab.stem)
def test_code_that_asks_or_reveals_is_hidden_in_jupyterlab_as_on_the_page(lab):
    """A question is read once, and no source tells an outcome before its answer is committed."""
    cells = json.loads(lab.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        source, tags = "".join(cell["source"]), cell["metadata"].get("tags", ())
        if cell["cell_type"] == "code" and ("remove-input" in tags or ".reveal(" in source):
            assert cell["metadata"].get("jupyter") == {"source_hidden": True}, source
            assert {"hide-input", "remove-input"} & set(tags), source
