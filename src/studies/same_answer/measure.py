"""Answers to the same prompts before and after a change: in this process, or of a llama-server with a seed.

A seed fixes the numbers that the sampler draws. It does not fix the probabilities: those depend on what is computed
in the same batch, and on whether the prompt is computed or taken from the slot's cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.quantize import quantize
from inferlab.engine.session import default_engine, this_machine
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.base import served_fields
from inferlab.measurement.http_client import whole_answer
from inferlab.measurement.same_answer import CHANGES, Compared, SameAnswers, n_same, pieces, same_answers
from inferlab.model.find import held_out_text, tiny_model
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from studies import recipes
from studies.recipes import Recipe
from studies.same_answer.real_model import BY_SETTINGS, ONE_THREAD, beside, real_answers
from studies.same_answer.study import BESIDE, PIECES, THREADS, ServedAnswers

N_SLOTS = 4


class Asked(NamedTuple):
    """How the second of two equal requests differs from the first, and what both draw with.

    body    fields of both requests
    more    fields of the second one alone
    beside  answers that the server writes at the same time as the second one
    """

    body: Mapping[str, Any]
    more: Mapping[str, Any] = {}
    beside: int = 0


GREEDY, DRAWN = {"temperature": 0}, {"seed": 7}
EVERY = {**DRAWN, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}
REQUESTS: Mapping[str, Asked] = {
    "greedy, asked again": Asked(GREEDY),
    "greedy, three others beside": Asked(GREEDY, beside=3),
    "greedy, prompt kept in the slot": Asked(GREEDY, {"cache_prompt": True}),
    "seed 7, asked again": Asked(DRAWN),
    "seed 7, then seed 8": Asked(DRAWN, {"seed": 8}),
    "seed 7, three others beside": Asked(DRAWN, beside=3),
    "seed 7, prompt kept in the slot": Asked(DRAWN, {"cache_prompt": True}),
    "seed 7, every candidate, asked again": Asked(EVERY),
    "seed 7, every candidate, three others beside": Asked(EVERY, beside=3),
}
"""The sampler has llama-server's defaults, or keeps every candidate."""
IN_BACKEND: Mapping[str, Asked] = {
    "greedy, sampled in the backend": Asked(GREEDY, {"backend_sampling": True}),
    "default, sampled in the backend": Asked(DRAWN, {"backend_sampling": True}),
}
"""The second request leaves the choice of the token to llama.cpp's backend."""


def served_answers(requests: Mapping[str, Asked], n_prompts: int, n_prompt: int, n_gen: int) -> ServedAnswers:
    """Send each request twice for `n_prompts` consecutive pieces of the held-out text; compare token by token.

    The compared one always goes to slot 0. Raises EngineUnavailable without llama-server.
    """
    path, engine = tiny_model(), default_engine()
    engine.open_vocabulary(path)
    prompts = pieces(engine.tokenize(held_out_text()), n_prompts, n_prompt)
    settings = Settings(n_seq_max=N_SLOTS, n_ctx=N_SLOTS * 2 * (n_prompt + n_gen))
    with llama_server(path, settings) as server:
        compared = tuple(
            Compared(name, (), tuple(n_same(*_pair(server, asked, prompts, n, n_gen)) for n in range(n_prompts)))
            for name, asked in requests.items()
        )
        return ServedAnswers(
            **served_fields(server, read_gguf(path), this_machine()),
            n_prompt=n_prompt,
            n_gen=n_gen,
            compared=compared,
        )


def _pair(
    server: LlamaServer, asked: Asked, prompts: Sequence[Sequence[int]], number: int, n_gen: int
) -> tuple[list[int], list[int]]:
    """Tokens of both answers to one prompt."""
    prompt = prompts[number]
    first = _answer(server, prompt, 0, n_gen, asked.body)
    with ThreadPoolExecutor(1 + asked.beside) as threads:
        for slot in range(1, 1 + asked.beside):
            other = prompts[(number + slot) % len(prompts)]
            threads.submit(_answer, server, other, slot, 2 * n_gen, GREEDY)
        return first, threads.submit(_answer, server, prompt, 0, n_gen, {**asked.body, **asked.more}).result()


def _answer(server: LlamaServer, prompt: Sequence[int], slot: int, n_gen: int, more: Mapping[str, Any]) -> list[int]:
    body = {
        "prompt": list(prompt),
        "n_predict": n_gen,
        "id_slot": slot,
        "ignore_eos": True,
        "return_tokens": True,
        "cache_prompt": False,
        **more,
    }
    return whole_answer(LOOPBACK_ADDRESS, server.port, "/completion", body)["tokens"]


def quantized_answers(type: str, changes: Sequence[str], n_prompts: int, n_prompt: int, n_gen: int) -> SameAnswers:
    """Some of the library's changes on the embedded model with its weights in another type."""
    some = {name: CHANGES[name] for name in changes}
    return same_answers(quantize("tiny", type), None, some, n_prompts, n_prompt, n_gen)


RECIPES: Mapping[str, Recipe] = {
    "same-answers": partial(same_answers, n_prompts=32, n_prompt=320, n_gen=128),
    "same-answers-again": partial(same_answers, n_prompts=32, n_prompt=320, n_gen=128),
    "same-answers-q4_1": partial(
        quantized_answers, "Q4_1", (THREADS, PIECES, BESIDE), n_prompts=32, n_prompt=320, n_gen=128
    ),
    "served-answers": partial(served_answers, REQUESTS, n_prompts=32, n_prompt=320, n_gen=128),
    "smollm2-settings": partial(real_answers, "smollm2", BY_SETTINGS, n_prompts=24, n_prompt=320, n_gen=128),
    "smollm2-beside-1": partial(real_answers, "smollm2", beside(1), n_prompts=24, n_prompt=320, n_gen=128),
    "smollm2-beside-3": partial(real_answers, "smollm2", beside(3), n_prompts=24, n_prompt=320, n_gen=128),
    "smollm2-f16": partial(real_answers, "smollm2", ONE_THREAD, n_prompts=24, n_prompt=320, n_gen=128, type="F16"),
    "backend-answers": partial(served_answers, IN_BACKEND, n_prompts=8, n_prompt=320, n_gen=64),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
