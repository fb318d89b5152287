"""Faults of a chat template, provoked with llama-server on the real template of SmolLM2.

llama-server alone has templates: the library that a worker loads takes token ids. `CASES` has what can go wrong when
it starts, and what it does with chats that it takes.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path

from inferlab.engine.llama_server import LISTENING, arguments, is_healthy, require_program, server_line
from inferlab.engine.programs import built_program
from inferlab.errors import EngineTimeout, ModelNotFound
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from studies.clinic.clinic import TIMEOUT_SECONDS, Specimen
from studies.clinic.devices import Placed

MODEL = "smollm2"
SMALL = Settings(n_ctx=512, n_gpu_layers=0)
REPORTS = ("the supplied chat template is not supported", "got exception: ", "new prompt, ")
NO_NAME = "chatlm"
"""Two letters of `chatml` are exchanged, so that it is the name of no template."""
LOOP, REFUSAL = "{% for message in messages %}", "{{ raise_exception('System role not supported') }}"
QUESTION = {"role": "user", "content": "Why is the sky blue?"}
SYSTEM = {"role": "system", "content": "Answer in one sentence."}

Message = Mapping[str, str]


@dataclass(frozen=True)
class TemplateCase:
    """A fault of a chat template.

    options   (folder, the model's own template) -> further options of llama-server
    chats     the messages of each chat that is sent to it
    """

    name: str
    cause: str
    options: Callable[[Path, str], Sequence[str]]
    chats: Sequence[Sequence[Message]] = ((QUESTION,), (QUESTION,))


def possible() -> list[str]:
    """Names of the cases: all where `make tools` compiled llama-server and SmolLM2 can be had, else none."""
    if built_program("llama-server") is None:
        return []
    try:
        find_model(MODEL)
    except ModelNotFound:
        return []
    return [*CASES]


def provoke(name: str) -> Specimen:
    """Start llama-server with the fault `name`, a key of CASES, send its chats, and end it.

    Raises EngineUnavailable without llama-server, ModelNotFound without SmolLM2, EngineTimeout after a minute.
    """
    case, path = CASES[name], find_model(MODEL)
    template = str(read_gguf(path).metadata["tokenizer.chat_template"])
    with tempfile.TemporaryDirectory() as folder:
        ended, log = _met(case, [*arguments(path, SMALL), *case.options(Path(folder), template)], Path(folder))
    words = next((line.strip() for line in log.splitlines() if any(report in line for report in REPORTS)), "")
    return Specimen(name, case.cause, words, log, ended, "", Placed(SMALL))


def _met(case: TemplateCase, options: Sequence[str], folder: Path) -> tuple[str, str]:
    """(how it ended, the log without its time stamps)."""
    path = folder / "server.log"
    with path.open("w", encoding="utf-8") as log:
        command = [str(require_program()), *options]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            port = _port(server, path)
            refused = port and [_status(port, chat) for chat in case.chats] != [200] * len(case.chats)
        finally:
            server.terminate()
            server.wait()
    return "exit" if not port else "error" if refused else "no error", _text(path)


def _text(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(stamped.text if (stamped := server_line(line, 0.0)) else line for line in lines)


def _port(server: subprocess.Popen, log: Path) -> int:
    """Where it listens, once it is ready; 0 where it ended instead."""
    ends = time.monotonic() + TIMEOUT_SECONDS
    while server.poll() is None:
        listening = re.search(LISTENING, _text(log))
        if listening and is_healthy(port := int(listening[1])):
            return port
        if time.monotonic() > ends:
            raise EngineTimeout(f"llama-server was not ready after {TIMEOUT_SECONDS:.0f} s.", _text(log)[-2000:])
        time.sleep(0.02)
    return 0


def _status(port: int, chat: Sequence[Message]) -> int:
    """The HTTP status of the answer to a chat, of which a few tokens are enough."""
    connection = HTTPConnection(LOOPBACK_ADDRESS, port, timeout=TIMEOUT_SECONDS)
    try:
        body = json.dumps({"messages": chat, "max_tokens": 4})
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def _file(folder: Path, template: str) -> tuple[str, str]:
    path = folder / "template.jinja"
    path.write_text(template, encoding="utf-8")
    return "--chat-template-file", str(path)


def _loses_messages(folder: Path, template: str) -> Sequence[str]:
    return _file(folder, template.replace(LOOP, "{% for message in conversation %}"))


def refuses_system(folder: Path, template: str) -> Sequence[str]:
    """The template with a check in its loop: a message of the system is an error."""
    check = "{% if message['role'] == 'system' %}" + REFUSAL + "{% endif %}"
    return _file(folder, template.replace(LOOP, LOOP + check))


CASES = {
    case.name: case
    for case in (
        TemplateCase(
            "unknown template",
            "Without Jinja, a template has to be one of llama.cpp's names, and this name is none.",
            lambda *_: ("--no-jinja", "--chat-template", NO_NAME),
        ),
        TemplateCase(
            "name taken for a template",
            "The same wrong name with Jinja, the default: it is read as a template, whose text is the name alone.",
            lambda *_: ("--chat-template", NO_NAME),
        ),
        TemplateCase(
            "messages lost",
            "One name in the template is wrong: its loop runs over a list that is not there.",
            _loses_messages,
        ),
        TemplateCase(
            "system role refused",
            "The template refuses a message of the system, and a chat has two of them.",
            refuses_system,
            [(SYSTEM, SYSTEM, QUESTION)],
        ),
    )
}
