"""Blocks and plans of a workshop: their minutes follow from words, from questions and from the last build's cells."""

from __future__ import annotations

import ast
import builtins
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import sphinx_page
from bs4 import BeautifulSoup

from handbook.directives.syllabus import listed
from handbook.workshop_minutes import (
    Block,
    Line,
    Minutes,
    Part,
    Plan,
    code_cells,
    pace,
    pace_data,
    pace_rows,
    rest_text,
)
from inferlab.doctor.workshops import syllabi

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^~~~\{block\} (\S+)\n(.*?)^~~~$", re.MULTILINE | re.DOTALL)
PLAN = re.compile(r"^```\{plan\} (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CELLS = [
    {"cell_type": "markdown", "source": "# Lab\n"},
    {"cell_type": "code", "source": "import inferlab"},
    {"cell_type": "markdown", "source": ["## Predict\n", "Choose."]},
    {"cell_type": "code", "source": 'pace = widgets.ask("How fast?", ("faster", "slower"))'},
    {"cell_type": "markdown", "source": "No heading."},
    {"cell_type": "code", "source": "pace"},
    {"cell_type": "markdown", "source": "## Measure: it\n### Closer\n"},
    {"cell_type": "code", "source": "run"},
]
LAB = "# Lab\n\nOne two three.\n\n## Predict\n\nFour five.\n\n## Measure: it\n\nSix.\n"
PAGE = """# Blocks

```{{plan}} short
:start: 9:05
:minutes: {minutes}
first
break 10
second optional
```

## The first block

~~~{{block}} first
:goal: Say how fast it is.
:read: chapter#in-short; chapter#part
:lab: one
:sections: "Predict; Measure: it"
This is said aloud, {said}.

```{{asks}} one pace
- faster => That is *right*.
- slower => Look again.
```
```{{rooms}}
- gpu: Use the card.
```
~~~

## The second block

~~~{{block}} second
:goal: Work.
:minutes: 20
~~~
"""
TOC = "```{toctree}\nchapter\nlabs/one\n```\n\n"
CHAPTER = """# A chapter

```{admonition} In short
:class: in-short
Four words and more.
```

(part)=
## Part

A word.
"""


@pytest.fixture
def built(tmp_path):
    """A function: the page of blocks, and the build's warnings."""
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs" / "one.ipynb").write_text(json.dumps({"cells": CELLS}), encoding="utf-8")
    for name, text in {"chapter": CHAPTER, "labs/one": LAB}.items():
        (tmp_path / f"{name}.md").write_text(text, encoding="utf-8")

    def build(seconds=(1.0, 30.0, 30.0, 60.0), page=PAGE, **words) -> tuple[BeautifulSoup, str]:
        kept = {"labs/one": {"exec_data": {"cell_seconds": seconds}}} if seconds else {}
        return sphinx_page.built(
            tmp_path,
            TOC + page.format(**{"minutes": 60, "said": "once", **words}),
            "handbook.directives.syllabus",
            prepare=lambda app: setattr(app.env, "nb_metadata", kept),
        )

    return build


def rows(page: BeautifulSoup) -> list[list[str]]:
    return [[cell.get_text() for cell in row.find_all("td")] for row in page.select("table tbody tr")]


def minutes_of(page: BeautifulSoup) -> list[str]:
    return [item.get_text() for item in page.select(".workshop-facts li") if "Minutes" in item.get_text()]


def test_a_plan_adds_up_from_its_start(built):
    """Each line begins where the one before ended, and a break has the minutes that the plan gives it."""
    page, warnings = built()
    assert warnings == ""
    times = [row[0] for row in rows(page)]
    together = [int(row[-1].split()[-1]) for row in rows(page)]
    assert times == ["9:05", f"9:{5 + together[0]:02}", f"9:{15 + together[0]:02}"]
    assert together[1:] == [10, 20]
    assert f"take {sum(together)} of 60 minutes; {60 - sum(together)} are left for questions" in page.get_text()


