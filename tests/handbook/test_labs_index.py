"""The index of labs names every lab, with the title and the minutes that the lab itself states."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LABS = sorted((ROOT / "labs").glob("*.ipynb"))
INDEX = (ROOT / "book" / "labs.md").read_text(encoding="utf-8")


def introduction(lab: Path) -> str:
    """The text of a lab's first cell."""
    return "".join(json.loads(lab.read_text(encoding="utf-8"))["cells"][0]["source"])


@pytest.mark.parametrize("lab", LABS, ids=lambda lab: lab.stem)
def test_the_index_has_the_lab_with_its_title_and_its_minutes(lab):
    """A reader who chooses a lab by its line finds the title and the time that the line promised."""
    text = introduction(lab)
    number, title = re.search(r"^# Lab (\w+): (.+)$", text, re.MULTILINE).groups()
    minutes = re.search(r"^\*\*Time:?\*\*:? (\d+) min", text, re.MULTILINE)[1]
    row = re.search(rf"^\| \[(.+?)\]\(\.\./labs/{re.escape(lab.name)}\) \|[^|]+\| (\d+) \|", INDEX, re.MULTILINE)
    assert row, f"book/labs.md has no line for {lab.name}"
    assert (row[1].lower(), row[2]) == (f"{number} {title}".lower(), minutes)
