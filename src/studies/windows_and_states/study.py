"""What llama-server keeps of a prompt: tokens computed again, checkpoints and copies in RAM, and what a window costs.

The prompts are random tokens. A turn goes on from the slot's whole text, asks again, or changes a part in its middle;
of each the server's own counts are kept, what its log says, and the resident memory of its process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from inferlab.measurement.base import Measurement
from inferlab.measurement.depth import DepthScaling, compare_rounds
from inferlab.model.catalog import KnownModel, known_model
from inferlab.model.gguf import Model
from inferlab.model.synthetic_model import shape
from inferlab.prediction.free_memory import PROMPT_CACHE_BYTES
from inferlab.prediction.memory import kv_cache_bytes
from inferlab.prediction.memory.cache import cache_layers, state_bytes
from inferlab.records import load_all
from inferlab.settings import Settings
from inferlab.statistics import FASTER, SLOWER, Comparison
from inferlab.units import GIB, KIB, MIB
from studies.windows_and_states.kept import (
    BEFORE_END,
    DEFAULT_CHECKPOINTS,
    checkpoint_bytes,
    copy_bytes,
)

GO_ON, AGAIN, EDIT, NEW = "go on", "again", "edit", "new"
CHATS = "plain", "windows", "windows, `-ctxcp 0`", "windows, `--swa-full`", "hybrid", "hybrid, `-ctxcp 0`"
"""The recorded chats, in their order."""
TABLED = "llama-3.2-1b", "gemma-3-1b", "granite-4.0-h-350m", "falcon-h1-0.5b", "lfm2-350m", "mamba2-130m"
"""The shapes whose bytes are computed."""
WINDOWS = Settings(n_ctx=8192, swa_full=False)
ROUNDS = 15  # of the depths; each had the whole cache, the windows, and the windows again
Table = tuple[Sequence[str], Sequence[Sequence[str | int]]]


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

    def first(self, kind: str) -> KeptTurn:
        """The first turn of a kind."""
        return next(turn for turn in self.turns if turn.kind == kind)

    @property
    def checkpoint_bytes(self) -> int:
        """Bytes of all checkpoints that were made; the server keeps at most as many as `-ctxcp` says."""
        return sum(sum(turn.checkpoints) for turn in self.turns)


@dataclass(frozen=True)
class Growth:
    """What was added between the first and the last of several unrelated prompts.

    n_copies        copies more
    n_tokens        tokens of each
    n_checkpoints   checkpoints in each
    computed_bytes  by `kept.copy_bytes`, with the checkpoints at the two places where the server makes them
    logged_bytes    by the server's log
    rss_bytes       growth of the process
    """

    n_copies: int
    n_tokens: int
    n_checkpoints: int
    computed_bytes: int
    logged_bytes: int
    rss_bytes: int


def growth(run: KeptPrompts, model: Model | KnownModel) -> Growth:
    """The growth in a run of unrelated prompts of one length, with copies in the log and resident memory known."""
    first, last = run.turns[0], run.turns[-1]
    n_copies, n_tokens, n_checkpoints = last.copies - first.copies, last.n_prompt + run.n_gen - 1, len(last.checkpoints)
    places = [last.n_prompt - back for back in (BEFORE_END + run.settings.n_ubatch, BEFORE_END)]
    checkpoints = sum(checkpoint_bytes(model, run.settings, n) for n in places[-n_checkpoints:] if n_checkpoints)
    return Growth(
        n_copies,
        n_tokens,
        n_checkpoints,
        n_copies * (copy_bytes(model, run.settings, n_tokens) + checkpoints),
        last.copies_bytes - first.copies_bytes,
        last.rss_bytes - first.rss_bytes,
    )


# --- what is recorded -------------------------------------------------------------------------


@cache
def chats() -> dict[str, KeptPrompts]:
    """A chat with each cache of CHATS."""
    return dict(zip(CHATS, load_all("epyc-2c/kept-chats", KeptPrompts), strict=True))


@cache
def copies() -> tuple[KeptPrompts, ...]:
    """Unrelated prompts of a plain model, the same without copies, of a hybrid, and of a model with windows."""
    return load_all("epyc-2c/kept-copies", KeptPrompts)


@cache
def depths() -> tuple[DepthScaling, ...]:
    """Decode at depth with the whole cache, with the windows alone, and with the windows alone once more."""
    return load_all("epyc-2c/swa-full-depth", DepthScaling)


@cache
def grown() -> dict[str, Growth]:
    """The growth by copies of each model."""
    plain, _, hybrid, windows = copies()
    return {
        "Qwen3 0.6B": growth(plain, known_model("qwen3-0.6b")),
        "Granite 4.0 H 350M": growth(hybrid, shape("granite-4.0-h-350m")),
        "Gemma 3 1B, 12 layers": growth(windows, shape("gemma-3-1b", n_layer=12)),
    }


# --- the numbers of the page ------------------------------------------------------------------


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *Caches with windows and states*."""
    return {**chat_numbers(), **byte_numbers(), **copy_numbers(), **depth_numbers()}


