"""Requests to llama-server over HTTP: when each was sent, given a slot, answered with its first token, and complete.

        queue wait = launched - sent        prefill = first token - launched        decode = last token - first token

The clients run on the same computer, in a thread each, so they use a part of its cores.
Seconds count from the first request that was sent.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import date
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from inferlab.engine import measurement_queue
from inferlab.engine.llama_server import HOST, Launch, LlamaServer
from inferlab.engine.session import this_machine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement
from inferlab.measurement.http_client import Stream, stream
from inferlab.model.gguf import Model, read_gguf

LOG_SECONDS = 2.0


@dataclass(frozen=True)
class HttpRequest:
    """One request: random tokens as its prompt, and an answer of exactly n_gen tokens.

    after_seconds  when it is sent, after the first
    seed           requests with the same seed have the same prompt, up to the shorter one's length
    priority       a number in the request's JSON, as vLLM takes one; None: not sent
    cache_prompt   whether a beginning that is in the slot may be used again
    grammar        llama.cpp's grammar for the answer; "": none
    """

    n_prompt: int
    n_gen: int
    after_seconds: float = 0.0
    seed: int = 0
    priority: int | None = None
    cache_prompt: bool = False
    grammar: str = ""


@dataclass(frozen=True)
class HttpReply:
    """The answer to a request.

    slot                 the slot that computed it
    launched_seconds     when it was given the slot, by the server's log; None where the log has no line for it
    headers_seconds      when the headers had arrived
    event_seconds        when each event with text had arrived
    event_tokens         how many tokens each of them carried
    event_bytes          the bytes of each
    n_cached             prompt tokens that the server did not compute again
    server_prompt_seconds, server_decode_seconds   what the server itself reported
    """

    request: HttpRequest
    slot: int
    sent_seconds: float
    launched_seconds: float | None
    headers_seconds: float
    event_seconds: tuple[float, ...]
    event_tokens: tuple[int, ...]
    event_bytes: tuple[int, ...]
    ended_seconds: float
    n_cached: int
    server_prompt_seconds: float
    server_decode_seconds: float

    @property
    def queue_seconds(self) -> float | None:
        """From sending the request until it was given a slot; None if unknown."""
        return None if self.launched_seconds is None else self.launched_seconds - self.sent_seconds

    @property
    def ttft_seconds(self) -> float:
        """From sending the request until its first text."""
        return self.event_seconds[0] - self.sent_seconds

    @property
    def prefill_seconds(self) -> float | None:
        """From the launch until the first text; None if unknown."""
        return None if self.launched_seconds is None else self.event_seconds[0] - self.launched_seconds

    @property
    def decode_seconds(self) -> float:
        """From the first text until the last."""
        return self.event_seconds[-1] - self.event_seconds[0]

    @property
    def n_tokens(self) -> int:
        """Tokens of the answer."""
        return sum(self.event_tokens)

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens after the first event, per second of decode; None for an answer in one event."""
        return sum(self.event_tokens[1:]) / self.decode_seconds if len(self.event_seconds) > 1 else None

    @property
    def pauses(self) -> tuple[float, ...]:
        """Seconds between two events."""
        return tuple(after - before for before, after in pairwise(self.event_seconds))


