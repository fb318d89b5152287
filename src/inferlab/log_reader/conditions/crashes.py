"""The program or its load ended, and error lines whose cause no other rule knows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice

from inferlab.log_reader.conditions.afterwards import (
    LOADED,
    answered_after,
    answered_by_ollama_after,
    begins_anew,
    last_answer,
    loaded_after,
    outer_lines,
    place_of,
    went_on,
    works_again,
)
from inferlab.log_reader.conditions.found import FEWEST_REQUESTS, MOST_LINES, Found
from inferlab.log_reader.observed import UNKNOWN_PROGRAM, Observed
from inferlab.log_reader.text import Line, LogText

__all__ = ["LOADED"]

BEFORE = (
    r"^(?:\[[^\[\]]{1,80}\] {0,4}"  # a process below a router, LM Studio's date
    r"|\d{1,4}(?:[-.:/T,]\d{1,9}){2,8}(?:Z|[+-]\d\d:?\d\d)? {1,4}"  # a time stamp, common/log.cpp
    r"|[A-Z] {1,4}"  # a level, common/log.cpp
    r"|[A-Z][a-z]{2} [ \d]\d (?:\d\d:){2}\d\d \S{1,80} [\w./-]{1,60}: "  # syslog
    r"|llama\.cpp abort:\d{1,6}: "  # LM Studio, lmstudio-bug-tracker#1074
    r"|\.{2,120}"  # the dots of a load, src/llama.cpp:331
    r"|(?:Processing Prompt|Generating)(?: \[\w{1,20}\])? \(\d{1,9} / \d{1,9} tokens\) {0,4}"  # koboldcpp#1711
    r"|(?:Error|ERROR|error): {1,4}){0,5}"
)
FREE = r'[^"“”`{}?\\]{0,300}?'
"""Any text before the words, but no quotation, no JSON and no question."""
SAID = (
    rf"(?:{FREE}|time=\S{{1,40}} level=[A-Z]{{4,5}} source=\S{{1,60}} "
    r'msg="(?:[^"]{1,120}"(?: \w{1,20}=\S{1,200}){0,4} error="?)?[^"]{0,200}?)'
)
"""The same, or the message or the error of a line of Ollama."""
IN_AN_ERROR = (
    rf"^(?:{SAID} process (?:has terminated|no longer running):? {{0,2}}(?:-?\d{{1,10}} |exit status \S{{1,20}}:? )?"
    r"|Error: .{0,80}while running the model: )"
)
"""Where Ollama repeats the words of its runner: llm/llama_server.go:1306, ollama#9247."""


@cache
def _compiled(form: str) -> re.Pattern[str]:
    return re.compile(rf"(?:{BEFORE}|{IN_AN_ERROR})(?:{form.replace('<free>', FREE).replace('<said>', SAID)})")


def crash(seen: Observed, needles: tuple[str, ...], forms: tuple[str, ...], ends: bool) -> Found | None:
    """The first line of a crash after which the program did not go on, else the last one that it survived.

    needles  strings, of which each such line has one
    forms    what the line says, the most telling first; its groups `words` and `where` (a file and line) are told
    ends     whether a program cannot go on after such a line, so that only another start can follow; where it goes on
             without one, the line is text of another kind, such as an answer. What it can survive is told of the last
             load only, and of all attempts of Ollama
    """
    crashes = _crashes(seen.log, needles, forms)
    if not crashes:
        return None
    last = max(crashes, key=lambda pair: pair[0].number)
    at = place_of(seen.log, last[0].number)
    if not ends and at < seen.load.start and seen.program.key != "ollama":
        return None
    if not went_on(seen.log, at):
        answered = last_answer(seen.log)
        return _told(seen.log, *next(pair for pair in crashes if place_of(seen.log, pair[0].number) > answered))
    return _told(seen.log, *last, overcome=True) if not ends or works_again(seen.log, at) else None


