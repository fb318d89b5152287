"""What followed a line: whether a model was loaded, whether requests were answered, whether the program began anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from inferlab.log_reader.runs import LOAD_STARTS, RUNNER_STARTS
from inferlab.log_reader.text import Line, LogText

LOADED = (
    "llama_server: model loaded",  # tools/server/server.cpp:485
    "main: model loaded",
    "llama_server: listening on http",  # tools/server/server.cpp:513
    "server is listening on http",  # 2024 and 2025, when another line names the port before the load
    "all slots are idle",  # tools/server/server-context.cpp:2800
    "runner started in ",  # ollama v0.12.3 llm/server.go
    "llama-server started in ",  # ollama llm/llama_server.go
    "generate: n_ctx = ",  # tools/completion/completion.cpp:456
    "Model metadata: {",  # llama_cpp/llama.py:500
    "Load Text Model OK: True",  # koboldcpp
    "eval time =",
)
"""What programs write once a model is loaded and its context made."""
TIMINGS = "eval time ="
"""Of a request that was finished, or of a run that came to its end."""
TIMED = re.compile(r"eval time = {1,20}\d{1,12}\.\d\d ms /")
BENCHED = re.compile(r"^\|.{1,300}\| {1,20}(?:pp|tg)\d{1,7}\b.{0,60}\| {1,20}\d{1,9}\.\d{1,4} ± ")
"""A row of llama-bench's table, tools/llama-bench/llama-bench.cpp: a test that was finished"""
ANSWER_OF_OLLAMA = re.compile(
    r'^.{0,99}\[GIN\] .{1,60}\| 200 \|.{1,80}POST +"/(?:api/(?:chat|generate|embed)|v1/(?:chat|compl|embed|mess|resp))'
)
MOST_STEPS = 200
"""Lines that are looked at when a string stands in other text, such as an answer."""
MOST_FIRST, MOST_LAST = 30, 150


def place_of(log: LogText, number: int) -> int:
    """Where a line begins, by its number from 1."""
    return log.line_ends[number - 2] + 1 if number > 1 else 0


def answered_after(log: LogText, at: int) -> bool:
    """Whether timings of a finished request follow."""
    return last_answer(log) > at


def loaded_after(log: LogText, at: int) -> bool:
    """Whether a load that was under way, or a later one, came to its end after a place of the text."""
    last = _last_loaded(log)
    return last > at and (begins_anew(log, at, last) or not _loaded_before(log, at))


def went_on(log: LogText, at: int) -> bool:
    """Whether the program loaded its model or finished a request after a place of the text."""
    return answered_after(log, at) or loaded_after(log, at)


def works_again(log: LogText, at: int) -> bool:
    """Whether a new start of the program loaded a model after a place of the text."""
    last = max(_last_loaded(log), last_answer(log))
    return last > at and begins_anew(log, at, last)


def begins_anew(log: LogText, start: int, end: int) -> bool:
    """Whether a line that begins a load stands between two places."""
    return any(log.text.find(needle, start, end) >= 0 for needle in (*LOAD_STARTS, *RUNNER_STARTS))


def went_on_between(log: LogText, start: int, end: int) -> bool:
    """Whether a model was loaded, or a request finished, between two places."""
    return any(log.text.find(needle, start, end) >= 0 for needle in LOADED)


def answered_by_ollama_after(log: LogText, at: int) -> bool:
    """Whether Ollama says that it answered a request."""
    return _last_of(log, "[GIN] ", ANSWER_OF_OLLAMA) > at


ANSWERS_OF_LM_STUDIO = ("Finished streaming response", "Generated prediction: ")
"""lmstudio-bug-tracker#297, #1599"""
PULLED = re.compile(r"^success\s*$", re.MULTILINE)
"""The last line of `ollama pull` and `ollama create`: cmd/cmd.go"""


def answered_by_server_after(log: LogText, at: int) -> bool:
    """Whether a server says that it answered, with no timings, or a command of Ollama's that it succeeded."""
    if answered_by_ollama_after(log, at) or any(log.has(words, at) for words in ANSWERS_OF_LM_STUDIO):
        return True
    return PULLED.search(log.text, at) is not None


def has_benchmark(log: LogText) -> bool:
    """Whether a test of llama-bench was finished."""
    return _last_of(log, " ± ", BENCHED) >= 0


def last_answer(log: LogText) -> int:
    """Where the last timings of a finished request or test stand, -1 without any."""
    return max(_last_of(log, TIMINGS, TIMED), _last_of(log, " ± ", BENCHED))


def outer_lines(log: LogText, needle: str) -> Iterator[Line]:
    """The first and the last lines with a string: of a message that repeats itself these are enough."""
    yield from islice(log.lines_with(needle), MOST_FIRST)
    end: int | None = None
    for _ in range(MOST_LAST):
        line = log.last(needle, 0, end)
        if line is None:
            return
        yield line
        end = place_of(log, line.number)


def _loaded_before(log: LogText, at: int) -> bool:
    """Whether the load before a place had come to its end there."""
    start = max(log.text.rfind(needle, 0, at) for needle in (*LOAD_STARTS, *RUNNER_STARTS))
    return went_on_between(log, max(start, 0), at)


def _last_loaded(log: LogText) -> int:
    """Where the last sign of a load that came to its end stands, -1 without any."""
    return max(log.text.rfind(needle) if log.has(needle) else -1 for needle in LOADED)


def _last_of(log: LogText, needle: str, pattern: re.Pattern[str]) -> int:
    """Where the last line with a string and a pattern begins, -1 without any."""
    end: int | None = None
    for _ in range(MOST_STEPS):
        line = log.last(needle, 0, end)
        if line is None:
            break
        at = place_of(log, line.number)
        if pattern.search(line.text):
            return at
        end = at
    return -1
