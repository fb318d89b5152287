"""A text in parts: where results of one form begin and end among prose, fences, messages and results of other forms."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from inferlab.results.tables import column_names, is_table_header, table_length

JSON, CSV, SQL, TABLE = "json", "csv", "sql", "table"
FENCE = re.compile(r"\s*(?:```|~~~)")
QUOTE = re.compile(r"\s*>[ >]*")
"""What a reply puts before each line that it quotes."""
JSON_BEGINS = re.compile(r"\s*(?:\[\s*(?:[\[{\]]|$)|\{\s*(?:[\"{}]|$))")
SQL_BEGINS = re.compile(r"\s*(?:CREATE TABLE|INSERT INTO)\b", re.IGNORECASE)
STRING = re.compile(r'"(?:[^"\\]|\\.)*"?')
FIELD = re.compile(
    r'"(?:build_commit|model_type|n_prompt|n_gen|avg_(?:ns|ts)|samples_(?:ns|ts)|speed_(?:pp|tg)|passes|record|format)"'
)
WANTED = {"n_prompt", "n_gen", "avg_ts"}


@dataclass(frozen=True)
class Block:
    """Lines of one form; `above` is the number of the file's lines before them, `before` those since the last block.

    To a table belongs the build that stands just below it.
    """

    form: str
    lines: list[str]
    above: int
    before: list[str]


def unquoted(lines: Sequence[str]) -> list[str]:
    """The lines without the marks of a quotation."""
    return [QUOTE.sub("", line, count=1) if line.lstrip().startswith(">") else line for line in lines]


def blocks(lines: Sequence[str]) -> Iterator[Block]:
    """The parts of a text that hold results, in their order."""
    forms = [_form(line) for line in lines]
    place = last = 0
    while place < len(lines):
        form = forms[place]
        if form is None:
            place += 1
            continue
        end = _end(lines, forms, place, lines[last:place])
        yield Block(form, list(lines[place:end]), place, list(lines[last:place]))
        place = last = end


def is_csv_header(line: str) -> bool:
    """Whether a line names the fields of llama-bench's CSV."""
    return not line.lstrip().startswith(("[", "{")) and {word.strip(' "') for word in line.split(",")} >= WANTED


def _form(line: str) -> str | None:
    """The form of results that may begin with a line."""
    if JSON_BEGINS.match(line):
        return JSON
    if SQL_BEGINS.match(line):
        return SQL
    if is_csv_header(line):
        return CSV
    return TABLE if is_table_header(column_names(line)) else None


def _end(lines: Sequence[str], forms: Sequence[str | None], start: int, before: Sequence[str]) -> int:
    """The first line that no longer belongs to the block: below its last bracket, a fence or another beginning."""
    form, depth, place = forms[start], 0, start
    while place < len(lines):
        line = lines[place]
        if place > start and (_is_fence(line, form) or _is_other(forms[place], form)):
            break
        if form == JSON:
            depth += _levels(line)
            if depth <= 0:
                return _after_lines(lines, start) if place == start else place + 1
        place += 1
    if form != TABLE:
        return place
    return start + table_length(lines[start:place], before, forms[place : place + 1] == [TABLE])


def _is_fence(line: str, form: str | None) -> bool:
    """Whether a fence ends the block; below a table it does not, because its build may stand there."""
    return form != TABLE and bool(FENCE.match(line))


def _is_other(found: str | None, form: str | None) -> bool:
    """Whether a line begins another block: objects and statements of one form belong together."""
    return found is not None and (found != form or form in (CSV, TABLE))


def _after_lines(lines: Sequence[str], start: int) -> int:
    """The end of JSON lines: tests, each an object on a line, between messages; a list stands for itself."""
    end = start + 1
    if not _is_test_line(lines[start]):
        return end
    for number in range(end, len(lines)):
        line = lines[number]
        if FENCE.match(line) or (_form(line) not in (None, JSON)):
            break
        if JSON_BEGINS.match(line):
            if not _is_test_line(line) or (_levels(line) != 0 and not line.lstrip().startswith('{"')):
                break
            end = number + 1
    return end


def _is_test_line(line: str) -> bool:
    return line.lstrip().startswith("{") and names_a_test(line)


def names_a_test(line: str) -> bool:
    """Whether a line of JSON has a field of a test, or of what holds tests."""
    return bool(FIELD.search(line))


def _levels(line: str) -> int:
    """How many more brackets a line of JSON opens than it closes."""
    bare = STRING.sub("", line)
    return sum(map(bare.count, "[{")) - sum(map(bare.count, "]}"))