def _crashes(log: LogText, needles: tuple[str, ...], forms: tuple[str, ...]) -> list[tuple[Line, re.Match[str]]]:
    """The lines that have one of the forms, those of the first form before all others."""
    lines = {line.number: line for needle in needles for line in outer_lines(log, needle)}
    found: dict[int, tuple[Line, re.Match[str]]] = {}
    for form in forms:
        for number in sorted(lines):
            match = None if number in found else _compiled(form).search(lines[number].text)
            if match and not (_ended_on_purpose(log, lines[number], match[0]) or _of_others(log, lines[number])):
                found[number] = lines[number], match
    return list(found.values())


BY_HAND = re.compile(r"0x[cC]000013[aA]|\b3221225786\b|-1073741510\b|signal: (?:terminated|interrupt)\b")
"""Ctrl+C as Windows spells it, STATUS_CONTROL_C_EXIT, and the signals that ask a program to end"""
BY_FORCE = re.compile(r"(?:\b137|-9|9/KILL)$")
STOPPING = ("cleaning up before exit", "Gracefully stopping", "'stop-sigterm' timed out")
"""tools/server/server.cpp:412, docker compose, systemd"""
OF_A_CHILD = re.compile(r"instance name=(\S{1,200}) exited with status")
STOPS = ("stopping model instance name={}", "force-killing model instance name={}", "model name={} is still loading,")
SPAWNS = "spawning server instance with name={}"
"""tools/server/server-models.cpp:1245, 232, 1249, 1154"""
NEAR = 200_000


def _ended_on_purpose(log: LogText, line: Line, words: str) -> bool:
    """Whether somebody stopped the program, or a router its child, so that its end is no crash."""
    at = place_of(log, line.number)
    start = max(0, at - NEAR)
    if match := OF_A_CHILD.search(words):
        spawned = log.text.rfind(SPAWNS.format(match[1]), start, at)
        stop = rf"(?:{'|'.join(STOPS)})(?!\S)".replace("{}", re.escape(match[1]))
        return re.compile(stop).search(log.text, max(start, spawned), at) is not None
    stops = max(log.text.rfind(needle, start, at) for needle in STOPPING) if BY_FORCE.search(words) else -1
    return BY_HAND.search(words) is not None or (stops >= 0 and not begins_anew(log, stops, at))


EXITED = re.compile(r"^([\w.-]{1,100}) exited with code")
FENCE = "\n```"


def _of_others(log: LogText, line: Line) -> bool:
    """Whether a line is about another container of docker compose, or of an answer that a program printed."""
    container = EXITED.search(line.text)
    if container and log.containers and not container[1].endswith(tuple(log.containers)):
        return True
    return _in_an_answer(log, place_of(log, line.number))


def _in_an_answer(log: LogText, at: int) -> bool:
    """Whether a code fence is open that began after the load; one before it is of the page that shows the log."""
    if not log.has("```"):
        return False
    loaded = max(log.text.rfind(needle, 0, at) if log.has(needle) else -1 for needle in LOADED)
    if loaded < 0 or log.text.find("```", 0, loaded) >= 0:
        return False
    return log.text.count(FENCE, loaded, at) % 2 == 1


def _told(log: LogText, line: Line, match: re.Match[str], overcome: bool = False) -> Found:
    """The words of a crash and the place in its source, from its line and those below it."""
    words, where, row = (match.groupdict().get(name) or "" for name in ("words", "where", "row"))
    lines = [line]
    for after in _following(log, line):
        if not where and (place := PLACE.search(after.text)):
            where = f"{place[1] or place[3]}:{place[2] or place[4]}"
        elif "throwing an instance" in line.text and (said := WHAT.search(after.text)):
            words = f"{words}: {said[1]}"
        else:
            continue
        lines.append(after)
    place_text = f" ({FOLDERS.sub('', where)}{f':{row}' if row else ''})" if where else ""
    values = {"words": f"`{_one_line(words)}`{_meaning(words)}", "place": place_text}
    return Found(tuple(dict.fromkeys(lines)), values, overcome)


