"""The calls that made the records: turns on a llama-server of one slot, and decode at depth with the whole cache."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from inferlab.engine.llama_server import LlamaServer, llama_server
from inferlab.engine.session import this_machine
from inferlab.machine import LOOPBACK_ADDRESS
from inferlab.measurement.base import served_fields
from inferlab.measurement.depth import DepthScaling, decode_in_turns
from inferlab.measurement.http_client import stream
from inferlab.measurement.telemetry.host import HostReader
from inferlab.model.gguf import read_gguf
from inferlab.model.synthetic_model import make_shape
from inferlab.settings import Settings
from inferlab.units import MIB
from studies import recipes
from studies.recipes import Recipe
from studies.windows_and_states.study import AGAIN, EDIT, GO_ON, NEW, ROUNDS, KeptPrompts, KeptTurn

A_CHAT = NEW, GO_ON, GO_ON, AGAIN, EDIT, GO_ON
"""A conversation: a long first prompt, two more turns, the last answer once more, an early message edited, a turn."""
NO_CHECKPOINTS, NO_COPIES = ("-ctxcp", "0"), ("-cram", "0")
PLAIN, WINDOWED, HYBRID = "qwen3-0.6b", "gemma-3-1b", "granite-4.0-h-350m"
MADE = re.compile(r"created context checkpoint .*n_tokens = (\d+), size = ([\d.]+) MiB")
RESTORED, FORCED = "restored context checkpoint", "forcing full prompt re-processing"
COPIES = re.compile(r"cache state: (\d+) prompts, ([\d.]+) MiB")
LOG_SECONDS = 0.3


def keep_prompts(
    model: Path,
    kinds: Sequence[str],
    settings: Settings,
    options: Sequence[str] = (),
    n_first: int = 1500,
    n_new: int = 200,
    n_gen: int = 16,
) -> KeptPrompts:
    """Send prompts of `kinds` to a llama-server of its own, one after another; one more at the start is not counted.

    settings  of one slot, with n_ctx for all turns
    options   further flags of the server
    n_first   tokens of a new prompt; an edit changes n_new tokens a third of the way into the prompt
    """
    header, chance, turns = read_gguf(model), random.Random(0), []
    words = range(header.n_vocab // 2, header.n_vocab)
    with llama_server(model, settings, options) as server:
        prompt = whole = chance.choices(words, k=64)
        for kind in (NEW, *kinds):
            new = [] if kind == AGAIN else chance.choices(words, k=n_first if kind == NEW else n_new)
            prompt = _next(kind, prompt, whole, new)
            turn, answer = _ask(server, kind, prompt, n_gen)
            whole = prompt + answer
            turns.append(turn)
        return KeptPrompts(
            **served_fields(server, header, this_machine()),
            options=tuple(options),
            n_gen=n_gen,
            turns=tuple(turns[1:]),
        )


def _next(kind: str, prompt: list[int], whole: list[int], new: list[int]) -> list[int]:
    """The prompt of a turn, from the one before, the slot's whole text, and new tokens."""
    if kind in (NEW, AGAIN):
        return new if kind == NEW else prompt
    at = len(prompt) // 3
    return whole + new if kind == GO_ON else prompt[:at] + new + prompt[at + len(new) :]


def _ask(server: LlamaServer, kind: str, prompt: list[int], n_gen: int) -> tuple[KeptTurn, list[int]]:
    """Send one prompt; the turn, and the tokens of its answer that are in the cache."""
    before = len(server.log.splitlines())
    body = {
        "prompt": prompt,
        "n_predict": n_gen,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "cache_prompt": True,
        "return_tokens": True,
    }
    answer = stream(LOOPBACK_ADDRESS, server.port, "/completion", body, 300)
    time.sleep(LOG_SECONDS)  # the log comes through a pipe, a little after the answer
    lines = server.log.splitlines()
    told, timings = "\n".join(lines[before:]), answer.events[-1].data["timings"]
    copies = COPIES.findall("\n".join(lines))
    tokens = [token for event in answer.events if not event.data["stop"] for token in event.data["tokens"]]
    turn = KeptTurn(
        kind=kind,
        n_prompt=len(prompt),
        n_cached=timings["cache_n"],
        ttft_seconds=round(answer.events[0].seconds - answer.sent_seconds, 6),
        prompt_seconds=timings["prompt_ms"] / 1e3,
        restored=RESTORED in told,
        forced=FORCED in told,
        checkpoints=tuple(round(float(size) * MIB) for _, size in MADE.findall(told)),
        copies=int(copies[-1][0]) if copies else None,
        copies_bytes=round(float(copies[-1][1]) * MIB) if copies else None,
        rss_bytes=HostReader(server.pid, {}).read(time.monotonic()).get("rss_bytes"),
    )
    return turn, tokens


def chats(n_ctx: int, n_first: int, n_new: int, n_gen: int) -> tuple[KeptPrompts, ...]:
    """A chat with a plain model, with windows in three ways, and with a hybrid in two."""
    ways = (
        (PLAIN, (), False),
        (WINDOWED, (), False),
        (WINDOWED, NO_CHECKPOINTS, False),
        (WINDOWED, (), True),
        (HYBRID, (), False),
        (HYBRID, NO_CHECKPOINTS, False),
    )
    return tuple(
        keep_prompts(make_shape(name), A_CHAT, Settings(n_ctx=n_ctx, swa_full=whole), options, n_first, n_new, n_gen)
        for name, options, whole in ways
    )


def copies(n_prompts: int, n_ctx: int, n_plain: int, n_others: int, n_gen: int) -> tuple[KeptPrompts, ...]:
    """Unrelated prompts to a plain model with copies and without, to a hybrid, and to a model with windows.

    n_plain, n_others  tokens of each prompt of the plain model, and of the other two
    """
    settings, plain = Settings(n_ctx=n_ctx, swa_full=False), make_shape(PLAIN)
    ways = (
        (plain, (), n_plain),
        (plain, NO_COPIES, n_plain),
        (make_shape(HYBRID), (), n_others),
        (make_shape(WINDOWED, n_layer=12), (), n_others),
    )
    return tuple(
        keep_prompts(path, (NEW,) * n_prompts, settings, options, n_first, n_gen=n_gen)
        for path, options, n_first in ways
    )


def depths(cells: Sequence[int], n_gen: int, rounds: int, n_layer: int) -> tuple[DepthScaling, ...]:
    """Decode at depth in turns: the whole cache, the windows alone, and these once more as a control."""
    windows = Settings(swa_full=False)
    choices = [Settings(), windows, windows]
    return decode_in_turns(make_shape(WINDOWED, n_layer=n_layer), choices, cells, n_gen, rounds)


RECIPES: Mapping[str, Recipe] = {
    "kept-chats": partial(chats, n_ctx=4096, n_first=1500, n_new=200, n_gen=16),
    "kept-copies": partial(copies, n_prompts=5, n_ctx=4096, n_plain=300, n_others=800, n_gen=16),
    "swa-full-depth": partial(depths, (1024, 4096), n_gen=8, rounds=ROUNDS, n_layer=12),
}

if __name__ == "__main__":
    recipes.main(RECIPES)