def chat_numbers() -> dict[str, float | int | str]:
    """Prompt tokens that were computed, and seconds to the first token, when a prompt is asked again or edited."""
    names = "plain", "windowed", "windowed_off", "whole", "hybrid", "off"
    chat = dict(zip(names, chats().values(), strict=True))
    hybrid, edited = chat["hybrid"], ("hybrid", "plain", "windowed", "whole")
    return {
        "cpu": hybrid.machine.cpu,
        "commit": hybrid.machine.llama_cpp_commit.removesuffix("-dirty"),
        "edit_prompt": hybrid.first(EDIT).n_prompt,
        **{f"edit_{name}": chat[name].first(EDIT).n_computed for name in edited},
        **{f"again_{name}": chat[name].first(AGAIN).n_computed for name in names if name != "whole"},
        "again_seconds": hybrid.first(AGAIN).ttft_seconds,
        "again_off_seconds": chat["off"].first(AGAIN).ttft_seconds,
        "made": sum(len(turn.checkpoints) for turn in hybrid.turns),
        "made_mib": hybrid.checkpoint_bytes / MIB,
        "measured_check": hybrid.turns[0].checkpoints[0] / MIB,
    }


def byte_numbers() -> dict[str, float | int]:
    """Caches, checkpoints and copies, computed."""
    granite, gemma, lfm = map(shape, ("granite-4.0-h-350m", "gemma-3-1b", "lfm2-350m"))
    return {
        "n_ctx": WINDOWS.n_ctx,
        "long_factor": _mib(granite, WINDOWS.but(n_ctx=4 * WINDOWS.n_ctx)) / _mib(granite),
        "gemma_factor": _mib(gemma, WINDOWS.but(swa_full=True)) / _mib(gemma),
        "granite_state": checkpoint_bytes(granite, WINDOWS) / MIB,
        "granite_all": DEFAULT_CHECKPOINTS * checkpoint_bytes(granite, WINDOWS) / MIB,
        "gemma_check": checkpoint_bytes(gemma, WINDOWS) / MIB,
        "lfm_kib": checkpoint_bytes(lfm, WINDOWS) / KIB,
        "checkpoints": DEFAULT_CHECKPOINTS,
        "default_gib": PROMPT_CACHE_BYTES / GIB,
    }


def copy_numbers() -> dict[str, float]:
    """How far the log is from what is computed, and the process from the log, in percent; growth without copies."""
    models, off = grown().values(), copies()[1]
    resident = [growth.rss_bytes / growth.logged_bytes for growth in models]
    return {
        "off_mib": (off.turns[-1].rss_bytes - off.turns[0].rss_bytes) / MIB,
        "worst": 100 * max(abs(growth.logged_bytes / growth.computed_bytes - 1) for growth in models),
        "least_rss": 100 * min(resident),
        "most_rss": 100 * max(resident),
    }


def depth_numbers() -> dict[str, float | int | str]:
    """Bytes of both caches, and at which depths the whole one is slower or faster."""
    whole, windows, _ = depths()
    verdicts = {n: compare_rounds(whole, windows, n, ROUNDS).verdict for n in whole.seconds}
    slower = [f"The whole cache is slower with {n:,d} tokens" for n, said in verdicts.items() if said == FASTER]
    faster = [f"The whole cache is faster with {n:,d} tokens" for n, said in verdicts.items() if said == SLOWER]
    return {
        "rounds": ROUNDS,
        "depth_verdict": "; ".join(slower + faster) + "."
        if slower or faster
        else "The intervals show no difference in time.",
        "full_mib": whole.kv_cache_bytes / MIB,
        "window_mib": windows.kv_cache_bytes / MIB,
    }


# --- the tables of the page -------------------------------------------------------------------


def bytes_table() -> Table:
    """Heads and rows: MiB of cells and states of each shape of TABLED, with four slots, and with the whole cache."""
    four = WINDOWS.but(n_seq_max=4)
    ways = WINDOWS, four, four.but(kv_unified=True), WINDOWS.but(swa_full=True)
    rows = []
    for model in map(shape, TABLED):
        states = sum(state_bytes(layer, WINDOWS) for layer in cache_layers(model)) / MIB
        whole, *others = (_mib(model, settings) for settings in ways)
        sizes = (f"{size:.1f}" for size in (whole - states, states, *others))
        rows.append((model.name.removesuffix(" shape"), *sizes))
    return ("model", "cells", "states", "4 slots, parts", "4 slots, one pool", "`swa_full`"), rows


def _mib(model: Model, settings: Settings = WINDOWS) -> float:
    return kv_cache_bytes(model, settings) / MIB


def chat_table() -> Table:
    """Heads and rows: for each cache the tokens that a turn computed, and the seconds to its first token."""
    return ("cache", "first", "turn", "turn", "again", "edit", "turn"), [
        (name, *(f"{turn.n_computed:,d} ({turn.ttft_seconds:.2g} s)" for turn in chat.turns))
        for name, chat in chats().items()
    ]


def depth_table() -> Table:
    """Heads and rows: how much longer a token takes with the whole cache, beside the control, at each depth."""
    whole, windows, again = depths()
    return ("tokens in the cache", "whole cache, % more time", "control, %", "window only, ms"), [
        (
            f"{n:,d}",
            _percent(compare_rounds(whole, windows, n, ROUNDS)),
            _percent(compare_rounds(again, windows, n, ROUNDS)),
            f"{1e3 * windows.median_seconds(n):.3g}",
        )
        for n in whole.seconds
    ]


def _percent(pairs: Comparison) -> str:
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * (ratio - 1) for ratio in (pairs.ratio, *pairs.ends)))


def copies_table() -> Table:
    """Heads and rows: the copies of each model, and their bytes as computed, logged and seen in the process."""
    heads = "model", "copies", "tokens of each", "checkpoints of each", "computed", "log", "process"
    return heads, [
        (
            name,
            growth.n_copies,
            f"{growth.n_tokens:,d}",
            growth.n_checkpoints,
            *(f"{n / MIB:.1f}" for n in (growth.computed_bytes, growth.logged_bytes, growth.rss_bytes)),
        )
        for name, growth in grown().items()
    ]