def test_the_minutes_follow_the_cells_of_the_lab(built):
    """A lab whose cells take longer makes its block longer; cells of other sections count for nothing."""
    measured = ([1, 30, 30, 60], [1, 30, 30, 300], [600, 30, 30, 60])
    quick, slow, elsewhere = (minutes_of(built(seconds)[0])[0] for seconds in measured)
    assert "4 for the machine" in quick
    assert "12 for the machine" in slow
    assert elsewhere == quick


def test_the_minutes_follow_the_words_said(built):
    """More words to say, more minutes to talk."""
    assert "1 to talk" in minutes_of(built()[0])[0]
    assert "3 to talk" in minutes_of(built(said=400 * "word ")[0])[0]


def test_a_lab_that_was_not_executed_has_no_minutes(built):
    """Nothing is guessed for it."""
    page, _ = built(seconds=None)
    assert "the machine's part not executed" in minutes_of(page)[0]
    assert rows(page)[0][-1].endswith("not executed")


def test_what_may_be_left_out_is_named_where_time_is_short(built):
    """The plan says how many minutes are missing, and which blocks to leave out."""
    assert 'more than there are. Leave out "The second block".' in built(minutes=25)[0].get_text()


def test_a_block_shows_its_pages_its_lab_and_its_rooms(built):
    """Links lead to the pages, sections of a lab are named, and a room has its own line."""
    page, _ = built()
    links = {link.get_text(): link["href"] for link in page.select(".workshop-facts a")}
    assert links == {
        "A chapter, In short": "chapter.html",
        "A chapter, Part": "chapter.html#part",
        "Lab": "labs/one.html",
    }
    assert "Lab, sections: Predict; Measure: it" in page.get_text()
    assert page.select_one(".workshop-rooms").get_text(" ", strip=True) == "With own GPUs : Use the card."


def test_each_choice_has_what_to_say(built):
    """A question to the room shows the lab's choices, each with a reply."""
    asked = built()[0].select_one(".workshop-ask").get_text(" ", strip=True)
    assert asked == "How fast? faster : That is right . slower : Look again."


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("- slower => Look again.", "", "what to say is needed for each"),
        ("break 10", "lunch", "There is no block lunch"),
        ("- gpu: Use", "- cellar: Use", "There is no room cellar"),
        ("{{block}} second", "{{block}} first", "stands twice"),
    ],
    ids=["a choice without a reply", "an unknown block", "an unknown room", "a block that stands twice"],
)
def test_a_mistake_is_a_warning(built, before, after, said):
    """Which fails the strict build of the book."""
    assert said in built(page=PAGE.replace(before, after))[1]


def test_an_unknown_section_ends_the_build(built):
    """A plan without the minutes of a lab's renamed section would be too short without a word."""
    with pytest.raises(Exception, match="has no section"):
        built(page=PAGE.replace("Measure: it", "Measure: that"))


def test_code_cells_are_found_by_the_heading_above_them():
    """Cells of a section below count too, and every cell of a lab where no section is named."""
    assert list(code_cells(CELLS, ["Predict"])) == [1, 2]
    assert list(code_cells(CELLS, ["Closer"])) == list(code_cells(CELLS, ["Measure: it"])) == [3]
    assert list(code_cells(CELLS, [])) == [0, 1, 2, 3]


def test_a_part_that_was_not_executed_leaves_the_sum_unknown():
    """Unknown is not zero."""
    assert (Part(n_words=3, seconds=2.0) + Part(n_words=4)).seconds == 2.0
    assert (Part(n_words=3, seconds=None) + Part(n_words=4)) == Part(n_words=7, seconds=None)


