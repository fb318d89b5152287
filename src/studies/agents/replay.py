"""Replays the session of an agent against llama-server, one request after another, and reads its log.

The prompts are token ids: seeded ones for a shape, and of a trained model the tokens of Python code, by the server's
own /tokenize. The answers that go into the history are the tokens that the server returned; its stream leaves out a
token that ends inside a character (tools/server/server-context.cpp:1826-1862), so a prompt may be shorter.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.request import urlopen

from inferlab import errors, settings, units
from inferlab.engine import measurement_queue
from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.programs import built_program
from inferlab.engine.session import this_machine
from inferlab.errors import EngineRefused
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement import http_client
from inferlab.measurement.base import served_fields
from inferlab.measurement.http_client import Stream, server_tokens, stream
from inferlab.model.gguf import Model, read_gguf
from inferlab.progress import track
from inferlab.records import load_all
from inferlab.units import MIB
from studies.agents.session import Part, Planned, session
from studies.agents.study import Asked, Replay, main_settings

READ_AS_TEXT = errors, http_client, settings, units
"""Modules whose code is what the agent of a trained model reads."""
SECONDS = 600
CHOSEN = "selected slot by"
METRIC = re.compile(r"^llamacpp:(prompt_tokens_total|prompt_tokens_cached_total) (\d+)", re.MULTILINE)
COPIES = re.compile(r"cache state: (\d+) prompts, ([\d.]+) MiB")
COPIED = re.compile(r"saving prompt with length (\d+), total state size = ([\d.]+) MiB")
UPDATE = re.compile(r"prompt cache update took ([\d.]+) ms")
MADE = re.compile(r"created context checkpoint .*size = ([\d.]+) MiB")
SAID = {
    "restored": "restored context checkpoint",
    "forced": "forcing full prompt re-processing",
    "shifted": "reusing chunk with size",
    "too large": "exceeds cache size limit",
    "dropped": "making room for prompt cache entry",
    "purged": "purging slot",
    "cleared": "clearing prompt with",
}
"""What a line of the log means for a request -> its words; tools/server/server-context.cpp and server-task.cpp."""


@dataclass
class Texts:
    """The tokens of parts by their names: of answers those that the server gave, of others made ones."""

    server: LlamaServer
    header: Model

    def __post_init__(self) -> None:
        self.answers: dict[str, list[int]] = {}

    @cached_property
    def _code(self) -> list[int]:
        text = "\n".join(Path(str(module.__file__)).read_text(encoding="utf-8") for module in READ_AS_TEXT)
        return server_tokens(self.server.port, text)

    def tokens(self, parts: Iterable[Part]) -> list[int]:
        """The tokens of a prompt."""
        return [token for part in parts for token in self._part(part)[part.skip :]]

    def _part(self, part: Part) -> list[int]:
        if part.name in self.answers:
            return self.answers[part.name]
        chance, n_vocab = random.Random(part.name), self.header.n_vocab
        if self.header.synthetic:
            return chance.choices(range(n_vocab // 2, n_vocab), k=part.n_tokens)
        start = chance.randrange(len(self._code))
        return [self._code[(start + i) % len(self._code)] for i in range(part.n_tokens)]


def replay(
    model: str | Path, setting: str, options: Sequence[str], n_ctx: int, scale: int = 1, n_turns: int = 20
) -> Replay:
    """Send the requests of a session to a llama-server of its own.

    setting  its name; options: the flags of the server beside `-c n_ctx`
    scale    every length of the session is divided by it
    Raises EngineUnavailable, EngineRefused, EngineTimeout or ModelError.
    """
    header, planned = read_gguf(model), session(scale, n_turns)
    with llama_server(model, options=["-c", str(n_ctx), "--metrics", *options]) as server:
        texts, answers = Texts(server, header), []
        for request in track(planned, len(planned), setting):
            answers.append(ask(server, texts, request))
        counted = metrics(server)
        turn = measurement_queue.present_turn()
    asked = [_asked(*of) for of in zip(planned, answers, _new_tokens(planned), _segments(server.log), strict=True)]
    return Replay(
        **served_fields(server, header, this_machine()),
        turn=turn,
        setting=setting,
        options=tuple(options),
        scale=scale,
        metric_read=counted["prompt_tokens_total"],
        metric_kept=counted["prompt_tokens_cached_total"],
        requests=tuple(asked),
    )


def ask(server: LlamaServer, texts: Texts, request: Planned) -> Stream | None:
    """Send one request and keep its answer's tokens for the history; None where the server refuses its length."""
    body = {
        "prompt": texts.tokens(request.parts),
        "n_predict": request.n_gen,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "cache_prompt": True,
        "return_tokens": True,
    }
    try:
        answer = stream(LOOPBACK_ADDRESS, server.port, "/completion", body, SECONDS)
    except EngineRefused as error:
        if "exceeds the available context size" in str(error):
            return None
        raise
    if request.kind == "main":
        told = (event.data["tokens"] for event in answer.events if not event.data["stop"])
        texts.answers[f"answer {request.turn}"] = [token for tokens in told for token in tokens]
    return answer


