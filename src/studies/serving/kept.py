"""A prompt that comes back to llama-server: how many of its tokens are read again, by what happened in between."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.session import this_machine
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.base import served_fields
from inferlab.measurement.http_client import Stream, chat_prompt, stream
from inferlab.model.find import held_out_text
from inferlab.model.gguf import read_gguf
from inferlab.settings import Settings
from studies.serving.over_http import body_of, replies_of
from studies.serving.study import HttpRequest, HttpServing, recorded

QUESTION = "Explain this part of a manual in your own words."
LETTERS = 3000


class Sent(NamedTuple):
    """A prompt by its number, and the slot that its request names; None: the server chooses."""

    prompt: int
    slot: int | None = None


class Returning(NamedTuple):
    """Requests to a server with n_slots, of which the last repeats the first; `one_copy`: `-cram` holds one prompt."""

    n_slots: int
    sent: tuple[Sent, ...]
    options: tuple[str, ...] = ()
    one_copy: bool = False
    unified: bool = False


A, B, C = range(3)
CASES: Mapping[str, Returning] = {
    "same": Returning(2, (Sent(A, 0), Sent(A, 0))),
    "empty": Returning(2, (Sent(A, 0), Sent(A, 1))),
    "used": Returning(2, (Sent(A, 0), Sent(B, 1), Sent(A, 1))),
    "two": Returning(2, (Sent(A), Sent(B), Sent(A))),
    "pool": Returning(2, (Sent(A), Sent(B), Sent(A)), unified=True),
    "one": Returning(1, (Sent(A), Sent(B), Sent(C), Sent(A))),
    "small": Returning(1, (Sent(A), Sent(B), Sent(C), Sent(A)), one_copy=True),
    "none": Returning(1, (Sent(A), Sent(B), Sent(C), Sent(A)), ("-cram", "0")),
}
"""Where the prompt comes back: the same slot; a named one that was empty, or used by another prompt; a slot that the
server chooses among two, or two over one pool; the only one, with a small limit of copies in RAM, or with none."""


def kept_prompts(
    model: Path, n_gen: int, n_ctx: int, one_copy_mib: int, n_prompt: int | None = None
) -> tuple[HttpServing, ...]:
    """The requests of each of CASES to a server of its own, one after another.

    n_ctx         cells of each slot
    one_copy_mib  a limit of the copies in RAM, in MiB, that holds one prompt and not two
    n_prompt      random tokens in each prompt; None: text through the model's own chat template
    Raises EngineUnavailable without llama-server.
    """
    return tuple(_served(model, case, n_gen, n_ctx, one_copy_mib, n_prompt) for case in CASES.values())


def _served(
    model: Path, case: Returning, n_gen: int, n_ctx: int, one_copy_mib: int, n_prompt: int | None
) -> HttpServing:
    settings = Settings(n_seq_max=case.n_slots, n_ctx=case.n_slots * n_ctx, kv_unified=case.unified)
    options = ("-cram", str(one_copy_mib)) if case.one_copy else case.options
    header = read_gguf(model)
    with llama_server(model, settings, options) as server:
        streams = [_stream(server, sent, n_gen, n_prompt, header.n_vocab) for sent in case.sent]
        requests = [
            HttpRequest(_n_prompt(answer), n_gen, seed=sent.prompt, cache_prompt=True)
            for sent, answer in zip(case.sent, streams, strict=True)
        ]
        return HttpServing(
            **served_fields(server, header, this_machine()),
            replies=replies_of(requests, streams, server.launches()),
        )


def _stream(server: LlamaServer, sent: Sent, n_gen: int, n_prompt: int | None, n_vocab: int) -> Stream:
    body = body_of(HttpRequest(n_prompt or 1, n_gen, seed=sent.prompt, cache_prompt=True), n_vocab)
    body |= {} if n_prompt else {"prompt": _templated(server, sent.prompt)}
    body |= {} if sent.slot is None else {"id_slot": sent.slot}
    return stream(LOOPBACK_ADDRESS, server.port, "/completion", body)


def _templated(server: LlamaServer, number: int) -> str:
    """A question about a piece of the held-out text, as the model's chat template writes it."""
    piece = held_out_text()[number * LETTERS : (number + 1) * LETTERS]
    return chat_prompt(server.port, f"{QUESTION}\n\n{piece}")


def _n_prompt(answer: Stream) -> int:
    """Tokens of the prompt, those read and those kept."""
    timings = answer.events[-1].data["timings"]
    return timings["prompt_n"] + timings["cache_n"]


def read_again(serving: HttpServing) -> int:
    """Tokens of the last prompt that were read again."""
    last = serving.replies[-1]
    return last.request.n_prompt - last.n_cached


def kept_numbers() -> dict[str, int]:
    """For each case the tokens that were read again, by the shape and by the trained model; the tokens of the prompt.

    common_beginning  tokens that all prompts of the trained model begin with: the template's own, and the question
    """
    both = {"shape": recorded("slots"), "smollm2": recorded("slots-smollm2")}
    every = {f"{c}_{name}": read_again(one) for name, of in both.items() for c, one in zip(CASES, of, strict=True)}
    lengths = {f"kept_{name}": of[0].replies[-1].request.n_prompt for name, of in both.items()}
    return {**every, **lengths, "common_beginning": both["smollm2"][-1].replies[-1].n_cached}