WHAT = re.compile(r"what\(\): {1,4}(\S.{0,160})")
FOLDERS = re.compile(r"^.{0,300}[/\\]")
PLACE = re.compile(
    r"in function .{1,200}? at (\S.{0,250}?):(\d{1,6})\s*$|Exception caught at file:(.{1,250}?), line:(\d{1,6})"
)
"""The line after an error of CUDA, ROCm or SYCL: ggml-cuda.cu:106, ggml-sycl/common.hpp:83"""
LINES_AFTER = 3


def _following(log: LogText, line: Line) -> Iterator[Line]:
    """The line itself and those below it, which say where."""
    for number in range(line.number, min(line.number + LINES_AFTER, log.n_lines) + 1):
        yield log.line_at(place_of(log, number)) if number > line.number else line


def _one_line(words: str) -> str:
    """The words in one pair of marks, with a quotation in them whole."""
    kept = words.replace("`", "'").strip(" .,:;")
    return (kept if kept.count('"') % 2 == 0 and not kept.startswith('"') else kept.strip(" \"'.,:;"))[:200]


EXITS = {
    0xC0000005: "it used memory that is not its own",
    0xC0000409: "it ended itself, as after a failed assertion",
    0xC00000FD: "its stack overflowed",
    0xC0000374: "its heap was damaged",
    0xC0000135: "a DLL is missing",
    0xC0000139: "a DLL is of another version",
    0xC0000142: "a DLL could not be started",
    0xE06D7363: "an exception was not caught",
    134: "it ended itself, as after a failed assertion",
    135: "it used memory that does not exist",
    139: "it used memory that is not its own",
    -6 & 0xFFFFFFFF: "it ended itself, as after a failed assertion",
    -7 & 0xFFFFFFFF: "it used memory that does not exist",
    -11 & 0xFFFFFFFF: "it used memory that is not its own",
}
"""Windows' codes, in C's headers as STATUS_…; of Linux 128 and the number of the signal, Python's below 0."""


def _meaning(words: str) -> str:
    """What an exit code means, in Windows' three spellings and a shell's."""
    for text in re.findall(r"0x[0-9a-fA-F]{8}|-?\d{3,10}|-\d{1,2}\b", words):
        code = int(text, 16 if "x" in text else 10) & 0xFFFFFFFF
        if code in EXITS:
            return f", which means that {EXITS[code]}"
    return ""


def python_exception(seen: Observed) -> Found | None:
    """Python's last traceback; not that of a program that was interrupted, nor of objects that go at its end."""
    end: int | None = None
    for _ in range(MOST_TRACEBACKS):
        start = seen.log.last("Traceback (most recent call last):", 0, end)
        if start is None or went_on(seen.log, place_of(seen.log, start.number)):
            return None
        end = place_of(seen.log, start.number)
        before = seen.log.line_at(place_of(seen.log, max(1, start.number - 1)))
        if not before.text.startswith("Exception ignored in"):
            return _exception(seen.log, start)
    return None


MOST_TRACEBACKS = 20


def _exception(log: LogText, start: Line) -> Found | None:
    """The line below a traceback's frames, which are indented; in a group of exceptions, after its bar."""
    grouped = start.text.startswith(("| ", "+ "))
    for number in range(start.number + 1, min(start.number + MOST_FRAMES, log.n_lines) + 1):
        at = place_of(log, number)
        line = log.line_at(at)
        if (line.text[2:3] if grouped else log.text[at : at + 1]).isspace():
            continue
        words = line.text.removeprefix("| ")
        known = EXCEPTION.match(words) and not OF_AN_END.match(words)
        return Found((start, line), {"words": f"`{_one_line(words)}`", "place": ""}) if known else None
    return None


