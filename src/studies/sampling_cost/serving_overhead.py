"""One token by llama-bench, this library and llama-server with several samplers, in turns: who loses what to what.

All decode the same number of tokens after a prompt of the same length. llama-bench takes random tokens and no sampler.
llama-server reports the seconds of an answer itself, and a client takes the time between its events:

    server = bench + loop of the server + streaming + sampling          client = server + its way to the client
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from inferlab.engine.llama_server import HOST, LlamaServer, llama_server
from inferlab.engine.protocol import Engine, entries_of
from inferlab.engine.session import default_engine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import common_fields, with_context
from inferlab.measurement.http_client import stream, whole_answer
from inferlab.measurement.queued import queued
from inferlab.measurement.run import measure
from inferlab.model.find import find_model, held_out_text
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings
from studies.sampling_cost.benchmark_programs import BenchmarkPrograms, run_program
from studies.sampling_cost.sampling import ANY_TEXT, WORDS

SEED = 7
BENCH, LIBRARY, SERVER, CLIENT, PROMPT = "llama-bench", "this book", "server: {}", "client: {}", "prefill: {}"
FLOOR, WHOLE = "one candidate", "one candidate, not streamed"
GREEDY, BACKEND = {"temperature": 0}, {"backend_sampling": True}
SCHEMA = {"json_schema": {"type": "array", "items": {"type": "string"}, "minItems": 100}, "ignore_eos": False}
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    FLOOR: {"samplers": ["top_k"], "top_k": 1},
    WHOLE: {"samplers": ["top_k"], "top_k": 1, "stream": False},
    "default": {},
    "default again": {},
    "greedy": GREEDY,
    "greedy, only temperature": {**GREEDY, "samplers": ["temperature"]},
    "top-k off": {"top_k": 0},
    "repeat penalty": {"repeat_penalty": 1.1},
    "log probabilities": {"n_probs": 1},
    "grammar of any text": {"grammar": ANY_TEXT},
    "grammar of words": {"grammar": WORDS},
    "JSON schema": SCHEMA,
    "default, in the backend": BACKEND,
    "greedy, in the backend": {**GREEDY, **BACKEND},
    "top-k off, in the backend": {"top_k": 0, **BACKEND},
    "repeat penalty, in the backend": {"repeat_penalty": 1.1, **BACKEND},
}
"""Fields of llama-server's /completion; the rest are its defaults. `default again` is the control."""


@queued
def compare_with_server(
    model: str | Path | None = None,
    settings: Settings | None = None,
    requests: Mapping[str, Mapping[str, Any]] = REQUESTS,
    n_prompt: int = 128,
    n_gen: int = 64,
    turns: int = 15,
    program: str | Path | None = None,
    progress: bool | None = None,
) -> BenchmarkPrograms:
    """Time decode by each program and each request, one after the other, `turns` times.

    program  path of llama-server; None: the one that `make tools` compiled
    The prompt is the beginning of the embedded model's held-out text.
    Raises EngineUnavailable without the programs, InvalidSettings, EngineRefused or EngineTimeout.
    """
    if min(n_prompt, n_gen - 1, turns) < 1:
        raise InvalidSettings(
            "n_prompt and turns must be at least 1 and n_gen at least 2: the first token is prefill's."
        )
    path, engine = find_model(model), default_engine()
    wanted = with_context(settings or Settings(n_threads=2, n_threads_batch=2), n_prompt, n_gen)
    engine.open(path, wanted)
    prompt = engine.tokenize(held_out_text())[:n_prompt]
    rates: dict[str, list[float]] = {}
    with llama_server(path, wanted, program=program) as server:
        client = _Client(server, prompt, n_gen)
        client.rates({})
        for _ in track(range(turns), turns, "comparing", progress):
            rates.setdefault(BENCH, []).append(_of_llama_bench(path, wanted, n_prompt, n_gen))
            once = measure(path, wanted, n_prompt, n_gen, repeats=1, progress=False)
            rates.setdefault(LIBRARY, []).append(once.decode_tokens_per_second)
            for name, more in requests.items():
                for of, rate in client.rates(more).items():
                    rates.setdefault(of.format(name), []).append(rate)
        changed = {name: client.changed(engine, more) for name, more in requests.items() if _constrains(more)}
    opening = engine.open(path, wanted)
    return BenchmarkPrograms(
        **common_fields(engine, opening, read_gguf(path)), n_prompt=n_prompt, n_gen=n_gen,
        rates={name: tuple(round(one, 3) for one in each) for name, each in rates.items()}, changed=changed,
    )  # fmt: skip


