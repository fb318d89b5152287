"""What llama-server keeps of an agent's requests: tokens read again, copies in RAM, and files of slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

from inferlab.measurement.base import Measurement
from inferlab.records import load_all
from studies.agents.session import N_BEGINNING

ONE_BARE, ONE, DEFAULT, SPLIT = "-np 1 -cram 0", "-np 1", "default", "-np 4"
SMALL, SHIFT, WINDOWS, NO_CHECKPOINTS = "-cram 16", "--cache-reuse", "windows", "windows, -ctxcp 0"
WINDOWED_SETTINGS = {WINDOWS: (), NO_CHECKPOINTS: ("-ctxcp", "0")}
"""Of a model with windows: name -> flags of llama-server beside `-c`."""
HYBRID_SETTINGS = {"hybrid": (), "hybrid, --cache-reuse": ("--cache-reuse", "25")}
"""Of a model with states: name -> flags of llama-server beside `-c`."""
TRAINED = "SmolLM2 135M"
KEYS = {
    ONE_BARE: "one_bare",
    ONE: "one",
    DEFAULT: "default",
    SPLIT: "split",
    SMALL: "small",
    SHIFT: "shift",
    WINDOWS: "windows",
    NO_CHECKPOINTS: "windows_bare",
}
"""Setting -> the end of its numbers' names."""
N_CTX, N_CTX_SMALL, SCALE = 32_768, 8192, 10
"""Context of the shapes, that of the trained model, and by which its session is divided."""
Table = tuple[Sequence[str], Sequence[Sequence[str | int]]]
LEAST_CHUNK = 256
"""Tokens of --cache-reuse for the session of whole size; llama.cpp's own presets have as many, common/arg.cpp:4585."""


