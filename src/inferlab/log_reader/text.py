"""The text of a log: decoded, without colours, searched in linear time, with line numbers."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from inferlab.errors import UnreadableLog
from inferlab.records import flat_json

COLOUR = re.compile(r"\x1b\[[0-9;?]{0,16}[A-Za-z]")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")
DIGITS = bytes.maketrans(b"123456789", b"0" * 9)
BEFORE, AFTER = 300, 700
"""Characters of a line that are read before and after what was found, so that a line of megabytes costs nothing."""
LONGEST_NAME = 1_000
DATE = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
BEFORE_A_LINE = re.compile(
    r"^[ >]{0,8}(?:"
    r"[\w.-]{1,60} {1,20}\| "  # docker compose
    rf"|(?:(?:\S{{2,6}} [ \d]\d \d\d:\d\d:\d\d|{DATE}) [^\n]{{1,80}}? )?[\w./@-]{{1,60}}\[\d{{1,8}}\]: "  # journalctl
    rf"|{DATE} (?:\| |std(?:out|err) [FP] )?"  # docker logs -t, Kubernetes
    r"|\d{1,2}:\d\d[AP]M [A-Z]{3} GRPC\([^\n]{1,200}?\): std(?:out|err) "  # LocalAI#1729
    r"|[^\n]{0,60}? GRPC std(?:out|err) id=\S{1,200} line=\"?"  # LocalAI of 2026
    r"|(?:\[\d{4}-\d\d-\d\d\]\[\d\d:\d\d:\d\d\]\[[\w:]{1,80}\]\[[A-Z]{4,5}\] |(?:\[\d\d:\d\d:\d\d\] )?[A-Z]{4,5} )?"
    r"\[llamacpp[\w -]{0,20}\] "  # jan#6628, #8236, #8244, #8273
    r"|\[[ \d]{4}\d\] "  # a model's server below a router, tools/server/server-models.cpp:186
    r"){1,4}",
    re.MULTILINE,
)
"""What other programs write before each line of a log."""
SERVICES = {
    "Ollama": (
        "ollama",
        re.compile(
            r"^[ >]{0,8}(?:(?:\w{1,30}[_-])?ollama(?:[_-](?:\d{1,3}|server|cpu|gpu))? {1,20}\| "
            r"|(?:[^\n]{0,120}? )?ollama\[\d{1,8}\]: )",
            re.MULTILINE,
        ),
    ),
    "LocalAI": (" GRPC", re.compile(r"^[^\n]{0,60}? GRPC(?:\([^\n]{1,200}?\): std| std)(?:out|err) ", re.MULTILINE)),
    "Jan": ("[llamacpp", re.compile(r"^[^\n]{0,120}\[llamacpp[\w -]{0,20}\] ", re.MULTILINE)),
}
"""Programs that write before each line of another one, or that docker compose and journalctl name there."""
QUOTING = re.compile(r'\b(?:request|response): {1,3}\{|prompt="|"(?:content|messages|prompt|text)": |“')
"""A line that repeats a request or an answer, whose words are not the program's."""
MOST_QUOTED = 200
"""Such lines that are passed over to find the last one with a string"""
COMPOSED = re.compile(r"^[ >]{0,8}([\w.-]{1,60}) {1,20}\| ", re.MULTILINE)
OF_A_MODEL = re.compile(r"llama|ggml_|load_tensors|print_info|\b(?:srv|slot) |level=|\[GIN\]")
"""In the lines of a program that runs models"""
FIRST_WORDS = 80
GGUF = re.compile("GGUF[\x00-\x09\ufffd]")
"""The first bytes of a model, the last of them its version, in either order of bytes."""
A_MODEL = (
    "This is a model in GGUF, not a log. The memory planner reads models and says what they need; give a log here."
)


@dataclass(frozen=True)
class Line:
    """One line of a log: its number from 1, and its text as its program wrote it, of a very long line what counts."""

    number: int
    text: str


@dataclass(frozen=True)
class LogText:
    """A log, searched by strings; lines that repeat a request or an answer are not the program's own, nor found.

    text    the log, its lines ended by "\\n", without colours and what other programs write before each line
    shapes  its different lines with every number as one 0: a string that is not in them is in no line
    service the program that what stood before the lines names, or ""
    containers  the names of docker compose before the program's lines, where a container's end is told
    known   strings that were looked for in the shapes, and whether they are there
    """

    text: str
    shapes: bytes = field(repr=False)
    line_ends: list[int] = field(repr=False)
    service: str = ""
    containers: frozenset[str] = frozenset()
    known: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)

    @property
    def n_lines(self) -> int:
        """Lines, with the last one also where no line end follows it."""
        return len(self.line_ends) + (not self.text.endswith("\n"))

    def has(self, needle: str, start: int = 0) -> bool:
        """Whether a string is in the text, from one place of it on."""
        return self._may_have(needle) and self.text.find(needle, start) >= 0

    def lines_with(self, needle: str, start: int = 0, end: int | None = None) -> Iterator[Line]:
        """The lines between two places of the text that contain a string, in their order."""
        at = self.text.find(needle, start, end) if self._may_have(needle) else -1
        while at >= 0:
            if not self._quoted(line := self.line_at(at)):
                yield line
            line_end = self.text.find("\n", at)
            at = self.text.find(needle, line_end, end) if line_end >= 0 else -1

    def first(self, needle: str, start: int = 0, end: int | None = None) -> Line | None:
        """The first of `lines_with`."""
        return next(self.lines_with(needle, start, end), None)

    def last(self, needle: str, start: int = 0, end: int | None = None) -> Line | None:
        """The last of `lines_with`."""
        for _ in range(MOST_QUOTED if self._may_have(needle) else 0):
            at = self.text.rfind(needle, start, end)
            if at < 0:
                return None
            if not self._quoted(line := self.line_at(at)):
                return line
            end = self.start_of_line(at)
        return None

    @cached_property
    def _has_quotations(self) -> bool:
        return QUOTING.search(self.shapes.decode("utf-8", "replace")) is not None

    def _quoted(self, line: Line) -> bool:
        """Whether a line repeats a request or an answer; of a very long one, its beginning says so."""
        if not self._has_quotations:
            return False
        at = self.line_ends[line.number - 2] + 1 if line.number > 1 else 0
        head = self.text[at : at + BEFORE].partition("\n")[0]
        return QUOTING.search(line.text) is not None or QUOTING.search(head) is not None

    def _may_have(self, needle: str) -> bool:
        known = self.known.get(needle)
        if known is None:
            known = self.known[needle] = "\n" in needle or _shape(needle) in self.shapes
        return known

    def until(self, end: int) -> LogText:
        """The log up to one place of its text."""
        ends = self.line_ends[: bisect_right(self.line_ends, end - 1)]
        return LogText(self.text[:end], self.shapes, ends, self.service, self.containers)

    def line_at(self, at: int) -> Line:
        """The line around one place of the text."""
        start, end = self.start_of_line(at), self.text.find("\n", at, at + AFTER)
        part = self.text[max(start, at - BEFORE) : end if end >= 0 else at + AFTER]
        return Line(bisect_right(self.line_ends, at - 1) + 1, part.strip())

    def start_of_line(self, at: int) -> int:
        """Where the line around one place of the text begins."""
        return self.text.rfind("\n", 0, at) + 1