EXCEPTION = re.compile(
    r"(?:\w{1,40}\.){0,5}\w{0,40}(?:Error|Exception|Timeout)(?:: .{0,200})?"
    r"|(?:(?:\w{1,40}\.){1,6}(?:[A-Z]\w{1,60}|error|timeout|gaierror)|[A-Z][a-z]{1,40}[A-Z]\w{1,40})(?:: |$)"
)
"""A class of exceptions: a usual name, or one of a module such as queue.Empty, or one like StopIteration."""
OF_AN_END = re.compile(r"(?:KeyboardInterrupt|SystemExit|GeneratorExit)\b")
MOST_FRAMES = 300
KILLED = re.compile(r'msg="llama\S{0,10} (?:runner )?terminated" error="signal: killed"')
UNDER_WAY = re.compile(r'\[GIN\] .{1,60}\| 500 \||error="[^"]{0,300}\bEOF\b')
LINES_AROUND = 6


def runner_killed(seen: Observed) -> Found | None:
    """Ollama's runner, ended by a signal while a request was under way; it ends them so itself to unload a model."""
    line = seen.log.last('terminated" error="signal: killed"')
    if line is None or not KILLED.search(line.text):
        return None
    numbers = range(max(1, line.number - LINES_AROUND), min(line.number + LINES_AROUND, seen.log.n_lines) + 1)
    around = (seen.log.line_at(place_of(seen.log, number)) for number in numbers)
    failed = next((other for other in around if UNDER_WAY.search(other.text)), None)
    return Found((line, failed)) if failed else None


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
    "Failed to create context with model",
    "failed to create_context with model",
    "Failed to load model from file: ",  # llama_cpp/_internals.py:62
    "Failed to create llama_context",
    "[Endpoint=loadModel] Error in channel handler",  # lmstudio-bug-tracker#417, #914
    "Error in channel handler: Error: Error loading model",
    "exited before becoming healthy",  # lmstudio-bug-tracker#2190
    "all backends returned error",  # LocalAI#950
    "could not load model: rpc error",
    "Load Text Model OK: False",  # koboldcpp
    "Error loading the model with llama.cpp:",  # textgen
    "exiting due to model loading error",
    "exiting due to HTTP server error",
)
"""What programs write when a load failed, the line that is most likely to say why first."""
SUMMARIES = re.compile(
    r"error loading model: (?:llama_model_loader: )?failed to load model from"
    r"|failed to load model|failed to create_?.?context|exiting due to|Failed to load model|Failed to create llama"
    r"|Error loading the model with llama\.cpp: Server process|Load Text Model OK|could not load model"
    r"|compute buffer allocation failed, retrying|failed to fit params"
    r"|terminated(?:: |\" error=\")(?:exit status|signal: )"
)
"""What only repeats that it failed."""
CAUSES = re.compile(r"\b(?:[Ee]rror|ERROR|[Ff]ailed|[Uu]nable|[Cc]annot|[Cc]ould not|[Ii]nvalid|[Uu]nknown|missing)\b")
MOST_LINES_OF_A_CAUSE = 60


def load_failed(seen: Observed) -> Found | None:
    """A load that ended in an error, with its first line that says why; not the simulation of `-fit`."""
    said = [line for needle in LOAD_FAILED if (line := seen.log.last(needle, seen.load.start))]
    if not said or "context canceled" in (last := max(said, key=lambda line: line.number)).text:
        return None
    if went_on(seen.log, place_of(seen.log, last.number)):
        return Found((last,), overcome=True) if seen.program.key == "ollama" else None
    cause = _first_cause(seen.log, seen.load.start, last.number)
    return Found((cause,), resort=KNOWS_A_CAUSE) if cause else Found((said[0],))


KNOWS_A_CAUSE = 3
"""A line that says why knows more than the end of a program, and less than the rules of a crash's kind."""


def _first_cause(log: LogText, start: int, number: int) -> Line | None:
    """The first error line of those at the end of a load that says a cause."""
    first = max(log.line_at(start).number, number - MOST_LINES_OF_A_CAUSE)
    lines = (log.line_at(place_of(log, before)) for before in range(first, number + 1))
    return next((line for line in lines if _says_a_cause(line.text)), None)


