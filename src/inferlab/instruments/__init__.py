"""Instruments: a form whose values are a question, and its answer as a view, for a page and for JupyterLab.

Each module has `form()`, the form as a view with its defaults, and `answer(question, files)`, an `Answer`.
A question has the values of the form by the names of its fields, all texts, as a browser gives them and a link
holds them. On the built site this package runs in the browser itself (`handbook.delivery.instruments`); in JupyterLab
it runs in the kernel (`widgets.instrument`). Both have the same front end, `instrument.js`.
"""

from __future__ import annotations

from dataclasses import asdict
from types import ModuleType
from typing import Any

from inferlab.errors import InferlabError
from inferlab.instruments import addressed, browser_bench, log_reader, planner, views, your_numbers
from inferlab.instruments.answer import Answer
from inferlab.instruments.dropped import DroppedFiles

UNEXPECTED = "This should not happen."
INSTRUMENTS: dict[str, ModuleType] = {
    "planner": planner,
    "log-reader": log_reader,
    "browser-bench": browser_bench,
    "your-numbers": your_numbers,
}


def answered(instrument: str, question: dict[str, str], files: DroppedFiles) -> dict[str, Any]:
    """The answer as plain data; a question that cannot be answered has the reason as its answer."""
    try:
        answer = INSTRUMENTS[instrument].answer(question, files)
    except InferlabError as refusal:
        answer = Answer("refused", "No answer yet: something is missing or wrong.", views.error(str(refusal)))
    except Exception as fault:  # shown, because nobody sees the traceback of a page's worker or of a widget's kernel
        text = f"{UNEXPECTED} Please report it, with the question: {type(fault).__name__}: {fault}"
        answer = Answer("refused", "No answer: this is a fault of the instrument.", views.error(text))
    return asdict(answer)


def sent(
    files: DroppedFiles, name: str, size: int, start: int, data: bytes, whole: bool = False, source: str = ""
) -> dict[str, Any]:
    """What to tell a front end that sent a slice of a file: which slice comes next, that all is read, or why not.

    whole   the file is kept, as a small one of results; else it is a model, whose header is enough
    source  the address of the file; "" for one that was dropped
    """
    files.came_from(name, source)
    try:
        following = (files.keep if whole else files.add)(name, size, start, data)
    except InferlabError as refusal:
        return {"kind": "refused", "name": name, "text": str(refusal)}
    if following is None:
        return {"kind": "read", "name": files.path(name).name}
    return {"kind": "more", "name": name, "start": following[0], "end": following[1]}


def heard(files: DroppedFiles, message: dict[str, Any]) -> dict[str, Any]:
    """What a front end does next about an address that its reader typed."""
    return addressed.heard(files, message)
