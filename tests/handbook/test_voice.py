"""The form and the words of the pages: the answer first, short sentences, plain words."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest
from voice import LONGEST_SENTENCE, UNWANTED, split

from handbook import claims

ROOT = Path(__file__).parents[2]
OPEN_TRIALS = 3
PLAIN_FORM = ("bibliography", "foreword", "glossary", "index", "labs")
"""Pages that are no chapters, and open without *In short*."""


def pages() -> list[Path]:
    return sorted((ROOT / "book").rglob("*.md"))


def labs() -> list[Path]:
    return sorted((ROOT / "labs").glob("*.ipynb"))


by_name = pytest.mark.parametrize("path", [*pages(), *labs()], ids=lambda path: path.stem)
of_chapters = pytest.mark.parametrize(
    "path", [path for path in pages() if path.stem not in PLAIN_FORM], ids=lambda path: path.stem
)


@cache
def markdown(path: Path) -> str:
    """A page without its header, or a notebook's cells of text."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.DOTALL)


FENCE = re.compile(r"(`{3,}|~{3,})(.*)")
NOT_PROSE = re.compile(r"\{(?:code-cell|math|mermaid|settings|raw)\}|\w*$")
"""What stands after the fence of a directive without text, or of a block of code."""
CAPTION = re.compile(r"""^\s*(?::caption:|caption:) *["']?(.*?)["']?$""", re.MULTILINE)


def prose(text: str) -> str:
    """The text without code, formulas, tables, headings, options of directives and comments, then the captions."""
    kept, _ = without_code(text)
    kept = re.sub(r"\$\$.*?\$\$", "", kept, flags=re.DOTALL)
    dropped = ("|", "#", ":", "(", "%", "---")
    lines = ["" if line.strip().startswith(dropped) else line for line in kept.splitlines()]
    return "\n".join([*lines, *(f"\n{caption}" for caption in CAPTION.findall(text))])


def without_code(text: str) -> tuple[str, int]:
    """The text outside of code, formulas and diagrams; a directive's text is kept. And the number of open fences."""
    kept, stack = [], []
    for line in text.splitlines():
        fence = FENCE.match(line)
        inside_code = any(is_code for _, is_code in stack)
        if fence and stack and (fence[1], fence[2].strip()) == (stack[-1][0], ""):
            stack.pop()
        elif fence and not inside_code:
            stack.append((fence[1], bool(NOT_PROSE.match(fence[2].strip()))))
        elif not inside_code:
            kept.append(line)
    return "\n".join(kept), len(stack)


def sentences(text: str) -> list[str]:
    """Sentences as a reader reads them: a role counts as its text, a link as its words."""
    text = re.sub(r"\{cite(?::\w+)?\}`[^`]*`", "", prose(text))
    text = re.sub(r"\{[\w:-]+\}`([^`<]*?)(?:\s*<[^>`]*>)?`", r"\1", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|[A-Z]\.) )", text)
    return [sentence for block in blocks for sentence in split(block)]


@by_name
def test_no_sentence_is_too_long_to_be_read_once(path):
    """Thirty-two words are the most, twenty the aim."""
    assert [sentence for sentence in sentences(markdown(path)) if len(sentence.split()) > LONGEST_SENTENCE] == []


@by_name
def test_a_page_speaks_of_the_subject_and_in_the_words_of_the_field(path):
    """No word of a private language, and no document that the reader has never seen."""
    assert [word[0] for sentence in sentences(markdown(path)) for word in UNWANTED.finditer(sentence)] == []


@of_chapters
def test_a_chapter_opens_in_short(path):
    """The first box after the title gives an action, a number that was computed or measured, and a line to copy."""
    after_title = re.split(r"^# .*$", markdown(path), maxsplit=1, flags=re.MULTILINE)[1]
    after_title = re.sub(r"^```\{code-cell\}.*?^```$", "", after_title, flags=re.DOTALL | re.MULTILINE).strip()
    assert re.match(r"(`{3,}|:{3,})\{admonition\} In short\n:class: in-short\n", after_title)
    fence = re.match(r"[`:]+", after_title)[0]
    box = after_title.split(f"\n{fence}\n", 1)[0]
    assert re.search(r"\{(glue:text|fact)\}", box)
    assert re.search(r"^(?:```|~~~)(?:sh|text|python)$", box, re.MULTILINE)


@by_name
def test_every_fence_is_closed(path):
    """An open one would take the rest of the page for code, also in the checks here."""
    assert without_code(markdown(path))[1] == 0


@of_chapters
def test_few_trials_are_open(path):
    """A reader meets at most three claims unfolded on a page."""
    assert markdown(path).count("\n:open:") <= OPEN_TRIALS


@pytest.mark.parametrize("key", claims.CHAPTERS)
def test_a_chapter_carries_its_number(key):
    """What the text calls chapter 4 has that number in its title, and so in the navigation; other pages have none."""
    number, _, document = claims.CHAPTERS[key]
    path = ROOT / f"{document}.md"
    if path.is_file():
        title = re.search(r"^# (.*)$", markdown(path), re.MULTILINE)[1]
        assert title.startswith(f"{number}. ") if number else not re.match(r"(\d|[A-C])\w?\. ", title)


def test_a_long_sentence_and_an_odd_word_are_noticed():
    """The checks above can fail; code, tables and formulas count for nothing."""
    code = "```sh\na desk\n```\n| desk |\n"
    read = sentences("# Head\n\nOne {term}`knob <x>` of [many](y.md) is here. " + 40 * "long " + "\n\n" + code)
    assert read[0] == "One knob of many is here."
    assert [len(sentence.split()) for sentence in read] == [6, 40]
    assert [hit[0] for sentence in read for hit in UNWANTED.finditer(sentence)] == ["knob"]


def test_text_in_a_box_and_a_caption_are_read():
    """A box's fences hide nothing after them; code in a box, and a cell that ends inside it, are left out."""
    box = "~~~{admonition} A\nSaid here.\n```sh\nmake\n```\nAnd here.\n~~~\n"
    cell = '```{code-cell}\n---\nmystnb:\n  figure:\n    caption: "Seen there."\n---\nx = 1\n```\n'
    assert sentences(f"{box}\nAfter.\n\n{cell}") == ["Said here.", "And here.", "After.", "Seen there."]
    assert without_code(f"{box}{cell}```{{code-cell}}\nx = 2\n")[1] == 1