def test_blocks_are_left_out_from_the_last():
    """Only as many as needed, never one that the plan cannot do without."""
    minutes = {name: Minutes(talk=10) for name in "abc"}
    plan = Plan((Line("a", optional=True), Line("b"), Line("break", 5), Line("c", optional=True)), 0, 25)
    assert plan.left_out(minutes) == ["c"]
    assert replace(plan, minutes=20).left_out(minutes) == ["c", "a"]
    assert replace(plan, minutes=35).left_out(minutes) == []
    told = rest_text(replace(plan, minutes=5), minutes, [])
    assert told == "The blocks and breaks take 35 minutes, 30 more than there are."


def test_the_pace_is_cited_or_given():
    """Rates name a source of the bibliography, and each given says what it is."""
    data = pace_data()
    sources = (ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    assert all(f"{{{rate['source']}," in sources for rate in data["rates"].values())
    assert data["givens"].keys() == data["words"].keys()
    assert len(pace_rows()) == len(data["rates"]) + len(data["givens"])


def test_a_minute_is_rounded_up():
    """A plan is never shorter than the sum of its parts."""
    block = Block("a", "A", "page", "a", "", said_words=184, n_asked=1)
    part = Part(n_words=176, n_choices=1, n_results=1, seconds=31.0)
    assert pace().minutes(block, part) == Minutes(talk=2, read=2, decide=5, machine=2)


def test_a_syllabus_is_checked_for_the_labs_that_its_plan_has():
    """`inferlab doctor --workshop` asks for what the plan of that name runs, no more and no less."""
    blocks = {}
    for name, body in BLOCK.findall((ROOT / "book" / "teaching" / "blocks.md").read_text(encoding="utf-8")):
        blocks[name] = re.search(r"^:lab: (\S+)$", body, re.MULTILINE)
    plans = PLAN.findall((ROOT / "book" / "teaching" / "guide.md").read_text(encoding="utf-8"))
    labs = {
        name: {lab[1] for line in body.splitlines() if (lab := blocks.get(line.partition(" ")[0]))}
        for name, body in plans
    }
    assert labs == {name: set(syllabus.labs) for name, syllabus in syllabi().items()}


def blocks_of_the_book() -> dict[str, dict[str, str]]:
    """The options of every block, by the block's name."""
    blocks = BLOCK.findall((ROOT / "book" / "teaching" / "blocks.md").read_text(encoding="utf-8"))
    return {name: dict(re.findall(r'^:(\w+): "?(.*?)"?$', body, re.MULTILINE)) for name, body in blocks}


BLOCKS = {name: options for name, options in blocks_of_the_book().items() if "lab" in options}


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs_without_the_sections_that_it_leaves_out(name):
    """What its cells use is defined at the lab's top, by the block itself, or by an earlier block of that lab."""
    until_here = list(BLOCKS)[: list(BLOCKS).index(name) + 1]
    same_lab = [BLOCKS[block] for block in until_here if BLOCKS[block]["lab"] == BLOCKS[name]["lab"]]
    sections = [part for block in same_lab for part in listed(block["sections"])]
    path = ROOT / "labs" / f"{BLOCKS[name]['lab']}.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    first = next(i for i, cell in enumerate(cells) if re.search(r"^## ", "".join(cell["source"]), re.MULTILINE))
    n_top = sum(cell["cell_type"] == "code" for cell in cells[:first])
    known = set(dir(builtins))
    for number in sorted({*range(n_top), *code_cells(cells, sections)}):
        used, made = names_of(code[number])
        known |= made
        assert used <= known, number


def names_of(source: str) -> tuple[set[str], set[str]]:
    """The names that a cell uses, and those that it makes."""
    tree = list(ast.walk(ast.parse(source)))
    names = [node for node in tree if isinstance(node, ast.Name)]
    imported = [alias for node in tree if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names]
    made = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    made |= {(alias.asname or alias.name).partition(".")[0] for alias in imported}
    made |= {node.arg for node in tree if isinstance(node, ast.arg)}
    return {node.id for node in names if isinstance(node.ctx, ast.Load)}, made
