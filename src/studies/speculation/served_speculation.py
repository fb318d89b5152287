"""llama-server with a kind of speculation and without: the same greedy answers, in turns.

Two servers run, and only one of them has a request at a time. Seconds and drafted tokens are those that llama-server
reports with an answer: `predicted_ms`, `draft_n` and `draft_n_accepted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.engine.llama_server import HOST, LlamaServer, llama_server
from inferlab.engine.session import default_engine, this_machine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement
from inferlab.measurement.http_client import whole_answer
from inferlab.measurement.queued import queued
from inferlab.measurement.same_answer import n_same
from inferlab.model.find import find_model
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings
from inferlab.statistics import median_interval
from studies.speculation.acceptance import PROSE, REPEATING, n_repeated, prompts_of

PENALIZED = "prose, repetition penalized"
PENALTY = {"repeat_penalty": 1.3, "repeat_last_n": 512}
REQUESTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    REPEATING: (REPEATING, {}),
    PROSE: (PROSE, {}),
    PENALIZED: (PROSE, PENALTY),
}
"""Name of a task -> which prompts, and further fields of its requests. A penalty keeps greedy decode from repeating."""
KINDS: Mapping[str, tuple[str, ...]] = {
    "ngram-simple": ("--spec-type", "ngram-simple"),
    "ngram-simple 4/8": ("--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "4",
                         "--spec-ngram-simple-size-m", "8"),
    "ngram-map-k": ("--spec-type", "ngram-map-k"),
    "ngram-map-k4v": ("--spec-type", "ngram-map-k4v"),
    "ngram-mod": ("--spec-type", "ngram-mod"),
    "ngram-cache": ("--spec-type", "ngram-cache"),
}  # fmt: skip
"""Name of a kind -> flags of llama-server; sizes are its defaults unless the name has others (lookup/draft)."""


@dataclass(frozen=True)
class ServedCase:
    """One kind of speculation on one task; a number for each prompt, in the order of the prompts.

    plain_seconds, seconds  decode without speculation and with it
    n_drafted, n_accepted   tokens
    n_same                  tokens that both answers have in common from the beginning
    n_repeated              tokens of the plain answer that repeat it (`acceptance.n_repeated`)
    """

    kind: str
    task: str
    plain_seconds: tuple[float, ...]
    seconds: tuple[float, ...]
    n_drafted: tuple[int, ...]
    n_accepted: tuple[int, ...]
    n_same: tuple[int, ...]
    n_repeated: tuple[int, ...]

    @property
    def speedups(self) -> tuple[float, ...]:
        """Seconds without speculation over seconds with it, pair by pair."""
        return tuple(plain / one for plain, one in zip(self.plain_seconds, self.seconds, strict=True))

    @property
    def speedup(self) -> float:
        """Median of `speedups`."""
        return median(self.speedups)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the median speed-up; None for fewer than six pairs."""
        return median_interval(self.speedups)

    @property
    def accepted_share(self) -> float | None:
        """Accepted tokens over drafted ones; None if nothing was drafted."""
        drafted = sum(self.n_drafted)
        return sum(self.n_accepted) / drafted if drafted else None


@dataclass(frozen=True, kw_only=True)
class ServedSpeculation(Measurement):
    """Every kind on every task."""

    made_with = "llama-server over HTTP"

    n_prompt: int
    n_gen: int
    cases: tuple[ServedCase, ...]

    def of(self, kind: str, task: str) -> ServedCase:
        """One case. Raises InvalidSettings for one that was not measured."""
        for one in self.cases:
            if (one.kind, one.task) == (kind, task):
                return one
        known = ", ".join(f"{one.kind} on {one.task}" for one in self.cases)
        raise InvalidSettings(f"{kind!r} on {task!r} was not measured, only: {known}.")


@queued
def served_speculation(
    model: str | Path | None = None,
    settings: Settings | None = None,
    kinds: Mapping[str, Sequence[str]] = KINDS,
    requests: Mapping[str, tuple[str, Mapping[str, Any]]] = REQUESTS,
    n_prompts: int = 16,
    n_prompt: int = 256,
    n_gen: int = 128,
    program: str | Path | None = None,
    progress: bool | None = None,
) -> ServedSpeculation:
    """Decode answers of `n_gen` tokens with each kind of speculation and without, prompt by prompt in turn.

    Raises EngineUnavailable without llama-server, InvalidSettings for a short text, EngineRefused or EngineTimeout.
    """
    path, engine = find_model(model), default_engine()
    engine.open_vocabulary(path)
    prompts = prompts_of(engine, n_prompts, n_prompt)
    settings = (settings or Settings()).but(n_seq_max=1, n_ctx=2 * (n_prompt + n_gen))
    cases = []
    with llama_server(path, settings, program=program) as plain:
        for kind, flags in track(kinds.items(), len(kinds), "kinds", progress):
            with llama_server(path, settings, flags, program=program) as drafting:
                client = Client(plain, drafting, n_gen)
                cases += [
                    client.compare(kind, task, prompts[text], body) for task, (text, body) in requests.items()
                ]
        return ServedSpeculation(
            model=read_gguf(path).card(), settings=plain.settings, machine=this_machine(),
            date=date.today().isoformat(), buffers=plain.buffers, n_prompt=n_prompt, n_gen=n_gen, cases=tuple(cases),
        )  # fmt: skip


class Client:
    """Sends each prompt to both servers, the first one alternating."""

    def __init__(self, plain: LlamaServer, drafting: LlamaServer, n_gen: int) -> None:
        self.servers, self.n_gen = (plain, drafting), n_gen

    def compare(
        self, kind: str, task: str, prompts: Sequence[Sequence[int]], body: Mapping[str, Any]
    ) -> ServedCase:
        """All prompts of a task; the first is asked once before, and that is not counted."""
        self._pair(prompts[0], body, 0)
        pairs = [self._pair(prompt, body, number) for number, prompt in enumerate(prompts)]
        plain, drafted = zip(*pairs, strict=True)
        return ServedCase(
            kind, task, tuple(map(_seconds, plain)), tuple(map(_seconds, drafted)),
            tuple(one["timings"].get("draft_n", 0) for one in drafted),
            tuple(one["timings"].get("draft_n_accepted", 0) for one in drafted),
            tuple(n_same(a["tokens"], b["tokens"]) for a, b in pairs), tuple(n_repeated(a["tokens"]) for a in plain),
        )  # fmt: skip

    def _pair(self, prompt: Sequence[int], body: Mapping[str, Any], number: int) -> tuple[dict, dict]:
        """The answers without speculation and with it."""
        turns = self.servers if number % 2 == 0 else self.servers[::-1]
        answers = {id(server): self._answer(server, prompt, body) for server in turns}
        plain, drafted = (answers[id(server)] for server in self.servers)
        return plain, drafted

    def _answer(self, server: LlamaServer, prompt: Sequence[int], body: Mapping[str, Any]) -> dict[str, Any]:
        fixed = {"prompt": list(prompt), "n_predict": self.n_gen, "temperature": 0, "ignore_eos": True,
                 "return_tokens": True, "cache_prompt": False}  # fmt: skip
        return whole_answer(HOST, server.port, "/completion", {**fixed, **body})


def _seconds(answer: Mapping[str, Any]) -> float:
    return answer["timings"]["predicted_ms"] / 1e3