def _says_a_cause(text: str) -> bool:
    """An error line of the loader, and neither a warning, nor one that only repeats that it failed."""
    of_a_load = any(needle in text for needle in LOAD_FAILED)
    marked = re.search(rf"{BEFORE}[\w:~<>]{{1,60}}: (?!- kv)|level=ERROR", text) and not HARMLESS.search(text)
    return bool((of_a_load or marked) and CAUSES.search(text) and not SUMMARIES.search(text))


HARMLESS = re.compile(r"^\d\S{0,30} [WID] |[Ww]arning|load_backend: |general\.|tokenizer\.|print_info: ")


ERROR_LINES = {
    "level=ERROR": re.compile(  # Ollama; llm/llama_server.go:2581 ends a runner by that signal to unload its model
        r'level=ERROR source=(?!\S{1,40} msg="llama[- ]\w{1,8} terminated" '
        r'error="signal: (?:killed|terminated|interrupt)")'
    ),
    " E ": re.compile(r"\d\.\d\d\.\d{3}\.\d{3} E "),  # common/log.cpp
    "[GIN] ": re.compile(r"\| 5\d\d \|"),  # a status of Ollama's server
    "[error] [LMSInternal]": re.compile(r"\[error\]"),  # lmstudio-bug-tracker#914
    "[ERROR]": re.compile(r"^(?:\S{8,10} \S{8,12} {1,3})?\[ERROR\]"),  # lmstudio-bug-tracker#932
    "Compute error.": re.compile(rf"{BEFORE}srv .{{0,40}}Compute error\."),  # tools/server/server-context.cpp:3680
    "code() failed: ": re.compile(rf"{BEFORE}srv .{{0,40}}code\(\) failed: "),  # tools/server/server-context.cpp:2872
    "send_error: ": re.compile(rf"{BEFORE}srv .{{0,40}}error: "),  # tools/server/server-context.cpp
    " failed to ": re.compile(
        rf"(?!\d\S{{0,30}} [WID] ){BEFORE}(?:slot|srv) .{{0,80}}failed to "
        "(?!load prompt from cache|find free space|initialize speculative)"
    ),
}


def error_lines(seen: Observed) -> Found | None:
    """Lines that the program itself marks as errors, without those of clients that went away."""
    lines = _marked(seen)
    return None if all(map(_only_a_status, lines)) else _as_error(seen, lines)


def requests_refused(seen: Observed) -> Found | None:
    """Requests that Ollama answered with an error, of which the log has no more than the status."""
    lines = _marked(seen)
    if not lines or not all(map(_only_a_status, lines)):
        return None
    paths = sorted({match[1] for line in lines if (match := STATUS.search(line.text))})
    n = "a request" if len(lines) == 1 else f"{len(lines)} requests"
    limits = [match[1] for line in lines if (match := ROUND_TIME.search(line.text))]
    waited = f" It came after {limits[0]}, which looks like the time limit of a client or a proxy." if limits else ""
    values = {"requests": n, "paths": f" ({', '.join(paths[:MOST_LINES])})" if paths else "", "waited": waited}
    return replace(_as_error(seen, lines), values=values)


STATUS = re.compile(r'\| 5\d\d \|.{1,80}? "(/[\w./-]{1,60})"')
ROUND_TIME = re.compile(r"\| 5\d\d \| {1,16}(\d{1,2}m0s|30\.0\d{1,9}s) \|")


def _only_a_status(line: Line) -> bool:
    return "[GIN] " in line.text


def _marked(seen: Observed) -> list[Line]:
    if seen.program.name == UNKNOWN_PROGRAM:
        return []
    left = {line.number for line in _left(seen)}
    found = {
        line.number: line
        for needle, pattern in ERROR_LINES.items()
        for line in seen.lines(needle)
        if line.number not in left and pattern.search(line.text)
    }
    return [found[number] for number in sorted(found)]


def _as_error(seen: Observed, lines: list[Line]) -> Found:
    return Found(tuple(lines[:MOST_LINES]), overcome=len(lines) < FEWEST_REQUESTS and _answers_follow(seen, lines[-1]))


