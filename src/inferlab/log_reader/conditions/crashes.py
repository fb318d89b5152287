"""The program or its load ended, and error lines whose cause no other rule knows."""

from __future__ import annotations

import re

from inferlab.log_reader.conditions.found import MOST_LINES, Found
from inferlab.log_reader.observed import UNKNOWN_PROGRAM, Observed

LOAD_FAILED = (
    "error loading model: ",
    "failed to initialize the context: ",  # src/llama-context.cpp:3899
    'msg="error loading llama server"',  # ollama server/sched.go:734
    'msg="Load failed"',  # ollama server/sched.go:641
    'msg="model request too large for system"',  # ollama v0.12.3 llm/server.go:539
    'msg="model is too large for system memory"',  # ollama server/sched.go
    "llama runner process has terminated",  # ollama v0.12.3 llm/server.go:1261
    "llama runner process no longer running",
    "llama-server process has terminated",  # ollama llm/llama_server.go:1306
    "llama-server process no longer running",
    ": failed to load model",
    "failed to create context with model",
    "failed to create_context with model",
    "Failed to load model from file: ",  # llama_cpp/_internals.py:62
    "Failed to create llama_context",
    "[Endpoint=loadModel] Error in channel handler",  # lmstudio-bug-tracker#417, #914
    "exiting due to model loading error",
    "exiting due to HTTP server error",
)
"""What programs write when a load failed, the line that is most likely to say why first."""


LOADED = (
    "llama_server: model loaded",
    "main: model loaded",
    "all slots are idle",
    "eval time =",
    "runner started in ",
    "llama-server started in ",
)


def load_failed(seen: Observed) -> Found | None:
    """A load that ended in an error, and not only the simulation of `-fit` or a first try of Ollama."""
    text, start = seen.log.text, seen.load.start
    last = max(text.rfind(needle, start) for needle in LOAD_FAILED)
    if last < start or any(seen.log.has(word, last) for word in LOADED):
        return None
    return Found((next(line for needle in LOAD_FAILED if (line := seen.log.last(needle, start))),))


ERROR_LINES = {
    "level=ERROR": re.compile(r"level=ERROR source="),  # Ollama
    " E ": re.compile(r"\d\.\d\d\.\d{3}\.\d{3} E "),  # common/log.cpp
    "[GIN] ": re.compile(r"\| 5\d\d \|"),  # a status of Ollama's server
    "[error] [LMSInternal]": re.compile(r"\[error\]"),  # lmstudio-bug-tracker#914
}


def error_lines(seen: Observed) -> Found | None:
    """Lines that the program itself marks as errors."""
    if seen.program.name == UNKNOWN_PROGRAM:
        return None
    lines = [
        line for needle, pattern in ERROR_LINES.items() for line in seen.lines(needle) if pattern.search(line.text)
    ]
    return Found(tuple(lines[:MOST_LINES])) if lines else None


CONDITIONS = (
    load_failed,
    error_lines,
)
