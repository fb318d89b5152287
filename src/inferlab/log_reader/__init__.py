"""Explains a log of llama.cpp, llama-server, llama-cpp-python, Ollama or LM Studio: what it states, and what is wrong.

    explain("server.log")      # a file, or the text of a log

Facts come from the lines of the last load. Findings follow the tables data/log_findings/*.toml. Nothing is guessed:
what a log does not say is None, and named in `unknown`.
"""

from __future__ import annotations

from pathlib import Path

from inferlab.errors import UnreadableLog
from inferlab.log_reader.observed import UNKNOWN_PROGRAM, Observed
from inferlab.log_reader.report import Layers, LogFinding, LogReport, Rate
from inferlab.log_reader.rules import findings_in, message_in
from inferlab.log_reader.text import Line, read
from inferlab.log_reader.unknown import unknown_in

__all__ = ["Layers", "Line", "LogFinding", "LogReport", "Rate", "explain", "report_of"]


def explain(log: str | bytes | Path) -> LogReport:
    """What a log says and what is wrong in it.

    log  a path, or the content of a log; one line of text is a file's name if there is such a file

    Takes time in proportion to the log. Raises UnreadableLog for a file that cannot be read, an empty text, and a text
    without any line that a known program writes.
    """
    return report_of(Observed(read(log)))


def report_of(seen: Observed) -> LogReport:
    """The report of a log that was read. Raises UnreadableLog where no known program wrote a line of it."""
    findings = findings_in(seen)
    if seen.program.name == UNKNOWN_PROGRAM and not findings and not message_in(seen):
        raise UnreadableLog(_no_log(seen))
    return LogReport(
        program=seen.program,
        model=seen.model,
        context=seen.context,
        devices=seen.devices,
        buffers=seen.buffers,
        layers=seen.layers,
        prompt=seen.rates[0],
        answer=seen.rates[1],
        findings=findings,
        unknown=tuple(unknown_in(seen)),
        n_loads=seen.load.n_loads,
        has_draft=seen.load.has_draft,
        n_lines=seen.log.n_lines,
        breakdown=seen.breakdown,
    )


def _no_log(seen: Observed) -> str:
    """One line may be the name of a file that does not exist; the message shows its beginning."""
    lines, start = seen.log.n_lines, seen.log.text.strip().split("\n")[0][:80]
    return (
        f"There is nothing to read: none of {lines:,} lines, which begin with {start!r}, is one that llama.cpp, "
        "llama-server, llama-cpp-python, Ollama or LM Studio writes. Give the file of a log, or its text from the "
        "first line on."
    )
