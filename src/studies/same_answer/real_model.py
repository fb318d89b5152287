"""Greedy answers of a trained model to prompts through its chat template, before and after one change.

The server gives the probability of each token that it writes. Before two answers differ they have the same tokens, so
the costs of those can be compared to the last bit of that number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any, NamedTuple

from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.quantize import quantize
from inferlab.engine.session import this_machine
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.base import served_fields
from inferlab.measurement.http_client import chat_prompt, server_tokens, whole_answer
from inferlab.measurement.same_answer import PIECE, REFERENCE, Compared, n_same, threads
from inferlab.model.find import find_model, held_out_text
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from inferlab.units import count_text
from studies.same_answer.study import ServedAnswers

N_SLOTS = 4
QUESTIONS = (
    "Explain this part of a manual to a beginner.",
    "List the main points of this part of a manual.",
    "Write a short Python example for this part of a manual.",
    "Write three questions that a reader of this part of a manual could ask.",
)
MARK = "(the text)"
DIGITS = 3  # of a difference of costs: a difference of 0 stays 0, and another one does not become 0


class Other(NamedTuple):
    """What the second answer has and the first has not: a server with other settings, a field, answers beside it."""

    settings: Settings = REFERENCE
    more: Mapping[str, Any] = {}
    beside: int = 0


class Said(NamedTuple):
    """An answer until it ended by itself or at the limit: its tokens, and their costs in nats."""

    tokens: tuple[int, ...]
    costs: tuple[float, ...]


ONE_THREAD: Mapping[str, Other] = {"1 thread, not 2": Other(threads(REFERENCE, 1))}
BY_SETTINGS: Mapping[str, Other] = {
    "asked again": Other(),
    **ONE_THREAD,
    f"prompt in pieces of {PIECE}": Other(REFERENCE.but(n_batch=PIECE, n_ubatch=PIECE)),
    "prompt kept in the slot": Other(more={"cache_prompt": True}),
}


def beside(n: int) -> dict[str, Other]:
    """The change of n other answers in the same batches."""
    return {f"{count_text(n, 'other answer')} beside": Other(beside=n)}


def real_answers(
    model: str, others: Mapping[str, Other], n_prompts: int, n_prompt: int, n_gen: int, type: str = ""
) -> ServedAnswers:
    """Answer each of `n_prompts` prompts once as the reference does and once with each change; compare.

    n_prompt  tokens of every prompt, its template included
    n_gen     tokens of an answer at most; `n_same` is n_gen where two answers are the same to their end
    type      the file's weights written in another type first
    Raises EngineUnavailable without llama-server.
    """
    path = quantize(model, type, requantize=True) if type else find_model(model)
    every = dict.fromkeys([REFERENCE, *(other.settings for other in others.values())])
    with ExitStack() as stack:
        servers = {one: stack.enter_context(llama_server(path, _roomy(one, n_prompt + n_gen))) for one in every}
        server = servers[REFERENCE]
        prompts = chat_prompts(server.port, n_prompts, n_prompt)
        pairs: dict[str, list[tuple[Said, Said]]] = {name: [] for name in others}
        for n in range(n_prompts):
            first = _said(server, prompts[n], 0, n_gen)
            for name, other in others.items():
                pairs[name].append((first, _beside(servers[other.settings], other, prompts, n, n_gen)))
        return ServedAnswers(
            **served_fields(server, read_gguf(path), this_machine()),
            n_prompt=n_prompt,
            n_gen=n_gen,
            compared=tuple(compared(name, both, n_gen) for name, both in pairs.items()),
        )


def compared(change: str, pairs: Sequence[tuple[Said, Said]], n_gen: int) -> Compared:
    """The tokens that each pair has in common, and how far their costs are apart."""
    same = [n_same(first.tokens, second.tokens) for first, second in pairs]
    apart = (
        abs(before - after)
        for (first, second), n in zip(pairs, same, strict=True)
        for before, after in zip(first.costs[:n], second.costs[:n], strict=True)
    )
    ends = [n_gen if first.tokens == second.tokens else n for (first, second), n in zip(pairs, same, strict=True)]
    return Compared(change, tuple(float(f"{one:.{DIGITS}g}") for one in apart), tuple(ends))


def chat_prompts(port: int, n: int, length: int) -> list[list[int]]:
    """Questions about consecutive pieces of the held-out text, as the model's own template writes them.

    A piece is as long as leaves `length` tokens in all.
    """
    text, prompts = server_tokens(port, held_out_text()), []
    for i in range(n):
        asked = chat_prompt(port, f"{QUESTIONS[i % len(QUESTIONS)]}\n\n{MARK}")
        head, tail = (server_tokens(port, part) for part in asked.split(MARK))
        piece = text[i * length :][: length - len(head) - len(tail)]
        prompts.append([*head, *piece, *tail])
    return prompts


def _roomy(settings: Settings, n_tokens: int) -> Settings:
    return settings.but(n_seq_max=N_SLOTS, n_ctx=N_SLOTS * 2 * n_tokens)


def _beside(server: LlamaServer, other: Other, prompts: Sequence[Sequence[int]], number: int, n_gen: int) -> Said:
    """The answer in slot 0 while the other slots answer other prompts, which go on for longer."""
    with ThreadPoolExecutor(1 + other.beside) as pool:
        for slot in range(1, 1 + other.beside):
            pool.submit(
                _said, server, prompts[(number + slot) % len(prompts)], slot, n_gen + PIECE, {"ignore_eos": True}
            )
        return pool.submit(_said, server, prompts[number], 0, n_gen, other.more).result()


def _said(server: LlamaServer, prompt: Sequence[int], slot: int, n_gen: int, more: Mapping[str, Any] = {}) -> Said:
    body = {
        "prompt": list(prompt),
        "n_predict": n_gen,
        "id_slot": slot,
        "temperature": 0,
        "n_probs": 1,
        "return_tokens": True,
        "cache_prompt": False,
        **more,
    }
    answer = whole_answer(LOOPBACK_ADDRESS, server.port, "/completion", body)
    costs = tuple(-one["logprob"] for one in answer["completion_probabilities"])
    return Said(tuple(one["id"] for one in answer["completion_probabilities"]), costs)
