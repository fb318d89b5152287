"""A client of llama-server's /completion: HTTP/1.1 with server-sent events, each stamped when it arrives.

The last event of an answer says `"stop": true`; without it the server ended too early.
An event is a line `data: {...}` and an empty line (https://html.spec.whatwg.org/multipage/server-sent-events.html).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any

from inferlab.errors import EngineRefused, EngineTimeout
from inferlab.machine import LOOPBACK_ADDRESS

DATA = b"data: "
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True)
class Event:
    """One event: the client's clock when its line was read, the bytes of its lines, and its JSON."""

    seconds: float
    n_bytes: int
    data: dict[str, Any]


@dataclass
class Stream:
    """One answer: when the request was sent and the headers came, and the events; time.perf_counter throughout."""

    sent_seconds: float
    headers_seconds: float
    events: list[Event] = field(default_factory=list)
    ended_seconds: float = 0.0


def stream(host: str, port: int, path: str, body: dict[str, Any], seconds: float = 120.0) -> Stream:
    """Send a POST and read its events to the end, over a connection of its own.

    Raises EngineRefused for an error of the server or a broken stream, EngineTimeout after `seconds` without a byte.
    """
    text = json.dumps(body)
    with _connected(host, port, seconds) as connection:
        sent = time.perf_counter()
        connection.request("POST", path, text, JSON)
        response = connection.getresponse()
        answer = Stream(sent, time.perf_counter())
        _require_stream(response)
        answer.events.extend(_events(response))
        answer.ended_seconds = time.perf_counter()
        if not (answer.events and answer.events[-1].data.get("stop")):
            raise ValueError("the last event is missing")
        return answer


def whole_answer(host: str, port: int, path: str, body: dict[str, Any], seconds: float = 120.0) -> dict[str, Any]:
    """Send a POST and return the JSON of its answer, which comes in one piece.

    Raises EngineRefused for an error of the server or an answer that is no object, EngineTimeout after `seconds`.
    """
    with _connected(host, port, seconds) as connection:
        connection.request("POST", path, json.dumps(body), JSON)
        response = connection.getresponse()
        said = response.read()
        if response.status != 200:
            raise EngineRefused(f"The server answered {response.status}: {said[:500]!r}. Send what it takes.")
        return _object(said)


def chat_prompt(port: int, *said: str) -> str:
    """What the chat template of llama-server's model makes of a conversation; the user's words come first."""
    messages = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
    prompt: str = whole_answer(LOOPBACK_ADDRESS, port, "/apply-template", {"messages": messages})["prompt"]
    return prompt


def server_tokens(port: int, text: str, add_special: bool = False) -> list[int]:
    """The tokens of a text by llama-server, which reads names of control tokens; add_special: as it reads a prompt."""
    asked = {"content": text, "add_special": add_special, "parse_special": True}
    tokens: list[int] = whole_answer(LOOPBACK_ADDRESS, port, "/tokenize", asked)["tokens"]
    return tokens


@contextmanager
def _connected(host: str, port: int, seconds: float) -> Iterator[HTTPConnection]:
    """A connection; what goes wrong with it becomes an error of the engine."""
    connection = HTTPConnection(host, port, timeout=seconds)
    try:
        connection.connect()
        yield connection
    except TimeoutError as error:
        raise EngineTimeout(f"{host}:{port} sent nothing for {seconds:.0f} s. Allow more time for it.") from error
    except (OSError, HTTPException, ValueError) as error:
        raise EngineRefused(f"The answer of {host}:{port} broke off: {error!r}. Look at the server's log.") from error
    finally:
        connection.close()


def _require_stream(response: HTTPResponse) -> None:
    kind = response.headers.get_content_type()
    if response.status != 200 or kind != "text/event-stream":
        said = response.read(500).decode("utf-8", "replace")
        raise EngineRefused(f"The server answered {response.status} with {kind}: {said}. Send what it takes.")


def _events(response: HTTPResponse) -> Iterator[Event]:
    """The events as they arrive; comments, such as pings, are left out."""
    for line in response:
        now = time.perf_counter()
        if line.startswith(DATA):
            yield Event(now, len(line) + 1, _object(line[len(DATA) :]))


def _object(text: bytes) -> dict[str, Any]:
    data = json.loads(text)
    if not isinstance(data, dict):
        raise ValueError(f"an event holds {text[:60]!r}, not an object")
    if "error" in data:
        raise EngineRefused(f"The server sent an error in its stream: {data['error']}. Send what it takes.")
    return data
