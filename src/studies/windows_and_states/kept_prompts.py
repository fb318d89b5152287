"""What llama-server keeps of a prompt: prompts one after another, tokens computed again, checkpoints and copies in RAM.

The prompts are random tokens. A turn goes on from the slot's whole text, asks again, or changes a part in its middle;
of each the server's own counts are kept, what its log says, and the resident memory of its process.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from inferlab.engine.llama_server import HOST, LlamaServer, llama_server
from inferlab.engine.session import this_machine
from inferlab.errors import InvalidSettings
from inferlab.measurement.base import Measurement
from inferlab.measurement.http_client import stream
from inferlab.measurement.queued import queued
from inferlab.measurement.telemetry.host import HostReader
from inferlab.model.gguf import read_gguf
from inferlab.progress import track
from inferlab.settings import Settings
from inferlab.units import MIB

GO_ON, AGAIN, EDIT, NEW = "go on", "again", "edit", "new"
KINDS = (GO_ON, AGAIN, EDIT, NEW)
A_CHAT = (NEW, GO_ON, GO_ON, AGAIN, EDIT, GO_ON)
"""A conversation: a long first prompt, two more turns, the last answer once more, an early message edited, a turn."""
DEFAULTS, NO_CHECKPOINTS, WHOLE_CACHE, NO_COPIES = "defaults", "no checkpoints", "whole cache", "no copies"
OPTIONS = {DEFAULTS: (), NO_CHECKPOINTS: ("-ctxcp", "0"), WHOLE_CACHE: (), NO_COPIES: ("-cram", "0")}
"""Ways to start the server, and the flags of each; the whole cache is a setting, `swa_full`."""
MADE = re.compile(r"created context checkpoint .*n_tokens = (\d+), size = ([\d.]+) MiB")
RESTORED, FORCED = "restored context checkpoint", "forcing full prompt re-processing"
COPIES = re.compile(r"cache state: (\d+) prompts, ([\d.]+) MiB")
LOG_SECONDS = 0.3


@dataclass(frozen=True)
class KeptTurn:
    """One request.

    kind              "new": an unrelated prompt; "go on": the slot's whole text and n_new tokens more; "again": the
                      prompt of the turn before; "edit": that prompt with other tokens in a place of its middle
    n_prompt          tokens of the prompt, n_cached of them not computed again
    ttft_seconds      from sending it to its first text
    prompt_seconds    the server's own time for the prompt
    restored, forced  whether the log says that a checkpoint was restored, or that the whole prompt is computed again
    checkpoints       bytes of each checkpoint made in this turn, to 0.001 MiB
    copies, copies_bytes  prompts that are copied to host memory after it, by the log; None where it has no line
    rss_bytes         resident memory of the server's process after it; None where the system does not tell
    """

    kind: str
    n_prompt: int
    n_cached: int
    ttft_seconds: float
    prompt_seconds: float
    restored: bool
    forced: bool
    checkpoints: tuple[int, ...]
    copies: int | None = None
    copies_bytes: int | None = None
    rss_bytes: int | None = None

    @property
    def n_computed(self) -> int:
        """Tokens of the prompt that were computed."""
        return self.n_prompt - self.n_cached


@dataclass(frozen=True, kw_only=True)
class KeptPrompts(Measurement):
    """Turns on one llama-server with one slot.

    options  its flags beside the settings
    n_gen    tokens of each answer, all but the last of which are in the cache afterwards
    """

    made_with = "llama-server over HTTP"

    options: tuple[str, ...]
    n_gen: int
    turns: tuple[KeptTurn, ...]

    @property
    def variant(self) -> str:
        """Which of OPTIONS the server was started with; empty for other flags."""
        if self.settings.swa_full and not self.options:
            return WHOLE_CACHE
        return next((name for name, flags in OPTIONS.items() if flags == self.options), "")

    def of(self, kind: str) -> tuple[KeptTurn, ...]:
        """The turns of one kind."""
        return tuple(turn for turn in self.turns if turn.kind == kind)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of all checkpoints that were made; the server keeps at most as many as `-ctxcp` says."""
        return sum(sum(turn.checkpoints) for turn in self.turns)