@dataclass(frozen=True, kw_only=True)
class HttpServing(Measurement):
    """Requests to one llama-server, in the order of their sending; settings.n_seq_max is the number of its slots.

    n_cores  cores that the server was bound to; None: all
    """

    made_with = "llama-server over HTTP"

    replies: tuple[HttpReply, ...]
    n_cores: int | None = None

    @property
    def seconds(self) -> float:
        """From the first sending until the last text."""
        return max(reply.event_seconds[-1] for reply in self.replies) - min(r.sent_seconds for r in self.replies)

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all answers over `seconds`, so the prompts and the waiting count."""
        return sum(reply.n_tokens for reply in self.replies) / self.seconds

    @property
    def launch_order(self) -> tuple[int, ...]:
        """The places of the requests in `replies`, in the order in which they were given a slot."""
        known = (i for i, reply in enumerate(self.replies) if reply.launched_seconds is not None)
        return tuple(sorted(known, key=lambda i: self.replies[i].launched_seconds))


@dataclass
class _Clients:
    """What the threads of one wave share."""

    server: LlamaServer
    n_vocab: int
    start: threading.Barrier
    began: float = 0.0
    streams: list[Stream] = field(default_factory=list)

    def send(self, request: HttpRequest) -> Stream:
        body = body_of(request, self.n_vocab)
        self.start.wait(10)
        time.sleep(max(0.0, self.began + request.after_seconds - time.perf_counter()))
        return stream(HOST, self.server.port, "/completion", body)


def serve_over_http(
    requests: Sequence[HttpRequest], server: LlamaServer, model: str | Path, n_cores: int | None = None
) -> HttpServing:
    """Send the requests, each from a thread of its own, and wait for all answers; returns the `HttpServing`.

    Raises InvalidSettings for a request without a token, EngineRefused or EngineTimeout.
    """
    if not requests or min(min(one.n_prompt, one.n_gen) for one in requests) < 1:
        raise InvalidSettings("There must be a request, and each with a token of prompt and of answer at least.")
    header = read_gguf(model)
    n_before = len(server.launches())
    streams = _streams(requests, server, header.n_vocab)
    launches = _wait_for_launches(server, n_before + len(requests))[n_before:]
    return HttpServing(
        **_common_fields(server, header), replies=replies_of(requests, streams, launches), n_cores=n_cores
    )


def _streams(requests: Sequence[HttpRequest], server: LlamaServer, n_vocab: int) -> list[Stream]:
    clients = _Clients(server, n_vocab, threading.Barrier(len(requests) + 1))
    with ThreadPoolExecutor(len(requests)) as threads:
        waiting = [threads.submit(clients.send, request) for request in requests]
        clients.began = time.perf_counter() + 0.05
        clients.start.wait(10)
        return [one.result() for one in waiting]


def body_of(request: HttpRequest, n_vocab: int) -> dict[str, Any]:
    """The JSON of a request to /completion: a greedy answer of exactly n_gen tokens, streamed."""
    body = {
        "prompt": random.Random(request.seed).choices(range(n_vocab // 2, n_vocab), k=request.n_prompt),
        "n_predict": request.n_gen, "ignore_eos": True, "temperature": 0, "stream": True,
        "cache_prompt": request.cache_prompt,
    }  # fmt: skip
    more = {"priority": request.priority, "grammar": request.grammar or None}
    return body | {name: value for name, value in more.items() if value is not None}


def _wait_for_launches(server: LlamaServer, n: int) -> tuple[Launch, ...]:
    """The launches, once the log has n of them: its lines come through a pipe, a little after the answers."""
    ends = time.monotonic() + LOG_SECONDS
    while len(found := server.launches()) < n and time.monotonic() < ends:
        time.sleep(0.01)
    return found


def _common_fields(server: LlamaServer, header: Model) -> dict[str, Any]:
    return {
        "model": header.card(),
        "settings": server.settings,
        "machine": this_machine(),
        "date": date.today().isoformat(),
        "buffers": server.buffers,
        "turn": measurement_queue.present_turn(),
    }


def replies_of(
    requests: Sequence[HttpRequest], streams: Sequence[Stream], launches: Sequence[Launch]
) -> tuple[HttpReply, ...]:
    """Replies in the order of sending; a slot serves one request after another, so its launches are in that order."""
    began = min(one.sent_seconds for one in streams)
    launched = launched_seconds(streams, launches)
    pairs = zip(requests, streams, launched, strict=True)
    found = [_reply(request, one, at, began) for request, one, at in pairs]
    return tuple(sorted(found, key=lambda reply: reply.sent_seconds))


def launched_seconds(streams: Sequence[Stream], launches: Sequence[Launch]) -> list[float | None]:
    """For each answer the launch of its slot; None for all of a slot whose launches are not as many as its answers."""
    found: list[float | None] = [None] * len(streams)
    by_slot = sorted(range(len(streams)), key=lambda i: (_slot(streams[i]), streams[i].ended_seconds))
    for slot, members in groupby(by_slot, key=lambda i: _slot(streams[i])):
        numbers, times = list(members), sorted(one.seconds for one in launches if one.slot == slot)
        if len(numbers) == len(times):
            for i, at in zip(numbers, times, strict=True):
                found[i] = at
    return found


def _slot(one: Stream) -> int:
    return one.events[-1].data["id_slot"]


def _reply(request: HttpRequest, one: Stream, launched: float | None, began: float) -> HttpReply:
    with_text = [event for event in one.events if not event.data["stop"]]
    n_done = [event.data["tokens_predicted"] for event in with_text]
    timings = one.events[-1].data["timings"]
    return HttpReply(
        request=request,
        slot=_slot(one),
        sent_seconds=_since(began, one.sent_seconds),
        launched_seconds=None if launched is None else _since(began, launched),
        headers_seconds=_since(began, one.headers_seconds),
        event_seconds=tuple(_since(began, event.seconds) for event in with_text),
        event_tokens=tuple(after - before for before, after in pairwise([0, *n_done])),
        event_bytes=tuple(event.n_bytes for event in with_text),
        ended_seconds=_since(began, one.ended_seconds),
        n_cached=timings["cache_n"],
        server_prompt_seconds=timings["prompt_ms"] / 1e3,
        server_decode_seconds=timings["predicted_ms"] / 1e3,
    )


def _since(began: float, seconds: float) -> float:
    """Seconds since `began`, to the microsecond: the server's log has no finer stamps."""
    return round(seconds - began, 6)
