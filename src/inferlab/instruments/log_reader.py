"""Why is it slow? A pasted log in, what it says and what is wrong in it out."""

from __future__ import annotations

from importlib.resources import files as package_files
from typing import Any

from inferlab.instruments.answer import Answer
from inferlab.instruments.dropped import DroppedFiles
from inferlab.instruments.forms import form as whole_form
from inferlab.instruments.forms import group, text_field
from inferlab.instruments.log_memory_view import memory_view
from inferlab.instruments.log_view import log_view, summary
from inferlab.log_reader import LogReport
from inferlab.results.log_memory import explain_and_derive

DEFAULTS = {"log": ""}
LABEL = "A log of llama.cpp, llama-server, llama-cpp-python, Ollama or LM Studio, from its first line on"


def form() -> list[Any]:
    """A place for a log, and a choice of a file that fills it."""
    return whole_form(
        group("Your log", *text_field(LABEL, "log", "Paste a log here, or drop a file.", ".log,.txt,text/plain"))
    )


def answer(question: dict[str, str], files: DroppedFiles) -> Answer:
    """What the log says; an empty question is answered with the example. Raises UnreadableLog for what is no log."""
    pasted = question.get("log", "")
    example = None if pasted else example_log()  # blanks alone are an empty file, and refused as such
    log = (example or pasted).encode("utf-8", "replace")  # bytes: a text could be a file's name
    report, derived = explain_and_derive(log)
    memory = memory_view(derived) if derived and derived.rows else None
    view = log_view(report, example, memory, derived.sentences if derived and not derived.rows else ())
    return Answer(
        state(report),
        summary(report, example),
        view,
        report.to_dict() | {"derived": derived.to_dict() if derived else None},
    )


def state(report: LogReport) -> str:
    """How the first line is marked: "no" where something failed, "unsure" where something is slow or not known."""
    severities = {finding.severity for finding in report.findings}
    if "fault" in severities:
        return "no"
    return "yes" if report.buffers and not severities else "unsure"


def example_log() -> str:
    """Lines of a run of llama-server with the embedded model, of which one half of the layers lies in RAM."""
    return (package_files("inferlab") / "data" / "logs" / "example.log").read_text(encoding="utf-8")