@queued
def keep_prompts(
    model: str | Path,
    kinds: Sequence[str] = A_CHAT,
    settings: Settings | None = None,
    options: Sequence[str] = (),
    n_first: int = 1500,
    n_new: int = 200,
    n_gen: int = 16,
    seed: int = 0,
    program: str | Path | None = None,
    progress: bool | None = None,
) -> KeptPrompts:
    """Send prompts of `kinds` to a llama-server of its own, one after another; one more at the start is not counted.

    settings  n_seq_max must be 1; None: 4096 cells, and the server's defaults
    n_first   tokens of a new prompt; an edit changes n_new tokens a third of the way into the prompt
    Raises InvalidSettings for other kinds, several slots or too few cells; EngineUnavailable, EngineRefused or
    EngineTimeout.
    """
    settings = settings or Settings(n_ctx=4096, swa_full=False)
    _require(kinds, settings, n_first, n_new, n_gen)
    header, chance, found = read_gguf(model), random.Random(seed), []
    words = range(header.n_vocab // 2, header.n_vocab)
    with llama_server(model, settings, options, program=program) as server:
        prompt = whole = chance.choices(words, k=64)
        for kind in track([NEW, *kinds], len(kinds) + 1, "turns", progress):
            prompt = _next(kind, prompt, whole, words, chance, n_first, n_new)
            turn, answer = _ask(server, kind, prompt, n_gen)
            whole = prompt + answer
            found.append(turn)
        return KeptPrompts(
            model=header.card(), settings=server.settings, machine=this_machine(), date=date.today().isoformat(),
            buffers=server.buffers, options=tuple(options), n_gen=n_gen, turns=tuple(found[1:]),
        )  # fmt: skip


def keep_in_variants(model: str | Path, variants: Sequence[str], n_ctx: int = 4096, **named) -> tuple[KeptPrompts, ...]:
    """`keep_prompts` with each of several variants of OPTIONS, one server after another; `named` as it takes it."""
    unknown = [name for name in variants if name not in OPTIONS]
    if unknown:
        raise InvalidSettings(f"There is no variant {unknown[0]!r}. There are: {', '.join(OPTIONS)}.")
    settings = {name: Settings(n_ctx=n_ctx, swa_full=name == WHOLE_CACHE) for name in variants}
    return tuple(keep_prompts(model, settings=settings[name], options=OPTIONS[name], **named) for name in variants)


def _require(kinds: Sequence[str], settings: Settings, n_first: int, n_new: int, n_gen: int) -> None:
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds or kinds[0] != NEW:
        raise InvalidSettings(f"Turns are {', '.join(KINDS)}, and the first is {NEW!r}; found {list(kinds)}.")
    if settings.n_seq_max != 1 or settings.n_ctx is None:
        raise InvalidSettings(
            f"n_seq_max={settings.n_seq_max} and n_ctx={settings.n_ctx}: turns need one slot, so that each finds what "
            "the one before has left, and a known number of cells. Give n_seq_max=1 and n_ctx."
        )
    most = n_first + (n_new + n_gen) * (1 + sum(kind == GO_ON for kind in kinds))
    if most > settings.n_ctx:
        raise InvalidSettings(f"These turns need {most:,} cells, and n_ctx={settings.n_ctx:,}. Give more, or fewer.")


def _next(
    kind: str, prompt: list[int], whole: list[int], words: range, chance: random.Random, n_first: int, n_new: int
) -> list[int]:
    """The prompt of a turn, from the one before and the slot's whole text."""
    if kind == NEW:
        return chance.choices(words, k=n_first)
    if kind == GO_ON:
        return whole + chance.choices(words, k=n_new)
    if kind == AGAIN:
        return prompt
    at = len(prompt) // 3
    return prompt[:at] + chance.choices(words, k=n_new) + prompt[at + n_new :]


def _ask(server: LlamaServer, kind: str, prompt: list[int], n_gen: int) -> tuple[KeptTurn, list[int]]:
    """Send one prompt; the turn, and the tokens of its answer that are in the cache."""
    before = len(server.log.splitlines())
    body = {
        "prompt": prompt, "n_predict": n_gen, "ignore_eos": True, "temperature": 0, "stream": True,
        "cache_prompt": True, "return_tokens": True,
    }  # fmt: skip
    answer = stream(HOST, server.port, "/completion", body, 300)
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