def _answers_follow(seen: Observed, line: Line) -> bool:
    at = place_of(seen.log, line.number)
    after_a_load = seen.program.key != "ollama" and loaded_after(seen.log, at)
    return after_a_load or answered_after(seen.log, at) or answered_by_ollama_after(seen.log, at)


ILLEGAL = (
    "Illegal instruction",
    "illegal instruction",
    "illegal hardware instruction",  # zsh
    "exit status 0xc000001d",
    "SIGILL",
    "0xC000001D",  # STATUS_ILLEGAL_INSTRUCTION of Windows, also as a number
    "3221225501",
    "-1073741795",
    "xit code: -4",  # Python, textgen#7188
    "xit code -4",
    "xit code: 132",
    "xit code 132",
    "xited with code 132",
)
LONGER_CODE = re.compile(r"xit(?:ed with)? code:? (?:-4|132)\d")


def illegal_instruction(seen: Observed) -> Found | None:
    """The processor met an instruction that it lacks; the same words of CUDA are about the GPU."""
    lines = (line for needle in ILLEGAL for line in islice(seen.lines(needle), MOST_LINES))
    return next((Found((line,)) for line in lines if not _another_code(line.text)), None)


def _another_code(text: str) -> bool:
    return "illegal instruction was encountered" in text or bool(LONGER_CODE.search(text))


CLIENT_LEFT = ("client closing the connection", "context canceled", "| 499 |", "client connection closed before")
"""ollama llm/llama_server.go:1538, 1301; server/routes.go:3112"""
OF_LM_STUDIO = "Client disconnected. Stopping generation"
LINES_OF_A_REQUEST = 4


def client_left(seen: Observed) -> Found | None:
    """Requests that a client of Ollama or LM Studio ended before their answer was complete."""
    given_up = {line.number + n for line in _given_up(seen) for n in range(LINES_OF_A_REQUEST)}
    lines = [line for line in _left(seen) if line.number not in given_up]
    name = seen.program.name
    return Found(tuple(lines[:MOST_LINES]), {"requests": _requests(lines), "program": name}) if lines else None


def client_left_load(seen: Observed) -> Found | None:
    """The last load, which Ollama gave up because nobody waited for it any more."""
    lines = _given_up(seen)
    return Found((lines[-1],)) if lines else None


def _given_up(seen: Observed) -> list[Line]:
    return [line for needle in LOAD_GIVEN_UP for line in seen.lines(needle)]


LOAD_GIVEN_UP = ("before server finished loading, aborting load", "before llama-server finished loading, aborting load")
"""ollama v0.11 llm/server.go:1238, llm/llama_server.go"""


def _requests(lines: list[Line]) -> str:
    n = sum("[GIN]" in line.text or OF_LM_STUDIO in line.text for line in lines)
    return f"{n} requests" if n > 1 else "a request"


def _left(seen: Observed) -> list[Line]:
    """The lines that say so, and the status that the server wrote beside them."""
    if seen.program.key != "ollama":
        return _left_lm_studio(seen) if seen.program.key == "lmstudio" else []
    said = {line.number: line for needle in CLIENT_LEFT for line in seen.log.lines_with(needle)}
    statuses = {line.number: line for line in seen.log.lines_with("[GIN] ") if re.search(r"\| 5\d\d \|", line.text)}
    for number in sorted(said):
        near = [n for n in (*range(number, number + LINES_OF_A_REQUEST), number - 1) if n in statuses]
        if near and "[GIN]" not in said[number].text:
            said[near[0]] = statuses[near[0]]
    return [said[number] for number in sorted(said)]


def _left_lm_studio(seen: Observed) -> list[Line]:
    """LM Studio writes the line after a complete answer, too."""
    finished = {line.number for line in seen.lines("Finished streaming response")}
    return [line for line in seen.lines(OF_LM_STUDIO) if not finished & {line.number - 1, line.number - 2}]


CONDITIONS = (
    runner_killed,
    python_exception,
    illegal_instruction,
    load_failed,
    error_lines,
    requests_refused,
    client_left,
    client_left_load,
)