def read(log: str | bytes | os.PathLike[str]) -> LogText:
    """The text of a log.

    log  a path; or the content of a file, as text or bytes; or the name of a file, if there is such a file

    Raises UnreadableLog for a file that cannot be read, for a model, and where there is no text.
    """
    if isinstance(log, os.PathLike):
        return _log_text(_bytes_of(Path(log)), f"{log}")
    path = _named_file(log)
    return _log_text(_bytes_of(path), f"{path}") if path else _log_text(log, "the text")


def _log_text(data: str | bytes, source: str) -> LogText:
    if GGUF.match(data[:8].decode("latin-1") if isinstance(data, bytes) else data):
        raise UnreadableLog(A_MODEL)
    text = _decoded(data) if isinstance(data, bytes) else data
    text = CONTROL.sub(_kept, COLOUR.sub("", _unwrapped(text.lstrip("\ufeff").replace("\r\n", "\n"))))
    service = next((name for name, (word, form) in SERVICES.items() if word in text and form.search(text)), "")
    containers = _containers(text) if " exited with code " in text else frozenset()
    text = BEFORE_A_LINE.sub("", text)
    if not text.strip():
        raise UnreadableLog(f"There is nothing to read: {source} is empty. Paste the log from its first line on.")
    return LogText(text, _shapes(text), [match.start() for match in re.finditer("\n", text)], service, containers)


def _containers(text: str) -> frozenset[str]:
    """The names of docker compose before lines of a program that runs models."""
    names: set[str] = set()
    for match in COMPOSED.finditer(text):
        if match[1] not in names and OF_A_MODEL.search(text, match.end(), match.end() + FIRST_WORDS):
            names.add(match[1])
    return frozenset(names)


def _shapes(text: str) -> bytes:
    """The different lines of a text, which in a long log are few."""
    return b"\n".join(dict.fromkeys(_shape(text).split(b"\n")))


def _shape(text: str) -> bytes:
    """A text with each number as one 0; a part of the text keeps being a part of it."""
    shape = text.encode("utf-8", "surrogatepass").translate(DIGITS)
    for _ in range(5):
        shape = shape.replace(b"00", b"0")
    return shape


def _unwrapped(text: str) -> str:
    """The messages of a log with one JSON object on each line, as Docker and llama.cpp write it; else the text."""
    if not text.startswith('{"'):
        return text
    return "\n".join(line if line.startswith(OF_2024) else _message(line) for line in text.split("\n"))


OF_2024 = '{"function":"'
"""A record of the server of early 2024, whose other fields say as much as its message"""


def _message(line: str) -> str:
    try:
        record = flat_json(line)
        message = record.get("log", record.get("msg"))
    except (ValueError, AttributeError, RecursionError):
        return line
    return message.rstrip("\n").replace("\n", " ") if isinstance(message, str) else line


def _kept(control: re.Match[str]) -> str:
    """A carriage return before a line end goes, one inside a line ends it for the reader's eye; other codes go."""
    return " " if "\r" in control[0] else ""


def _named_file(log: str | bytes) -> Path | None:
    name = "" if isinstance(log, bytes) else log.strip()
    if not name or "\n" in name or len(name) > LONGEST_NAME or "\0" in name:
        return None
    try:
        return Path(name) if Path(name).is_file() else None
    except (OSError, ValueError):
        return None


def _bytes_of(path: Path) -> bytes:
    """The content of a file; of a model, which may be large, only its beginning."""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            return start if GGUF.match(start.decode("latin-1")) else start + file.read()
    except OSError as error:
        raise UnreadableLog(f"{path} cannot be read: {error.strerror}. Give the file of a log, or its text.") from None


def _decoded(data: bytes) -> str:
    """UTF-16 as PowerShell's redirection writes it, else UTF-8; what is neither is replaced, never refused."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    if data[1:200:2].count(0) > len(data[:200]) // 4:
        return data.decode("utf-16-le", "replace")
    return data.decode("utf-8", "replace")