def metrics(server: LlamaServer) -> dict[str, int]:
    """Prompt tokens that were computed and that were kept since its start, by /metrics."""
    with urlopen(f"http://{LOOPBACK_ADDRESS}:{server.port}/metrics", timeout=10) as answer:
        return {name: int(value) for name, value in METRIC.findall(answer.read().decode())}


def _new_tokens(planned: Sequence[Planned]) -> list[int]:
    """Of each request the tokens of parts that no earlier one with its beginning had, and that are no answer."""
    seen: set[tuple[str, str]] = set()
    counts = []
    for request in planned:
        own = {(request.parts[0].name, part.name): part.n_tokens for part in request.parts}
        fresh = {key: n for key, n in own.items() if key not in seen and not key[1].startswith("answer")}
        counts.append(sum(fresh.values()))
        seen |= own.keys()
    return counts


def _segments(log: str) -> list[str]:
    """The log of each request: from the line that says which slot it gets to the next such line."""
    lines = log.splitlines()
    starts = [i for i, line in enumerate(lines) if CHOSEN in line]
    return ["\n".join(lines[start:end]) for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)]


def _asked(request: Planned, answer: Stream | None, n_new: int, log: str) -> Asked:
    """What is kept of one request."""
    copies, copied = COPIES.findall(log), max(COPIED.findall(log), key=lambda found: int(found[0]), default=None)
    made = Asked(
        turn=request.turn,
        kind=request.kind,
        n_prompt=request.n_prompt,
        n_new=n_new,
        n_gen=request.n_gen,
        copies=int(copies[-1][0]) if copies else None,
        copies_bytes=_bytes(copies[-1][1]) if copies else None,
        copied_tokens=int(copied[0]) if copied else None,
        copied_bytes=_bytes(copied[1]) if copied else None,
        update_ms=sum(map(float, UPDATE.findall(log))),
        checkpoints=tuple(map(_bytes, MADE.findall(log))),
        said=tuple(word for word, line in SAID.items() if line in log),
    )
    if answer is None:
        return made
    last, timings = answer.events[-1].data, answer.events[-1].data["timings"]
    first = next(event for event in answer.events if event.data["tokens"])
    return replace(
        made,
        n_prompt=timings["prompt_n"] + timings["cache_n"],
        n_read=timings["prompt_n"],
        n_kept=timings["cache_n"],
        slot=last["id_slot"],
        ttft_seconds=round(first.seconds - answer.sent_seconds, 6),
        prompt_seconds=round(timings["prompt_ms"] / 1e3, 6),
    )


def _bytes(mib: str) -> int:
    return round(float(mib) * MIB)


# --- the lab ----------------------------------------------------------------------------------


def replay_or_load(
    record: str, model: str | Path, names: Sequence[str], n_ctx: int, scale: int, n_turns: int
) -> tuple[Replay, ...]:
    """The named settings replayed with a model, or as they were recorded where llama-server is not compiled."""
    if built_program("llama-server"):
        return tuple(replay(model, name, main_settings(scale)[name], n_ctx, scale, n_turns) for name in names)
    recorded = {one.setting: one.until(n_turns) for one in load_all(record, Replay)}
    return tuple(recorded[name] for name in names)
