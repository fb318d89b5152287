"""Sampler chains on several vocabularies; decode by llama-bench, llama-batched-bench, this library and llama-server.

llama-bench takes random tokens and no sampler, and starts `tg` from an empty cache unless it gets a depth (-d).
llama-batched-bench gives every sequence a prompt of its own; its rate counts the tokens of all sequences.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from inferlab.engine import openmp
from inferlab.engine.client import LlamaEngine
from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.programs import FOLDER
from inferlab.engine.protocol import Engine, Sampler, entries_of
from inferlab.engine.session import default_engine, this_machine
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.base import common_fields, served_fields, with_context
from inferlab.measurement.batching import batched_decode
from inferlab.measurement.http_client import chat_prompt, server_tokens, stream, whole_answer
from inferlab.measurement.run import measure
from inferlab.measurement.turns import alternating, in_turns
from inferlab.model.find import find_model, held_out_text, tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe
from studies.sampling_cost.sampling import ANY_TEXT, CHAINS, JSON_CHAINS, WORDS, chains_named, sample_times
from studies.sampling_cost.study import BENCH, CLIENT, SERVER, SHARP, BenchmarkPrograms, JsonAnswers, JsonCase, Sampling

SETTINGS, FLASH = Settings(n_threads=2, n_threads_batch=2), Settings(flash_attn="on")
PROMPT, SEED = "prefill: {}", 7
KEEP_FREED = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
"""Variables of glibc's malloc (mallopt(3)): freed memory below 1 GB stays with the process."""
MALLOC_CHAINS = (
    "default",
    "grammar, token rejected",
    "grammar before top-k, any text",
    "grammar before top-k, words",
)
GREEDY, BACKEND = {"temperature": 0}, {"backend_sampling": True}
SCHEMA = {"json_schema": {"type": "array", "items": {"type": "string"}, "minItems": 100}, "ignore_eos": False}
REQUESTS: Mapping[str, Mapping[str, Any]] = {
    "one candidate": {"samplers": ["top_k"], "top_k": 1},
    "one candidate, not streamed": {"samplers": ["top_k"], "top_k": 1, "stream": False},
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


Dimensions = Mapping[str, Any] | str | None


def file_of(dimensions: Dimensions) -> Path:
    """Llama 3.2 1B in Q4_K_M with other dimensions, or the model of a name; the embedded model for None."""
    if isinstance(dimensions, str):
        return find_model(dimensions)
    return tiny_model() if dimensions is None else make_shape("llama-3.2-1b", "Q4_K_M", **dimensions)


def chains(works: Sequence[tuple[Dimensions, int]], more: Mapping[str, Sequence[Sampler]] = {}) -> tuple[Sampling, ...]:
    """Every chain, and `more`, on each model so many times; every fifth of the decode steps is kept."""
    measured = [
        sample_times(file_of(dimensions), FLASH, {**CHAINS, **more}, repeats=repeats) for dimensions, repeats in works
    ]
    return tuple(replace(sampling, decode_seconds=sampling.decode_seconds[::5]) for sampling in measured)


def allocators(names: Sequence[str], turns: int) -> tuple[Sampling, Sampling]:
    """Chains on sharp logits in turns by two engines: malloc as it is, and with KEEP_FREED (glibc on Linux)."""
    path, chosen = file_of({}), chains_named(*names)
    once = partial(sample_times, path, FLASH, chosen, (SHARP,), 1)
    with closing(LlamaEngine()) as plain, closing(LlamaEngine(environment=KEEP_FREED)) as kept:
        first, second = in_turns(once, (plain, kept), range(turns + 1))
    return _joined(first[1:], {}), _joined(second[1:], KEEP_FREED)


def _joined(samplings: Sequence[Sampling], allocator: Mapping[str, str]) -> Sampling:
    """The turns of one engine as one measurement; the first turn starts the engine and is left out."""
    each = [
        replace(chain, seconds=tuple(turn.chains[i].seconds[0] for turn in samplings))
        for i, chain in enumerate(samplings[0].chains)
    ]
    steps = tuple(round(step, 7) for turn in samplings for step in turn.decode_seconds)
    return replace(samplings[0], chains=tuple(each), decode_seconds=steps, allocator=dict(allocator))


def programs(dimensions: Dimensions, n_prompt: int, n_gen: int, turns: int) -> BenchmarkPrograms:
    """Prefill and decode by this library and the two programs of `make tools`, one after the other, `turns` times."""
    path = file_of(dimensions)
    rates: dict[str, list[float]] = defaultdict(list)
    for ask in alternating((_of_this_book, _of_llama_bench, _of_batched_bench), range(turns)):
        for name, rate in ask(path, n_prompt, n_gen).items():
            rates[name].append(rate)
    return _record(path, n_prompt, n_gen, rates)


def _of_this_book(path: Path, n_prompt: int, n_gen: int) -> dict[str, float]:
    run = measure(path, SETTINGS, n_prompt, n_gen, repeats=1, progress=False)
    several = batched_decode(path, SETTINGS, (1, 4), n_prompt, n_gen, repeats=1, progress=False)
    decode = {f"this book: decode, {size} at once": several.at(size).tokens_per_second for size in (1, 4)}
    return {"this book: prefill": run.prefill_tokens_per_second, **decode}


def _of_llama_bench(path: Path, n_prompt: int, n_gen: int) -> dict[str, float]:
    prefill, empty = _bench(path, "-p", n_prompt, "-n", n_gen)
    (filled,) = _bench(path, "-p", 0, "-n", n_gen, "-d", n_prompt)
    return {
        "llama-bench: prefill": prefill,
        "llama-bench: decode, 1 at once": filled,
        "llama-bench: decode from an empty cache": empty,
    }


def _bench(path: Path, *arguments: object) -> list[float]:
    """Tokens per second of each test of llama-bench."""
    rows = _printed("llama-bench", "-m", path, "-t", 2, "-r", 1, "-o", "jsonl", *arguments)
    return [row["avg_ts"] for row in rows]


def _of_batched_bench(path: Path, n_prompt: int, n_gen: int) -> dict[str, float]:
    work = "-c", 4 * (n_prompt + n_gen), "-npp", n_prompt, "-ntg", n_gen, "-npl", "1,4", "--output-format", "jsonl"
    rows = _printed("llama-batched-bench", "-m", path, "-t", 2, "-tb", 2, *work)
    decode = {f"llama-batched-bench: decode, {row['pl']} at once": row["speed_tg"] for row in rows}
    return {"llama-batched-bench: prefill": rows[0]["speed_pp"], **decode}


def _printed(name: str, *arguments: object) -> list[dict[str, Any]]:
    """The JSON objects that a program of llama.cpp printed, one on each line."""
    command, environment = [str(FOLDER / name), *map(str, arguments)], openmp.bounded(os.environ)
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def beside_server(
    dimensions: Dimensions, n_prompt: int, n_gen: int, turns: int, requests: Mapping[str, Mapping[str, Any]] = REQUESTS
) -> BenchmarkPrograms:
    """Decode by llama-bench, this library and each request to llama-server, one after the other, `turns` times.

    The prompt is the beginning of the embedded model's held-out text. Needs the programs that `make tools` compiles.
    """
    path, engine = file_of(dimensions), default_engine()
    rates: dict[str, list[float]] = defaultdict(list)
    settings = with_context(SETTINGS, n_prompt, n_gen)
    engine.open(path, settings)
    prompt = engine.tokenize(held_out_text())[:n_prompt]
    with llama_server(path, settings) as server:
        client = _Client(server, prompt, n_gen)
        client.rates({})
        for _ in range(turns):
            once = measure(path, settings, n_prompt, n_gen, repeats=1, progress=False)
            # llama-bench decodes n_gen tokens, the server after the first n_gen - 1
            rates[BENCH].extend(_bench(path, "-fa", "auto", "-p", 0, "-n", n_gen - 1, "-d", n_prompt))
            rates["this book"].append(once.decode_tokens_per_second)
            for name, more in requests.items():
                for of, rate in client.rates(more).items():
                    rates[of.format(name)].append(rate)
        limited = {name: more for name, more in requests.items() if {"grammar", "json_schema"} & set(more)}
        changed = {name: client.changed(engine, more) for name, more in limited.items()}
    rounded = {name: [round(rate, 3) for rate in each] for name, each in rates.items()}
    return _record(path, n_prompt, n_gen, rounded, changed)


def _record(
    path: Path, n_prompt: int, n_gen: int, rates: Mapping[str, Sequence[float]], changed: Mapping[str, float] = {}
) -> BenchmarkPrograms:
    engine = default_engine()
    common = common_fields(engine, engine.open(path, with_context(SETTINGS, n_prompt, n_gen)), read_gguf(path))
    kept = {name: tuple(each) for name, each in rates.items()}
    return BenchmarkPrograms(**common, n_prompt=n_prompt, n_gen=n_gen, rates=kept, changed=dict(changed))


class _Client:
    """Sends requests to one slot, always with the same prompt."""

    def __init__(self, server: LlamaServer, prompt: Sequence[int], n_gen: int) -> None:
        self.server, self.n_gen = server, n_gen
        self.body: dict[str, Any] = {
            "prompt": list(prompt),
            "n_predict": n_gen,
            "ignore_eos": True,
            "cache_prompt": False,
            "seed": SEED,
        }

    def rates(self, more: Mapping[str, Any]) -> dict[str, float]:
        """Tokens per second of one answer: by the server, by the client, and of its prefill."""
        body = {"stream": True, **self.body, **more}
        if not body["stream"]:
            return _of_server(whole_answer(LOOPBACK_ADDRESS, self.server.port, "/completion", body)["timings"])
        events = stream(LOOPBACK_ADDRESS, self.server.port, "/completion", body).events
        with_text = [event for event in events if not event.data["stop"]]
        n_after = with_text[-1].data["tokens_predicted"] - with_text[0].data["tokens_predicted"]
        seconds = with_text[-1].seconds - with_text[0].seconds
        return {**_of_server(events[-1].data["timings"]), CLIENT: n_after / seconds}

    def changed(self, engine: Engine, more: Mapping[str, Any]) -> float:
        """Share of a greedy answer's tokens that are not the likeliest at their place."""
        answer = self.whole(more)["tokens"]
        return self.n_changed(engine, answer) / len(answer)

    def whole(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """A greedy answer in one piece, with its tokens."""
        body = {**self.body, **more, **GREEDY, "return_tokens": True}
        return whole_answer(LOOPBACK_ADDRESS, self.server.port, "/completion", body)

    def n_changed(self, engine: Engine, answer: Sequence[int]) -> int:
        """Tokens of an answer that are not the likeliest at their place."""
        known = [*self.body["prompt"], *answer]
        first = len(known) - len(answer)
        engine.keep(0)
        engine.step(entries_of(known[: first - 1]))
        picks = [
            engine.step(entries_of([token], first - 1 + i)).picks[0] for i, token in enumerate(known[first - 1 : -1])
        ]
        return sum(pick != token for pick, token in zip(picks, answer, strict=True))


def _of_server(timings: Mapping[str, Any]) -> dict[str, float]:
    return {SERVER: timings["predicted_per_second"], PROMPT: timings["prompt_per_second"]}


QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "Tell me about the city of Paris.": ("city", "country", "river"),
    "Describe an apple.": ("color", "taste", "shape"),
    "Who wrote Hamlet?": ("author", "century"),
    "Recommend a book for a rainy day.": ("title", "author", "reason"),
    "What is the capital of Japan?": ("country", "capital"),
    "Describe the weather in a desert.": ("day", "night"),
    "Invent a person for a story.": ("name", "age", "job"),
    "Which animal is the largest?": ("animal", "weight", "home"),
    "Suggest a meal with potatoes.": ("name", "ingredients", "minutes"),
    "What is a bicycle?": ("wheels", "use"),
    "Describe the planet Mars.": ("color", "moons", "distance"),
    "Write a short review of a hotel by the sea.": ("stars", "review"),
    "Name a musical instrument and how it is played.": ("instrument", "how"),
    "How do I say good morning in French?": ("language", "phrase"),
    "Plan a day in the mountains.": ("morning", "noon", "evening"),
    "What is photosynthesis?": ("input", "output", "place"),
}
"""A question -> the keys of a JSON object that could answer it."""
ASKED = "{} Answer only with a JSON object with the keys {}."


def json_answers(n_gen: int) -> JsonAnswers:
    """Answers of a chat with a schema and without, in turn; the same questions with the format and without."""
    path, engine = find_model("smollm2"), default_engine()
    settings = Settings(n_threads=2, n_threads_batch=2, n_seq_max=1, n_ctx=512)
    engine.open(path, settings)
    with llama_server(path, settings) as server:
        _json_case(server, engine, "", list(QUESTIONS)[:1], n_gen)  # not counted: the first passes are slow
        asked = [ASKED.format(question, ", ".join(keys)) for question, keys in QUESTIONS.items()]
        cases = (
            _json_case(server, engine, "asked", asked, n_gen),
            _json_case(server, engine, "not asked", list(QUESTIONS), n_gen),
        )
        return JsonAnswers(
            **served_fields(server, read_gguf(path), this_machine()),
            n_gen=n_gen,
            cases=cases,
        )


def _json_case(server: LlamaServer, engine: Engine, name: str, asked: Sequence[str], n_gen: int) -> JsonCase:
    clients = [_Client(server, _chat_tokens(server, text), n_gen) for text in asked]
    bodies = [{"json_schema": _schema(question)} for question in QUESTIONS]
    no_schema: list[dict[str, Any]] = [{} for _ in bodies]
    works = [iter(zip(clients, more, strict=False)) for more in (no_schema, bodies)]

    def once(side: int) -> dict[str, Any]:
        client, more = next(works[side])
        return client.whole({"ignore_eos": False, **more})

    plain, limited = in_turns(once, (0, 1), clients)
    answers = [answer["tokens"] for answer in limited]
    changed = [client.n_changed(engine, answer) for client, answer in zip(clients, answers, strict=True)]
    rates = [[answer["timings"]["predicted_per_second"] for answer in side] for side in (plain, limited)]
    return JsonCase(name, tuple(map(len, answers)), tuple(changed), *map(tuple, rates))


def _schema(question: str) -> dict[str, Any]:
    """An object with the keys of a question, each a text."""
    keys = QUESTIONS[question]
    return {"type": "object", "properties": {key: {"type": "string"} for key in keys}, "required": list(keys)}


def _chat_tokens(server: LlamaServer, text: str) -> list[int]:
    """The tokens that the model's own template makes of a user's words."""
    return server_tokens(server.port, chat_prompt(server.port, text), add_special=True)


RECIPES: Mapping[str, Recipe] = {
    "sampling": partial(chains, [(None, 40), ({"n_vocab": 32768}, 14), ({}, 14), ({"n_vocab": 262144}, 14)]),
    "sampling-smollm2": partial(chains, [("smollm2", 25)], JSON_CHAINS),
    "sampling-malloc": partial(allocators, MALLOC_CHAINS, turns=15),
    "benchmark-programs": partial(programs, {"n_layer": 4, "n_vocab": 8192}, n_prompt=512, n_gen=64, turns=15),
    "server-and-bench-tiny": partial(beside_server, None, n_prompt=128, n_gen=192, turns=20),
    "server-and-bench-shape": partial(beside_server, {"n_layer": 1}, n_prompt=32, n_gen=10, turns=15),
    "server-and-bench-smollm2": partial(beside_server, "smollm2", n_prompt=128, n_gen=48, turns=15),
    "json-smollm2": partial(json_answers, n_gen=96),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