class _Client:
    """Sends requests to one slot, always with the same prompt."""

    def __init__(self, server: LlamaServer, prompt: Sequence[int], n_gen: int) -> None:
        self.server, self.n_gen = server, n_gen
        self.body = {"prompt": list(prompt), "n_predict": n_gen, "ignore_eos": True, "cache_prompt": False,
                     "seed": SEED}  # fmt: skip

    def rates(self, more: Mapping[str, Any]) -> dict[str, float]:
        """Tokens per second of one answer: by the server, by the client, and of its prefill."""
        body = {"stream": True, **self.body, **more}
        if not body["stream"]:
            return _of_server(whole_answer(HOST, self.server.port, "/completion", body)["timings"])
        events = stream(HOST, self.server.port, "/completion", body).events
        with_text = [event for event in events if not event.data["stop"]]
        n_after = with_text[-1].data["tokens_predicted"] - with_text[0].data["tokens_predicted"]
        seconds = with_text[-1].seconds - with_text[0].seconds
        return {**_of_server(events[-1].data["timings"]), CLIENT: n_after / seconds}

    def changed(self, engine: Engine, more: Mapping[str, Any]) -> float:
        """Share of a greedy answer's tokens that are not the likeliest at their place."""
        body = {**self.body, **more, **GREEDY, "return_tokens": True}
        answer = whole_answer(HOST, self.server.port, "/completion", body)["tokens"]
        known = [*self.body["prompt"], *answer]
        first = len(known) - len(answer)
        engine.keep(0)
        engine.step(entries_of(known[: first - 1]))
        picks = [
            engine.step(entries_of([token], first - 1 + i)).picks[0] for i, token in enumerate(known[first - 1 : -1])
        ]
        return sum(pick != token for pick, token in zip(picks, answer, strict=True)) / len(answer)


def _constrains(more: Mapping[str, Any]) -> bool:
    return "grammar" in more or "json_schema" in more


def _of_server(timings: Mapping[str, Any]) -> dict[str, float]:
    return {SERVER: timings["predicted_per_second"], PROMPT: timings["prompt_per_second"]}


def _of_llama_bench(path: Path, settings: Settings, n_prompt: int, n_gen: int) -> float:
    """llama-bench decodes n_gen tokens, the server after the first n_gen - 1."""
    (row,) = run_program(
        "llama-bench",
        ["-m", path, "-t", settings.n_threads, "-fa", {"auto": "auto", "on": "1", "off": "0"}[settings.flash_attn],
         "-r", 1, "-o", "jsonl", "-p", 0, "-n", n_gen - 1, "-d", n_prompt],
    )  # fmt: skip
    return row["avg_ts"]


def token_seconds(found: BenchmarkPrograms, name: str) -> float:
    """Median seconds of a token by one of the programs, e.g. `server: default`."""
    return median(1 / rate for rate in found.rates[name])


def lost_seconds(found: BenchmarkPrograms, before: str, after: str) -> tuple[float, ...]:
    """Turn by turn, the seconds that a token takes longer in `after` than in `before`."""
    pairs = zip(found.rates[before], found.rates[after], strict=True)
    return tuple(1 / second - 1 / first for first, second in pairs)


def token_parts(found: BenchmarkPrograms, name: str) -> dict[str, float]:
    """Where a token of one kind of request spends its time: median seconds of each part, turn by turn.

    decode as in llama-bench, the loop of the server, streaming, sampling beyond one candidate, the way to the client.
    """
    steps = {
        "server's loop": (BENCH, SERVER.format(WHOLE)),
        "streaming": (SERVER.format(WHOLE), SERVER.format(FLOOR)),
        "sampling": (SERVER.format(FLOOR), SERVER.format(name)),
        "way to the client": (SERVER.format(name), CLIENT.format(name)),
    }
    return {
        "decode": token_seconds(found, BENCH),
        **{part: median(lost_seconds(found, *pair)) for part, pair in steps.items()},
    }
