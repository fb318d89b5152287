"""Sends requests to llama-server over HTTP, each from a thread of its own; workloads, and servers measured in turns.

Servers that are compared run at the same time, but only one is given requests at a time, so that a drift of the
machine affects all alike.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count, groupby, pairwise
from pathlib import Path
from typing import Any

from inferlab.engine import measurement_queue
from inferlab.engine.llama_server import Launch, LlamaServer, llama_server
from inferlab.engine.programs import built_program
from inferlab.engine.session import this_machine
from inferlab.errors import InvalidSettings
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.base import served_fields
from inferlab.measurement.http_client import Stream, stream
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.records import load
from inferlab.settings import Settings
from studies.serving.study import HttpReply, HttpRequest, HttpServing

LOG_SECONDS = 2.0
SEEDS_OF_A_WAVE = 1000


# --- workloads and servers --------------------------------------------------------------------


def users(n: int, n_prompt: int = 64, n_gen: int = 32) -> list[HttpRequest]:
    """Requests of n users at the same moment, each with a prompt of its own."""
    return [HttpRequest(n_prompt, n_gen, seed=seed) for seed in range(n)]


def beside_long_prompt() -> list[HttpRequest]:
    """Three short prompts with answers that run, and one long prompt that arrives meanwhile."""
    return [*(HttpRequest(16, 48, seed=seed) for seed in range(3)), HttpRequest(1024, 8, 0.25, seed=3)]


def one_after_another(n: int = 10, every_seconds: float = 0.02) -> list[HttpRequest]:
    """Requests in a known order with answers of different lengths; the last one asks to be the first."""
    requests = [HttpRequest(16, 24 + 5 * (seed % 3), seed * every_seconds, seed) for seed in range(n)]
    return [*requests[:-1], replace(requests[-1], priority=-1000)]


@dataclass(frozen=True)
class Served:
    """How one server is started: its settings, and the cores that it may use (None: all)."""

    settings: Settings = field(default_factory=Settings)
    cores: tuple[int, ...] | None = None


def serve_in_turns(
    waves: Sequence[Sequence[HttpRequest]],
    model: str | Path | None = None,
    servers: Sequence[Served] = (Served(),),
    repeats: int = 3,
) -> tuple[HttpServing, ...]:
    """Send each wave of requests to each server, `repeats` times; the first wave of a server is not counted.

    Every wave gets prompts that no other had. Raises EngineUnavailable, EngineRefused, EngineTimeout or ModelError.
    """
    path = find_model(model)
    with ExitStack() as stack:
        started = [
            (stack.enter_context(llama_server(path, served.settings, cores=served.cores)), served) for served in servers
        ]
        seeds = count(SEEDS_OF_A_WAVE, SEEDS_OF_A_WAVE)
        for server, served in started:
            _send(waves[0], server, served, path, next(seeds))
        turns = [(wave, *pair) for _ in range(repeats) for wave in waves for pair in started]
        return tuple(
            _send(wave, server, served, path, next(seeds))
            for wave, server, served in track(turns, len(turns), "serving")
        )


def _send(wave: Sequence[HttpRequest], server: LlamaServer, served: Served, path: Path, seed: int) -> HttpServing:
    requests = [replace(request, seed=seed + request.seed) for request in wave]
    return serve_over_http(requests, server, path, len(served.cores) if served.cores else None)


def origin() -> str:
    """Where the results of `serve_or_load` come from, as a sentence."""
    if built_program("llama-server"):
        return "The results are measured on this machine."
    return "llama-server is not compiled here (make tools): the results are a recorded run of another machine."


def serve_or_load(
    record: str, waves: Sequence[Sequence[HttpRequest]], *args: Any, **named: Any
) -> tuple[HttpServing, ...]:
    """`serve_in_turns`, or a recorded run by its name where llama-server is not compiled; `origin` says which.

    Raises EngineRefused, EngineTimeout, ModelError or RecordError.
    """
    return serve_in_turns(waves, *args, **named) if built_program("llama-server") else load(record)


# --- one wave ---------------------------------------------------------------------------------


def serve_over_http(
    requests: Sequence[HttpRequest], server: LlamaServer, model: str | Path, n_cores: int | None = None
) -> HttpServing:
    """Send the requests, each from a thread of its own, and wait for all answers; returns the `HttpServing`.

    Raises InvalidSettings for a request without a token, EngineRefused or EngineTimeout.
    """
    if not requests or min(min(request.n_prompt, request.n_gen) for request in requests) < 1:
        raise InvalidSettings("There must be a request, and each with a token of prompt and of answer at least.")
    header = read_gguf(model)
    n_before = len(server.launches())
    streams = _streams(requests, server.port, header.n_vocab)
    launches = _wait_for_launches(server, n_before + len(requests))[n_before:]
    return HttpServing(
        **served_fields(server, header, this_machine()),
        turn=measurement_queue.present_turn(),
        replies=replies_of(requests, streams, launches),
        n_cores=n_cores,
    )


def _streams(requests: Sequence[HttpRequest], port: int, n_vocab: int) -> list[Stream]:
    """Send each request at its time, all clocks beginning when every thread is ready."""
    start, began = threading.Barrier(len(requests) + 1), 0.0

    def send(request: HttpRequest) -> Stream:
        body = body_of(request, n_vocab)
        start.wait(10)
        time.sleep(max(0.0, began + request.after_seconds - time.perf_counter()))
        return stream(LOOPBACK_ADDRESS, port, "/completion", body)

    with ThreadPoolExecutor(len(requests)) as threads:
        waiting = [threads.submit(send, request) for request in requests]
        began = time.perf_counter() + 0.05  # before the barrier, so that every thread sees it
        start.wait(10)
        return [answer.result() for answer in waiting]


def body_of(request: HttpRequest, n_vocab: int) -> dict[str, Any]:
    """The JSON of a request to /completion: a greedy answer of exactly n_gen tokens, streamed."""
    body = {
        "prompt": random.Random(request.seed).choices(range(n_vocab // 2, n_vocab), k=request.n_prompt),
        "n_predict": request.n_gen,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "cache_prompt": request.cache_prompt,
    }
    more = {"priority": request.priority, "grammar": request.grammar or None}
    return body | {name: value for name, value in more.items() if value is not None}


def _wait_for_launches(server: LlamaServer, n: int) -> tuple[Launch, ...]:
    """The launches, once the log has n of them: its lines come through a pipe, a little after the answers."""
    ends = time.monotonic() + LOG_SECONDS
    while len(launches := server.launches()) < n and time.monotonic() < ends:
        time.sleep(0.01)
    return launches


def replies_of(
    requests: Sequence[HttpRequest], streams: Sequence[Stream], launches: Sequence[Launch]
) -> tuple[HttpReply, ...]:
    """Replies in the order of sending; a slot serves one request after another, so its launches are in that order."""
    began = min(answer.sent_seconds for answer in streams)
    replies = [
        _reply(request, answer, at, began)
        for request, answer, at in zip(requests, streams, _launched(streams, launches), strict=True)
    ]
    return tuple(sorted(replies, key=lambda reply: reply.sent_seconds))


def _launched(streams: Sequence[Stream], launches: Sequence[Launch]) -> list[float | None]:
    """For each answer the launch of its slot; None for all of a slot whose launches are not as many as its answers."""
    launched: list[float | None] = [None] * len(streams)
    by_slot = sorted(range(len(streams)), key=lambda i: (_slot(streams[i]), streams[i].ended_seconds))
    for slot, members in groupby(by_slot, key=lambda i: _slot(streams[i])):
        numbers, times = list(members), sorted(launch.seconds for launch in launches if launch.slot == slot)
        if len(numbers) == len(times):
            for i, at in zip(numbers, times, strict=True):
                launched[i] = at
    return launched


def _slot(answer: Stream) -> int:
    return answer.events[-1].data["id_slot"]


def _reply(request: HttpRequest, answer: Stream, launched: float | None, began: float) -> HttpReply:
    with_text = [event for event in answer.events if not event.data["stop"]]
    n_done = [event.data["tokens_predicted"] for event in with_text]
    timings = answer.events[-1].data["timings"]
    return HttpReply(
        request=request,
        slot=_slot(answer),
        sent_seconds=_since(began, answer.sent_seconds),
        launched_seconds=None if launched is None else _since(began, launched),
        headers_seconds=_since(began, answer.headers_seconds),
        event_seconds=tuple(_since(began, event.seconds) for event in with_text),
        event_tokens=tuple(after - before for before, after in pairwise([0, *n_done])),
        event_bytes=tuple(event.n_bytes for event in with_text),
        ended_seconds=_since(began, answer.ended_seconds),
        n_cached=timings["cache_n"],
        server_prompt_seconds=timings["prompt_ms"] / 1e3,
        server_decode_seconds=timings["predicted_ms"] / 1e3,
    )


def _since(began: float, seconds: float) -> float:
    """Seconds since `began`, to the microsecond: the server's log has no finer stamps."""
    return round(seconds - began, 6)
