"""The minutes of a workshop: what its blocks ask of people and of the machine, and the plans that they fill.

A block's minutes follow from the words that are said and read, from questions and results, and from the seconds of the
lab's cells in their last execution. `data/pace.toml` has the rates and the givens.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from docutils import nodes

from handbook.delivery import page_texts
from handbook.directives.predictions import ON_LAB_PAGES
from inferlab.facts import tomllib

IN_SHORT = "in-short"
HEADING = re.compile(r"^(#+) +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One block of a workshop: where it stands, what it asks of people, and what of the machine.

    read        pages, or `page#anchor` for a section of one
    said_words  words of what the instructor says
    n_asked     questions to the room
    given       minutes that the block takes by decision, beside all that is computed
    """

    name: str
    title: str
    page: str
    anchor: str
    goal: str
    read: tuple[str, ...] = ()
    lab: str = ""
    sections: tuple[str, ...] = ()
    said_words: int = 0
    n_asked: int = 0
    given: int = 0


@dataclass(frozen=True)
class Part:
    """What is read, decided, looked at and computed in some sections of a page or a lab.

    seconds  of the lab's cells in their last execution; None where they were not executed
    """

    n_words: int = 0
    n_choices: int = 0
    n_results: int = 0
    seconds: float | None = 0.0

    def __add__(self, other: Part) -> Part:
        return Part(
            self.n_words + other.n_words,
            self.n_choices + other.n_choices,
            self.n_results + other.n_results,
            None if self.seconds is None or other.seconds is None else self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class Minutes:
    """Whole minutes of a block, each part rounded up; `machine` is None where nothing was executed."""

    talk: int = 0
    read: int = 0
    decide: int = 0
    machine: int | None = 0

    @property
    def together(self) -> int:
        return self.talk + self.read + self.decide + (self.machine or 0)


@dataclass(frozen=True)
class Pace:
    """What a word, a question and a result cost, from data/pace.toml; rates in words per minute."""

    reading: float
    talking: float
    question_minutes: float
    choice_minutes: float
    result_minutes: float
    slowest_machine: float

    def minutes(self, block: Block, part: Part) -> Minutes:
        """The minutes of a block whose pages and lab have this much."""
        looked = self.choice_minutes * part.n_choices + self.result_minutes * part.n_results
        return Minutes(
            talk=math.ceil(block.said_words / self.talking),
            read=math.ceil(part.n_words / self.reading),
            decide=math.ceil(self.question_minutes * block.n_asked + looked) + block.given,
            machine=None if part.seconds is None else math.ceil(self.slowest_machine * part.seconds / 60),
        )


@cache
def pace_data() -> dict[str, Any]:
    """data/pace.toml: cited rates, and givens with what each of them is."""
    return tomllib.loads((files("handbook") / "data" / "pace.toml").read_text(encoding="utf-8"))


def pace_rows() -> list[tuple[str, int, str]]:
    """For a table of the pace: what it is, its value, and where that comes from."""
    data = pace_data()
    rates = [
        (f"words a minute: {rate['what']}", rate["words_per_minute"], f"{{cite}}`{rate['source']}`")
        for rate in data["rates"].values()
    ]
    return [*rates, *((data["words"][name], value, "a decision") for name, value in data["givens"].items())]


@cache
def pace() -> Pace:
    """The pace of the book's plans."""
    data = pace_data()
    rates = {name: rate["words_per_minute"] for name, rate in data["rates"].items()}
    return Pace(**rates, **data["givens"])


@dataclass(frozen=True)
class Line:
    """One line of a plan: a block's name, or a break of so many minutes."""

    name: str
    minutes: int = 0
    optional: bool = False


@dataclass(frozen=True)
class Plan:
    """The lines of a plan between its start and its end, both in minutes after midnight."""

    lines: tuple[Line, ...]
    start: int
    minutes: int

    def without(self, names: Iterable[str]) -> Plan:
        left_out = set(names)
        return replace(self, lines=tuple(line for line in self.lines if line.name not in left_out))

    def needed(self, minutes: dict[str, Minutes]) -> int:
        """Minutes that all lines take."""
        return sum(line.minutes or minutes[line.name].together for line in self.lines)

    def left_out(self, minutes: dict[str, Minutes]) -> list[str]:
        """The optional blocks that have to go, from the last, until the rest fits or none is left."""
        gone: list[str] = []
        optional = [line.name for line in self.lines if line.optional]
        while optional and self.without(gone).needed(minutes) > self.minutes:
            gone.append(optional.pop())
        return gone


def line_of(text: str) -> Line:
    """`break 15`, `pipeline` or `pipeline optional`."""
    name, _, more = text.strip().partition(" ")
    return Line(name, optional=True) if more == "optional" else Line(name, int(more or 0))


def clock_text(minutes: int) -> str:
    return f"{minutes // 60}:{minutes % 60:02}"


def minutes_text(minutes: Minutes) -> str:
    """`12 together: 2 to talk, 5 to read, 4 to decide and look, 1 for the machine`."""
    machine = "the machine's part not executed" if minutes.machine is None else f"{minutes.machine} for the machine"
    parts = f"{minutes.talk} to talk, {minutes.read} to read, {minutes.decide} to decide and look, {machine}"
    return f"{minutes.together} together: {parts}."


def rest_text(plan: Plan, minutes: dict[str, Minutes], gone: Sequence[str]) -> str:
    """How the lines of a plan fit into its time, and what to leave out where they do not."""
    needed = plan.needed(minutes)
    if needed <= plan.minutes:
        left = f"{plan.minutes - needed} are left for questions"
        return f"The blocks and breaks take {needed} of {plan.minutes} minutes; {left}."
    over = f"The blocks and breaks take {needed} minutes, {needed - plan.minutes} more than there are."
    titles = " and ".join(f'"{title}"' for title in gone)
    return f"{over} Leave out {titles}." if gone else over


# --- what a page and a lab hold -----------------------------------------------------------------


def title_of(section: nodes.Element) -> str:
    return section.next_node(nodes.title).astext()


def section_of(doctree: nodes.document, anchor: str) -> nodes.Element:
    """The section of a page, or its box *In short*. Raises LookupError where there is none."""
    if anchor == IN_SHORT:
        return next(node for node in doctree.findall(nodes.admonition) if IN_SHORT in node["classes"])
    for section in doctree.findall(nodes.section):
        if anchor in section["ids"]:
            return section
    raise LookupError(f"There is no section {anchor!r} in {doctree['source']}.")


def page_part(doctree: nodes.document, anchor: str) -> Part:
    """Words and results of a page, or of one section of it with what lies below."""
    section = section_of(doctree, anchor) if anchor else next(doctree.findall(nodes.section))
    return Part(n_words=page_texts.n_words(section), n_results=n_results([section]))


def lab_part(path: Path, doctree: nodes.document, names: Sequence[str], seconds: Sequence[float] | None) -> Part:
    """What some sections of a lab hold, all of them where none is named. Raises LookupError for an unknown name."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sections = {title_of(section): section for section in doctree.findall(nodes.section)}
    unknown = [name for name in names if name not in sections]
    if unknown:
        raise LookupError(f"{path.stem} has no section {unknown}. It has: {list(sections)}.")
    chosen = [sections[name] for name in names] if names else [next(doctree.findall(nodes.section))]
    raws = [raw for section in chosen for raw in section.findall(nodes.raw) if ON_LAB_PAGES in raw.astext()]
    return Part(
        n_words=sum(map(page_texts.n_words, chosen)),
        n_choices=len(raws),
        n_results=n_results(chosen) - len(raws),
        seconds=None if seconds is None else sum(seconds[i] for i in code_cells(cells, names)),
    )


def n_results(sections: Iterable[nodes.Element]) -> int:
    """Outputs of cells that a reader looks at."""
    return sum("cell_output" in box["classes"] for section in sections for box in section.findall(nodes.container))


def code_cells(cells: Sequence[dict], names: Sequence[str]) -> Iterator[int]:
    """The numbers of the code cells, counted alone, below the headings of these names; all where none is named."""
    number = 0
    above: dict[str, int] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            if not names or not above.keys().isdisjoint(names):
                yield number
            number += 1
        else:
            for marks, heading in HEADING.findall("".join(cell["source"])):
                above = {title: level for title, level in above.items() if level < len(marks)} | {heading: len(marks)}