def main_settings(scale: int = 1) -> dict[str, tuple[str, ...]]:
    """The six settings: name -> flags of llama-server beside `-c`; the chunks of a smaller session are smaller."""
    return {
        ONE_BARE: ("-np", "1", "-cram", "0"),
        ONE: ("-np", "1"),
        DEFAULT: (),
        SPLIT: ("-np", "4"),
        SMALL: ("-cram", "16"),
        SHIFT: ("--cache-reuse", str(LEAST_CHUNK // scale)),
    }


# --- what is recorded -------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """One request of the session.

    turn, kind     the turn of the main conversation; "main", or which side request after that turn
    n_prompt       tokens of its prompt; n_new of them no request with this beginning had, nor an answer
    n_read, n_kept tokens that the server computed, and that it had; None where it refused the request
    copies, copies_bytes   prompts in host memory after it, by the log; None where it has no line
    copied_tokens, copied_bytes   the longest prompt that was to be copied for it
    update_ms      the server's own time for writing and reading copies before it chose a slot
    checkpoints    bytes of each checkpoint that was made
    said           what its part of the log says, in the words of `replay.SAID`
    """

    turn: int
    kind: str
    n_prompt: int
    n_new: int
    n_gen: int
    n_read: int | None = None
    n_kept: int | None = None
    slot: int | None = None
    ttft_seconds: float | None = None
    prompt_seconds: float | None = None
    copies: int | None = None
    copies_bytes: int | None = None
    copied_tokens: int | None = None
    copied_bytes: int | None = None
    update_ms: float = 0.0
    checkpoints: tuple[int, ...] = ()
    said: tuple[str, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the server refused it, because its slot is shorter than the prompt."""
        return self.n_read is None

    @property
    def n_again(self) -> int:
        """Tokens read that the server had read or written before; 0 for a request that it refused."""
        return 0 if self.n_read is None else max(0, self.n_read - self.n_new)


@dataclass(frozen=True, kw_only=True)
class Replay(Measurement):
    """The session of an agent on one llama-server.

    setting, options   the name of the setting, and the flags of the server
    scale              by which the session's lengths are divided
    metric_read, metric_kept   prompt_tokens_total and prompt_tokens_cached_total of /metrics at the end
    """

    made_with = "llama-server over HTTP"

    setting: str
    options: tuple[str, ...]
    scale: int
    metric_read: int
    metric_kept: int
    requests: tuple[Asked, ...]

    @property
    def main(self) -> tuple[Asked, ...]:
        """The turns of the main conversation."""
        return tuple(asked for asked in self.requests if asked.kind == "main")

    @property
    def n_again(self) -> int:
        """Tokens read again, in all requests."""
        return sum(asked.n_again for asked in self.requests)

    @property
    def n_refused(self) -> int:
        """Requests that the server refused."""
        return sum(asked.refused for asked in self.requests)

    def until(self, n_turns: int) -> Replay:
        """The first turns with their side requests."""
        return replace(self, requests=tuple(asked for asked in self.requests if asked.turn <= n_turns))


@dataclass(frozen=True, kw_only=True)
class SlotFiles(Measurement):
    """A slot written to a file, and read by a server that was started anew.

    n_tokens        tokens in the slot that was saved, in n_bytes of a file
    n_first         tokens that the first server read for its prompt, in first_seconds of its own time
    n_next          tokens of the next prompt, which goes on from the slot's text; n_read of them were computed
    n_back          tokens of a prompt that goes back before the saved answer; n_back_read of them were computed
    """

    made_with = "llama-server over HTTP"

    options: tuple[str, ...]
    n_tokens: int
    n_bytes: int
    n_first: int
    first_seconds: float
    save_ms: float
    restore_ms: float
    n_next: int
    n_read: int
    n_back: int
    n_back_read: int


# --- readings ---------------------------------------------------------------------------------


@cache
def recorded(name: str) -> dict[str, Replay]:
    """The replays of a record by their settings: "shape", "windows", "hybrid" or "smollm2"."""
    return {one.setting: one for one in load_all(f"epyc-2c/agent-{name}", Replay)}


@cache
def trained() -> dict[str, tuple[Replay, ...]]:
    """The replays of SmolLM2 135M by their settings, one of each round."""
    every = load_all("epyc-2c/agent-smollm2", Replay)
    return {name: tuple(one for one in every if one.setting == name) for name in recorded("smollm2")}


@cache
def slot_files() -> tuple[SlotFiles, SlotFiles]:
    """The plain shape, and the one with windows."""
    plain, windows = load_all("epyc-2c/agent-slot-files", SlotFiles)
    return plain, windows


def first_token_seconds(replays: Sequence[Replay]) -> dict[int, float]:
    """Turn -> the median time to the first token of its main request; refused ones are left out."""
    seconds: dict[int, list[float]] = {}
    for asked in (asked for one in replays for asked in one.main):
        if asked.ttft_seconds is not None:
            seconds.setdefault(asked.turn, []).append(asked.ttft_seconds)
    return {turn: median(values) for turn, values in seconds.items()}


def later_seconds(replays: Sequence[Replay]) -> list[float]:
    """Of each turn after the first, whose prompt is new to the server: the median time to the first token."""
    return [seconds for turn, seconds in first_token_seconds(replays).items() if turn > 1]


# --- the numbers of the page ------------------------------------------------------------------


def numbers() -> dict[str, float | int | str]:
    """The numbers of the page *Coding agents at 32k*; of each setting under its key of KEYS.

    The longest time for a copy is that of one slot, where the server times writing one and reading another together.
    """
    shape = recorded("shape")
    one, (plain, windows) = shape[DEFAULT], slot_files()
    return {
        "cpu": one.machine.cpu,
        "n_turns": len(one.main),
        "n_side": len(one.requests) - len(one.main),
        "n_requests": len(one.requests),
        "n_beginning": N_BEGINNING,
        **{f"again_{KEYS[name]}": replay.n_again for name, replay in (shape | recorded("windows")).items()},
        "refused_split": shape[SPLIT].n_refused,
        "longest_update_ms": max(asked.update_ms for asked in shape[ONE].requests),
        **{f"small_worst_{KEYS[name]}": max(later_seconds(trained()[name])) for name in (ONE_BARE, DEFAULT)},
        "file_next": plain.n_next,
        "file_read": plain.n_read,
        "file_windows_read": windows.n_read,
    }


# --- the tables of the page -------------------------------------------------------------------


def settings_table() -> Table:
    """Heads and rows: what each setting read, kept and read again, and its worst turn."""
    rows = []
    for name, one in (recorded("shape") | recorded("windows")).items():
        worst = max(one.main, key=lambda asked: asked.n_again)
        told = f"{worst.n_again:,d} (turn {worst.turn})" if worst.n_again else "none"
        rows.append((_shown(name), f"{one.metric_read:,d}", f"{one.n_again:,d}", told, one.n_refused))
    return ("setting", "tokens read", "of them again", "worst turn, again", "refused"), rows


def trained_table() -> Table:
    """Heads and rows: the same with SmolLM2 135M at a tenth of the size, and the first token in seconds."""
    rows = []
    for name, several in trained().items():
        seconds = later_seconds(several)
        times = (f"{median(seconds):.2f}", f"{max(seconds):.2f}") if seconds else ("none", "none")
        rows.append((_shown(name), f"{several[0].n_again:,d}", *times, several[0].n_refused))
    return ("setting", "tokens read again", "first token after turn 1: median, s", "longest, s", "refused"), rows


def _shown(name: str) -> str:
    return ", ".join(f"`{word}`" if word.startswith("-") else word for word in name.split(", "))
