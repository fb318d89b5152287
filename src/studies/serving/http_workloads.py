"""Workloads for llama-server, and a way to measure several servers in turns.

Servers that are compared run at the same time, but only one is given requests at a time, so that a drift of the
machine affects all alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.programs import built_program
from inferlab.model.find import find_model
from inferlab.progress import track
from inferlab.records import load
from inferlab.settings import Settings
from studies.serving.http_serving import HttpRequest, HttpServing, serve_over_http

SEEDS_OF_A_WAVE = 1000


@dataclass(frozen=True)
class Served:
    """How one server is started: its settings, and the cores that it may use (None: all)."""

    settings: Settings = field(default_factory=Settings)
    cores: tuple[int, ...] | None = None


def users(n: int, n_prompt: int = 64, n_gen: int = 32) -> list[HttpRequest]:
    """Requests of n users at the same moment, each with a prompt of its own."""
    return [HttpRequest(n_prompt, n_gen, seed=seed) for seed in range(n)]


def beside_long_prompt(
    n_running: int = 3, n_gen: int = 48, n_long: int = 1024, after_seconds: float = 0.25
) -> list[HttpRequest]:
    """Short prompts with answers that run, and one long prompt that arrives meanwhile."""
    running = [HttpRequest(16, n_gen, seed=seed) for seed in range(n_running)]
    return [*running, HttpRequest(n_long, 8, after_seconds, seed=n_running)]


def one_after_another(n: int = 10, every_seconds: float = 0.02, priority_of_last: int = -1000) -> list[HttpRequest]:
    """Requests in a known order with answers of different lengths; the last one asks to be the first."""
    found = [HttpRequest(16, 24 + 5 * (seed % 3), seed * every_seconds, seed) for seed in range(n)]
    return [*found[:-1], replace(found[-1], priority=priority_of_last)]


def serve_in_turns(
    waves: Sequence[Sequence[HttpRequest]],
    model: str | Path | None = None,
    servers: Sequence[Served] = (Served(),),
    repeats: int = 3,
    program: str | Path | None = None,
    progress: bool | None = None,
) -> tuple[HttpServing, ...]:
    """Send each wave of requests to each server, `repeats` times; the first wave of a server is not counted.

    Every wave gets prompts that no other had. Raises EngineUnavailable, EngineRefused, EngineTimeout or ModelError.
    """
    path = find_model(model)
    with ExitStack() as stack:
        started = [
            (stack.enter_context(llama_server(path, one.settings, cores=one.cores, program=program)), one)
            for one in servers
        ]
        seeds = count(SEEDS_OF_A_WAVE, SEEDS_OF_A_WAVE)
        for server, one in started:
            _send(waves[0], server, one, path, next(seeds))
        turns = [(wave, *pair) for _ in range(repeats) for wave in waves for pair in started]
        return tuple(
            _send(wave, server, one, path, next(seeds))
            for wave, server, one in track(turns, len(turns), "serving", progress)
        )


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


def longest_pause(one: HttpServing) -> float:
    """Seconds of the longest pause between two tokens of the answers that run beside the last request."""
    return max(max(reply.pauses) for reply in one.replies[:-1])


def _send(wave: Sequence[HttpRequest], server: LlamaServer, one: Served, path: Path, seed: int) -> HttpServing:
    requests = [replace(request, seed=seed + request.seed) for request in wave]
    return serve_over_http(requests, server, path, one.cores and len(one.cores))
